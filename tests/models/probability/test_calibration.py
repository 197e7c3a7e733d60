"""Curves from decision values to probabilities: those of scikit-learn, and what files may hold of them."""

import numpy as np
import pytest
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression

from raymkl.models.probability.calibration import Calibration, fit_sigmoid

RNG = np.random.default_rng(0)
F = RNG.normal(size=300)
POSITIVE = RNG.random(300) < 1 / (1 + np.exp(-2 * F - 0.5))
WEIGHTS = np.where(RNG.random(300) < 0.2, 0.0, RNG.uniform(0.1, 4.0, 300))


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_sigmoid_is_that_of_scikit_learn(weights, scale):
    slope, offset = fit_sigmoid(scale * F + 3 * scale, POSITIVE, weights)
    a, b = _sigmoid_calibration(scale * F + 3 * scale, POSITIVE.astype(float), weights)
    grid = scale * np.linspace(-3, 9, 50)
    np.testing.assert_allclose(
        1 / (1 + np.exp(-slope * grid - offset)), 1 / (1 + np.exp(a * grid + b)), atol=1e-4
    )


def test_the_sigmoid_is_where_the_slope_of_its_likelihood_is_zero():
    slope, offset = fit_sigmoid(F, POSITIVE, WEIGHTS)
    above, below = WEIGHTS[POSITIVE].sum(), WEIGHTS[~POSITIVE].sum()
    targets = np.where(POSITIVE, (above + 1) / (above + 2), 1 / (below + 2))
    rest = WEIGHTS * (1 / (1 + np.exp(-slope * F - offset)) - targets)
    assert abs(rest.sum()) < 1e-9 and abs(rest @ F) < 1e-9


@pytest.mark.parametrize(
    "f", [np.sign(F) * 5, np.zeros(300), 1e6 * np.sign(F)], ids=["separated", "all alike", "far apart"]
)
def test_sigmoids_of_odd_values_are_finite(f):
    slope, offset = fit_sigmoid(f, F > 0, None)
    assert np.isfinite([slope, offset]).all()
    P = Calibration("sigmoid", [(slope, offset)]).probabilities(f)
    assert P[F > 0, 1].mean() >= P[F <= 0, 1].mean() and P.min() > 0


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_isotonic_curves_are_those_of_scikit_learn(weights):
    y = np.where(POSITIVE, "yes", "no")
    found = Calibration.fit("isotonic", F, y, np.array(["no", "yes"]), weights)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(F, POSITIVE, weights)
    grid = np.linspace(-6, 6, 400)
    np.testing.assert_allclose(found.probabilities(grid)[:, 1], theirs.predict(grid), atol=1e-12)
    assert np.all(np.diff(found.probabilities(grid)[:, 1]) >= -1e-15)


def test_several_classes_sum_to_one_also_where_none_is_likely():
    curves = [
        (np.array([0.0, 1.0]), np.array([0.0, 0.5])),
        (np.array([0.0, 1.0]), np.array([0.0, 1.0])),
        (np.array([0.0]), np.array([0.0])),
    ]
    P = Calibration("isotonic", curves).probabilities(np.array([[1.0, 1.0, 7.0], [-1.0, -1.0, -1.0]]))
    np.testing.assert_allclose(P, [[1 / 3, 2 / 3, 0.0], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize(
    "method, curves",
    [
        ("platt", [(1.0, 0.0)]),
        ("sigmoid", [(1.0, 0.0), (1.0, 0.0)]),
        ("sigmoid", [(np.nan, 0.0)]),
        ("sigmoid", [(np.ones(2), np.ones(2))]),
        ("isotonic", [(1.0, 0.0)]),
        ("isotonic", [(np.array([1.0, 0.0]), np.array([0.0, 1.0]))]),
        ("isotonic", [(np.array([0.0, 1.0]), np.array([0.0, 1.5]))]),
        ("isotonic", [(np.array([0.0, 1.0]), np.array([0.0]))]),
        ("isotonic", [(np.empty(0), np.empty(0))]),
        ("isotonic", "curves"),
    ],
)
def test_curves_that_cannot_be_are_refused(method, curves):
    with pytest.raises(ValueError, match="calibration"):
        Calibration(method, curves).check(1)


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_curves_that_were_fitted_pass(method):
    Calibration.fit(method, F, POSITIVE, np.array([False, True])).check(1)
