"""Problems larger than a working set, where rows enter and leave over many rounds and float32 tables are
used.

A conic solver is too slow here. Instead: the learned kernel handed to LIBSVM gives the same machine, and the
certificate is recomputed from full float64 matrices.
"""

from functools import cache

import numpy as np
import pytest
from sklearn.svm import SVC

from raymkl import MKLClassifier, RayParams
from raymkl.kernels import RBF, Linear, Polynomial, rbf
from tests.reference import apart, dual_point, dual_value, gram, noisy_problem

pytestmark = pytest.mark.slow

N = 1400
X, Y = noisy_problem(N, seed=41)
X_TEST, _ = noisy_problem(200, seed=42)
BANK = [*rbf([0.01, 0.05, 0.3, 2.0]), Linear(), Polynomial(degree=2, coef0=1.0)]


@cache
def stacks():
    return gram(BANK, X), gram(BANK, X_TEST, X)


SETTINGS = [
    (1, "chunking", "cutting_plane"),
    (1.05, "chunking", "analytic"),
    (4 / 3, "chunking", "analytic"),
    (4 / 3, "wrapper", "analytic"),
    (4 / 3, "chunking", "cutting_plane"),
    (2, "chunking", "analytic"),
    (3, "chunking", "analytic"),
]


@cache
def fitted(p, solver, step):
    return MKLClassifier(kernels=BANK, p=p, solver=solver, theta_step=step, tol=1e-4, engine="local").fit(
        X, Y
    )


@pytest.mark.parametrize("p, solver, step", SETTINGS)
def test_the_certificate_holds_for_the_exact_kernels(p, solver, step):
    """Primal and dual from float64 matrices: float32 tables may cost a little of the gap, not more."""
    K, _ = stacks()
    model = fitted(p, solver, step)
    assert model.converged_ and model.duality_gap_ <= 1e-4
    a, theta = dual_point(model, N), model.kernel_weights_
    assert abs(a.sum()) < 1e-7 and (a * Y).min() >= 0 and (a * Y).max() <= 1
    lengths = theta * np.sqrt(np.maximum([a @ K[..., m] @ a for m in range(len(BANK))], 0))
    f = (K @ theta) @ a + model.intercept_[0]
    primal = 0.5 * np.sum(lengths**p) ** (2 / p) + np.maximum(0, 1 - Y * f).sum()
    dual = dual_value(a, Y, K, p)
    assert -1e-9 <= (primal - dual) / primal <= 1.5e-4
    assert model.primal_objective_ == pytest.approx(primal, rel=1e-4)
    assert model.dual_objective_ == pytest.approx(dual, rel=1e-4)


@pytest.mark.parametrize("p", [1.05, 4 / 3, 2])
def test_the_learned_kernel_in_libsvm_gives_the_same_machine(p):
    K, K_test = stacks()
    model = fitted(p, "chunking", "analytic")
    libsvm = SVC(kernel="precomputed", tol=1e-5).fit(K @ model.kernel_weights_, Y)
    assert (
        apart(model.decision_function(X_TEST), libsvm.decision_function(K_test @ model.kernel_weights_))
        < 0.03
    )


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_kernel_equals_libsvm_however_it_is_split(shards, dtype):
    params = RayParams(num_shards=shards)
    model = MKLClassifier(
        kernels=[RBF(gamma=0.3)], C=5.0, tol=1e-6, dtype=dtype, engine="local", ray_params=params
    ).fit(X, Y)
    assert len(model.history_) > 2
    libsvm = SVC(gamma=0.3, C=5.0, tol=1e-6).fit(X, Y)
    assert apart(model.decision_function(X_TEST), libsvm.decision_function(X_TEST)) < 5e-3


def test_matrices_with_working_sets_smaller_than_the_data(monkeypatch):
    """Blocks of ready-made matrices are asked of the shards; a small working set makes that happen often."""
    monkeypatch.setattr("raymkl.engine.plan.WORKING_SET", 64)
    n = 300
    K = gram(BANK, X[:n])
    params = RayParams(num_shards=3)
    small = MKLClassifier(kernels="precomputed", tol=1e-5, engine="local", ray_params=params).fit(K, Y[:n])
    assert len(small.history_) > 5
    monkeypatch.undo()
    whole = MKLClassifier(kernels="precomputed", tol=1e-5, engine="local").fit(K, Y[:n])
    assert small.dual_objective_ == pytest.approx(whole.dual_objective_, rel=2e-5)
    assert apart(small.decision_function(K), whole.decision_function(K)) < 2e-2


def test_several_classes_over_many_rounds():
    y = np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])
    model = MKLClassifier(kernels=BANK, tol=1e-3, engine="local").fit(X, y)
    assert np.all(model.duality_gap_ <= 1e-3)
    for h in range(3):
        alone = MKLClassifier(kernels=BANK, tol=1e-3, engine="local").fit(X, y == h)
        assert alone.dual_objective_ == pytest.approx(model.dual_objective_[h], rel=2e-3)
    assert model.score(X, y) > 0.8
