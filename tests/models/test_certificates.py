"""What a model reports is true: primal, dual and gap are those of the kernels as their formulas state them,
to a tenth of `tol`.

A small form of examples/benchmarks/certificates.py, with the same recomputation in float64 from public
arrays. Problems are small, so most ask for float32, which larger ones get by themselves.
"""

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from raymkl import MKLClassifier, MKLRegressor, RayParams, kernels
from raymkl.datasets import make_motif_sequences
from tests.reference import dual_optimum, dual_point, dual_value, gram, noisy_problem

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"
COLUMNS = 16
# A model that is stopped reports the truth as well, so there is no need to wait for the hardest ones.
MAX_ROUNDS = 40
BOTH_KINDS = pytest.mark.parametrize("p", [4 / 3, 3.0], ids=lambda p: f"p={p:.3g}")


@pytest.fixture
def recomputed(monkeypatch):
    """The module that recomputes certificates."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("recomputed")
    sys.modules.pop("recomputed", None)


@pytest.fixture
def holds(recomputed):
    """Fits a model and checks all it says: holds(model, X, y) -> the fitted model."""

    def check(model, X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(engine="local", max_iter=MAX_ROUNDS).fit(X, y)
        truth = recomputed.true_certificates(model, X, y)
        told = [
            np.ravel(values)
            for values in (model.duality_gap_, model.primal_objective_, model.dual_objective_)
        ]
        assert len(truth) == len(told[0])
        for true, gap, primal, dual in zip(truth, *told, strict=True):
            said = (
                f"reported {gap:.2e}, true {true.gap:.2e}, tol {model.tol:.0e}, converged {model.converged_}"
            )
            assert true.agrees_with(gap, model.tol, model.converged_), said
            slack = (0.1 * model.tol + 1e-7) * abs(true.primal)
            assert primal == pytest.approx(true.primal, rel=0, abs=slack)
            assert dual == pytest.approx(true.dual, rel=0, abs=slack)
            assert true.outside < 1e-12  # else the dual is no bound
        return model

    return check


def widths(columns=COLUMNS, count=41):
    return kernels.rbf(2.0 ** np.linspace(-6, 4, count) / columns)


def classifier(bank=None, **params):
    return MKLClassifier(kernels=widths() if bank is None else bank, **{"dtype": "float32", **params})


SETTINGS = [
    *((p, 1.0, 1e-3) for p in (1.0, 8 / 7, 4 / 3, 2.0, 3.0, 10.0, np.inf)),
    *((4 / 3, C, 1e-3) for C in (0.01, 10.0, 100.0)),
    *((4 / 3, 1.0, tol) for tol in (1e-4, 1e-5, 1e-6)),
    (4 / 3, 100.0, 1e-4),
    (8 / 7, 10.0, 1e-5),
    (2.0, 1.0, 1e-6),
    (5.0, 10.0, 1e-4),
    (10.0, 0.01, 1e-4),
]


@pytest.mark.parametrize(
    ("p", "C", "tol"), SETTINGS, ids=[f"p={p:.3g}-C={C:g}-tol={tol:.0e}" for p, C, tol in SETTINGS]
)
def test_norms_bounds_and_tolerances(holds, p, C, tol):
    model = holds(classifier(p=p, C=C, tol=tol), *noisy_problem(400, features=COLUMNS))
    # The truth alone is not enough: what formulas in float64 reach in a dozen rounds must be reached. (p = 1
    # takes more rounds.)
    assert model.converged_ or p in (1.0, np.inf) or tol < 1e-3


@pytest.mark.parametrize(("p", "C", "tol"), [(4 / 3, 100.0, 1e-4), (3.0, 1.0, 1e-3)])
@pytest.mark.parametrize("dtype", ["auto", "float64"])
def test_precisions(holds, dtype, p, C, tol):
    assert holds(classifier(p=p, C=C, tol=tol, dtype=dtype), *noisy_problem(300, features=COLUMNS)).converged_


def test_a_problem_that_gets_float32_by_itself(holds):
    """Above p = 2 more rows do than below."""
    X, y = noisy_problem(1200, features=COLUMNS)
    assert holds(classifier(p=3.0, dtype="auto"), X, y).converged_


POLYNOMIALS = [kernels.Polynomial(degree=degree, gamma=1 / COLUMNS, coef0=1.0) for degree in (1, 2, 3, 5)]
BANKS = {
    "Laplacian": [kernels.Laplacian(gamma=2.0**k / COLUMNS) for k in range(-8, 3)],
    "polynomial": POLYNOMIALS,
    "linear beside tiny multiples": [scale * kernels.Linear() for scale in (1.0, 1e-3, 1e-6)],
    "all kinds": [
        *widths(count=11),
        *POLYNOMIALS,
        kernels.Laplacian(gamma=1 / COLUMNS),
        1e-3 * kernels.Linear(),
    ],
}


@BOTH_KINDS
@pytest.mark.parametrize("name", BANKS)
def test_other_kernels(holds, name, p):
    holds(classifier(BANKS[name], p=p), *noisy_problem(300, features=COLUMNS))


@BOTH_KINDS
def test_histograms(holds, p):
    X, y = noisy_problem(400, features=COLUMNS)
    parts = np.exp(X)
    holds(
        classifier([kernels.Chi2(gamma=2.0**k) for k in range(-6, 5)], p=p),
        parts / parts.sum(axis=1, keepdims=True),
        y,
    )


@BOTH_KINDS
@pytest.mark.parametrize("normalize", [None, "spherical"])
def test_strings(holds, normalize, p):
    sequences, y = make_motif_sequences(300, length=60, noise=0.2, random_state=0)
    bank = [
        *(kernels.WeightedDegree(degree=degree) for degree in (1, 3, 5, 8, 12)),
        *(kernels.Spectrum(k=k) for k in (2, 3)),
    ]
    holds(classifier(bank, p=p, normalize=normalize), sequences, y)


@BOTH_KINDS
@pytest.mark.parametrize(
    ("normalize", "bank"), [("multiplicative", widths()), ("spherical", POLYNOMIALS), ("trace", POLYNOMIALS)]
)
def test_normalisations(holds, normalize, bank, p):
    """Their constants come from the formulas, too: a relative error of one is a relative error of the
    kernel.
    """
    holds(classifier(bank, p=p, normalize=normalize), *noisy_problem(400, features=COLUMNS))


@pytest.mark.parametrize("offset", [30.0, 300.0])
@pytest.mark.parametrize(("p", "C"), [(4 / 3, 10.0), (3.0, 1.0)])
def test_far_from_the_origin(holds, p, C, offset):
    X, y = noisy_problem(400, features=COLUMNS)
    holds(classifier(p=p, C=C), X + offset, y)


@BOTH_KINDS
@pytest.mark.parametrize("C", [1.0, 30.0])
def test_regression(holds, C, p):
    X, y = noisy_problem(400, features=COLUMNS)
    model = MKLRegressor(kernels=widths(), p=p, C=C, epsilon=0.05, dtype="float32")
    holds(
        model, X, 5.0 + X[:, 0] * X[:, 1] + 0.1 * y
    )  # away from zero: the intercept is part of the certificate


@BOTH_KINDS
@pytest.mark.parametrize("shared_weights", [False, True])
def test_several_classes(holds, shared_weights, p):
    X, _ = noisy_problem(300, features=COLUMNS)
    label = np.digitize(X[:, 0] * X[:, 1] + 0.5 * X[:, 2], [-0.4, 0.4])
    model = holds(classifier(p=p, shared_weights=shared_weights), X, label)
    assert len(model.dual_coef_) == 3


@pytest.mark.parametrize(("p", "C", "tol"), [(4 / 3, 100.0, 1e-4), (10.0, 1.0, 1e-3)])
def test_shards(holds, p, C, tol):
    holds(
        classifier(p=p, C=C, tol=tol, ray_params=RayParams(num_shards=3)),
        *noisy_problem(400, features=COLUMNS),
    )


# -- the recomputation itself ----------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0, 3.0, np.inf])
def test_the_recomputed_values_enclose_the_optimum(recomputed, p):
    X, y = noisy_problem(60)
    bank = [*kernels.rbf([0.05, 0.5]), kernels.Linear()]
    model = MKLClassifier(kernels=bank, p=p, engine="local", dtype="float64").fit(X, y)
    (true,) = recomputed.true_certificates(model, X, y)
    optimum = dual_optimum(gram(bank, X), y, 1.0, p)
    assert true.dual == pytest.approx(dual_value(dual_point(model, len(y)), y, gram(bank, X), p), rel=1e-10)
    assert true.dual <= optimum * (1 + 1e-6) and true.primal >= optimum * (1 - 1e-6)


def test_a_false_gap_is_noticed(recomputed):
    true = recomputed.TrueCertificate(primal=2.0, dual=1.998, outside=0.0)  # a gap of 1e-3
    assert true.agrees_with(1e-3, tol=1e-3, converged=True)
    assert not true.agrees_with(5e-4, tol=1e-3, converged=True)
    assert not true.agrees_with(1e-3, tol=5e-4, converged=True) and true.agrees_with(
        1e-3, tol=5e-4, converged=False
    )
