"""The classifier finds the optimum: against a conic solver, against LIBSVM, and against itself in other
arithmetic.
"""

from functools import cache

import numpy as np
import pytest
from sklearn.svm import SVC

from raymkl import MKLClassifier
from raymkl.kernels import RBF, Linear, Polynomial, rbf
from tests.reference import apart, decision_from, dual_optimum, dual_point, dual_value, gram, noisy_problem

# Three useful widths, a polynomial, a linear one, and a width so narrow that its matrix is the identity.
BANK = [*rbf([0.02, 0.1, 0.5]), Polynomial(degree=2, coef0=1.0), Linear(), RBF(gamma=50.0)]
X, Y = noisy_problem(70)
X_TEST, _ = noisy_problem(40, seed=1)
K, K_TEST = gram(BANK, X), gram(BANK, X_TEST, X)
C = 1.0
NORMS = [1, 1.01, 1.05, 4 / 3, 1.8, 2, 3, 10, np.inf]
SETTINGS = [
    (p, solver, step)
    for p in NORMS
    for solver in ("chunking", "wrapper")
    for step in ("auto", "analytic", "cutting_plane")
    if step != "cutting_plane" or p <= 2
]


@cache
def optimum(p):
    return dual_optimum(K, Y, C, p)


def tolerance(p, step):
    """Where the weights jump between kernels (p = 1) or grow without bound (p = inf), less is asked."""
    return 5e-3 if np.isinf(p) else 1e-3 if p == 1 and step == "analytic" else 1e-4


@cache
def fitted(p, solver, step):
    model = MKLClassifier(
        kernels=BANK, C=C, p=p, solver=solver, theta_step=step, tol=tolerance(p, step), engine="local"
    )
    return model.fit(X, Y)


@pytest.mark.parametrize("p, solver, step", SETTINGS)
def test_reaches_the_optimum_of_a_conic_solver(p, solver, step):
    model, tol, best = fitted(p, solver, step), tolerance(p, step), optimum(p)
    assert model.converged_
    assert -1e-9 <= model.duality_gap_ <= tol
    a = dual_point(model, len(X))
    alpha = a * Y
    assert alpha.min() >= 0
    assert alpha.max() <= C
    assert abs(a.sum()) < 1e-9
    value = dual_value(a, Y, K, p)
    # The conic solver stops at 1e-8; a feasible point above its optimum by more would be a mistake of ours.
    assert value <= best + 1e-6 * best
    assert value >= best - tol * best
    assert model.dual_objective_ == pytest.approx(value, rel=1e-7)
    assert best - 1e-6 * best <= model.primal_objective_ <= best * (1 + 2 * tol)


@pytest.mark.parametrize("p, solver, step", SETTINGS)
def test_weights_are_feasible(p, solver, step):
    theta = fitted(p, solver, step).kernel_weights_
    assert theta.shape == (len(BANK),)
    assert theta.min() >= 0
    if p < 2:
        assert np.sum(theta ** (p / (2 - p))) == pytest.approx(1, abs=1e-6)
    elif p == 2:
        np.testing.assert_allclose(theta, 1)
    else:
        # Beyond 2 the weights minimise over sum theta^(p/(2-p)) <= 1 with a negative exponent: none may
        # vanish.
        q = -1.0 if np.isinf(p) else p / (2 - p)
        assert theta.min() > 0
        assert np.sum(theta**q) <= 1 + 1e-6


