"""The default bank works on any table of numbers, and columns on different scales are noticed."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from raymkl import MKLClassifier
from raymkl.kernels import RBF, Chi2, HistogramIntersection, Linear
from raymkl.kernels.defaults import WIDTHS, default_bank, scales_apart, widths_around
from raymkl.kernels.pairs.statistics import L1Distance


def test_widths_follow_the_median_distance():
    X = np.random.default_rng(0).normal(size=(60, 3))
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    median = np.median(squares[squares > 0])
    np.testing.assert_allclose(widths_around(X), [1 / (width * median) for width in WIDTHS], rtol=1e-9)
    sums = np.abs(X[:, None] - X[None]).sum(axis=2)
    np.testing.assert_allclose(
        widths_around(X, L1Distance()),
        [1 / (width * np.median(sums[sums > 0])) for width in WIDTHS],
        rtol=1e-9,
    )


@given(st.floats(1e-3, 1e3))
def test_widths_scale_with_the_data(factor):
    X = np.random.default_rng(1).normal(size=(30, 2))
    np.testing.assert_allclose(np.array(widths_around(factor * X)) * factor**2, widths_around(X), rtol=1e-6)


@pytest.mark.parametrize(
    "X", [np.zeros((5, 2)), np.ones((1, 3)), sp.eye(6, format="csr")], ids=["equal rows", "one row", "sparse"]
)
def test_tables_without_distances(X):
    bank = default_bank(X)
    assert len(bank) == len(WIDTHS) + 1 and all(np.isfinite(kernel(X)).all() for kernel in bank)


@pytest.mark.parametrize("load, at_least", [(load_iris, 0.94), (load_wine, 0.9), (load_breast_cancer, 0.92)])
def test_a_classifier_without_arguments(load, at_least):
    """On raw columns, whatever their scales."""
    X, y = load(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert MKLClassifier().fit(X[::2], y[::2]).score(X[1::2], y[1::2]) >= at_least


# -- columns on different scales -------------------------------------------------------------------


def test_ratio_and_columns():
    X = np.random.default_rng(0).random((50, 4)) * [1.0, 1000.0, 0.5, 2.0]
    wide, narrow, ratio = scales_apart(X)
    ranges = np.ptp(X, axis=0)
    assert (wide, narrow) == (1, 2) and ratio == pytest.approx(ranges[1] / ranges[2])


@pytest.mark.parametrize(
    "X",
    [
        load_digits().data,  # pixels at the border hardly vary, and are on the scale of all others
        load_iris().data,
        np.random.default_rng(0).random((20, 3)),
        np.column_stack([np.arange(5.0), np.full(5, 1e9)]),  # constant columns have no scale
        np.arange(5.0)[:, None],
        sp.csr_matrix(np.diag([1.0, 1e6])),
        np.empty((0, 3)),
        np.array([["a", "b"]]),
    ],
    ids=["digits", "iris", "uniform", "constant", "one column", "sparse", "no rows", "text"],
)
def test_nothing_to_say(X):
    assert scales_apart(X) is None


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_tables_with_units(load):
    X = load().data
    assert scales_apart(X)[2] > 1000
    assert scales_apart((X - X.mean(axis=0)) / X.std(axis=0)) is None


WIDE = np.abs(np.random.default_rng(3).normal(size=(40, 3)) * [1.0, 1.0, 1e4])
LABELS = np.arange(40) % 2


def fit(X, kernels):
    return MKLClassifier(kernels=kernels, C=1e-3, tol=0.1, engine="local").fit(X, LABELS)


@pytest.mark.parametrize(
    "kernels", [[RBF(1e-8)], [Linear()], [Chi2(1.0), RBF(1e-8)]], ids=["distance", "product", "mixed"]
)
def test_a_warning_names_the_columns(kernels):
    with pytest.warns(
        UserWarning,
        match=r"columns of X differ by orders of magnitude \(column 2 is [\d,]+ times as wide as column "
        r"[01]\)",
    ):
        fit(WIDE, kernels)


def test_names_of_columns_and_views():
    import pandas as pd

    with pytest.warns(UserWarning, match=r"column 'c' is .* as wide as column '[ab]'"):
        fit(pd.DataFrame(WIDE, columns=list("abc")), [Linear()])
    with pytest.warns(UserWarning, match="columns of view 'v' differ"):
        fit({"v": WIDE, "u": WIDE[:, :2]}, [Linear(view="v"), Linear(view="u")])


@pytest.mark.parametrize(
    "X, kernels",
    [
        (WIDE, [Chi2(1e-4), HistogramIntersection()]),
        (WIDE[:, :2], [Linear()]),
        (WIDE / WIDE.std(axis=0), [Linear(), RBF(0.1)]),
    ],
)
def test_no_warning_without_a_reason(X, kernels):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(X, kernels).predict(WIDE[:, : X.shape[1]])