@pytest.mark.parametrize("p, solver, step", SETTINGS)
def test_decision_values_follow_from_the_public_attributes(p, solver, step):
    model = fitted(p, solver, step)
    np.testing.assert_allclose(
        model.decision_function(X_TEST), decision_from(model, K_TEST), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(model.predict(X_TEST), np.where(decision_from(model, K_TEST) > 0, 1, -1))


@pytest.mark.parametrize("p, solver, step", [s for s in SETTINGS if s[1:] != ("chunking", "analytic")])
def test_solvers_and_weight_steps_agree(p, solver, step):
    """A gap of tol bounds ||w - w*||^2 by 2 tol primal, so decision values agree within a few times
    sqrt(tol).
    """
    tol = max(tolerance(p, step), tolerance(p, "analytic"))
    reference = fitted(p, "chunking", "analytic")
    assert apart(
        fitted(p, solver, step).decision_function(X_TEST), reference.decision_function(X_TEST)
    ) < 10 * np.sqrt(tol)


@pytest.mark.parametrize("p", [1, 4 / 3, 2, 3])
def test_training_loss_and_norm_give_the_primal(p):
    model = fitted(p, "chunking", "analytic")
    a = dual_point(model, len(X))
    lengths = model.kernel_weights_ * np.sqrt(np.maximum(np.einsum("i,ijm,j->m", a, K, a), 0))
    hinge = np.maximum(0, 1 - Y * model.decision_function(X)).sum()
    assert model.primal_objective_ == pytest.approx(0.5 * np.sum(lengths**p) ** (2 / p) + C * hinge, rel=1e-6)


@pytest.mark.parametrize("C", [0.01, 0.3, 2.0, 100.0])
@pytest.mark.parametrize("p", [1, 4 / 3, 2, 3])
def test_one_kernel_is_an_ordinary_support_vector_machine(C, p):
    """With M = 1 the norm over kernels does nothing."""
    ours = MKLClassifier(kernels=[RBF(gamma=0.1)], C=C, p=p, tol=1e-8, engine="local").fit(X, Y)
    libsvm = SVC(gamma=0.1, C=C, tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(ours.kernel_weights_, [1.0])
    np.testing.assert_allclose(ours.decision_function(X_TEST), libsvm.decision_function(X_TEST), atol=1e-4)


@pytest.mark.parametrize("p", [1, 1.05, 4 / 3, 2, 3])
def test_float32_tables_formulas_and_float64_agree(p):
    """Kernel values of float32 tables are off by 2e-6; models differ by what the tolerance leaves open."""
    tol = 1e-3 if p == 1 else 1e-4
    variants = [{"dtype": "float32"}, {"dtype": "float32", "exact": True}, {"dtype": "float64"}]
    models = [
        MKLClassifier(kernels=BANK, p=p, tol=tol, engine="local", **kind).fit(X, Y) for kind in variants
    ]
    for model in models:
        assert model.converged_
        value = dual_value(dual_point(model, len(X)), Y, K, p)
        assert optimum(p) * (1 - 2 * tol) <= value <= optimum(p) * (1 + 1e-6)
    for model in models[:2]:
        assert apart(model.decision_function(X_TEST), models[2].decision_function(X_TEST)) < (
            0.1 if p == 1 else 0.02
        )


@pytest.mark.parametrize("p", [4 / 3, 2, 3, 10])
def test_float64_tables_reach_what_formulas_reach(p, monkeypatch):
    """Tables good to 1e-10 allow a gap of 1e-7, certified against the formulas by the conic solver's
    optimum.
    """
    monkeypatch.setattr("raymkl.models.description.problem.FEW_VALUES", 0)
    tables, formulas = (
        MKLClassifier(kernels=BANK, p=p, tol=1e-7, dtype="float64", exact=e, engine="local").fit(X, Y)
        for e in (False, True)
    )
    assert tables.converged_ and formulas.converged_
    assert abs(tables.dual_objective_ / formulas.dual_objective_ - 1) < 2e-7
    assert apart(tables.decision_function(X_TEST), formulas.decision_function(X_TEST)) < 1e-3
    true = dual_value(dual_point(tables, len(X)), Y, K, p)
    assert abs(tables.dual_objective_ / true - 1) < 1e-8


@pytest.mark.parametrize(
    "n, more, formulas",
    [
        (60, {"dtype": "float64"}, True),
        (200, {"dtype": "float64"}, False),
        (200, {"dtype": "float64", "exact": True}, True),
        (200, {}, False),
        (60, {}, True),
        (60, {"dtype": "float32"}, False),
    ],
)
def test_formulas_where_values_are_few_or_somebody_asks_for_them(n, more, formulas):
    model = MKLClassifier(kernels=rbf([0.02, 0.1, 0.5]), **more)
    _, rows, kernels = model._read(np.random.default_rng(0).normal(size=(n, 3)), reset=True)
    assert model._describe(rows, kernels, [])[0].exact == formulas


@pytest.mark.parametrize("n", [2, 3, 5, 17])
@pytest.mark.parametrize("p", [1, 4 / 3, 3])
def test_tiny_problems(n, p):
    X, y = np.random.default_rng(n).normal(size=(n, 3)), np.where(np.arange(n) % 2, 1, -1)
    bank = [RBF(gamma=0.5), Linear()]
    model = MKLClassifier(kernels=bank, p=p, tol=1e-3, engine="local").fit(X, y)
    assert model.converged_
    assert model.dual_objective_ == pytest.approx(dual_optimum(gram(bank, X), y, 1.0, p), rel=2e-3)
