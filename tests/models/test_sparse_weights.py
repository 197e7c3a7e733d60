"""p = 1 as it comes (`theta_step="auto"`): the optimum, weights that are exactly zero, and few rounds with
kernels much alike.
"""

import numpy as np
import pytest

from raymkl import ConvexLocalizedMKLClassifier, MKLClassifier, MKLRegressor
from raymkl.kernels import RBF, rbf
from tests.reference import dual_optimum, gram, noisy_problem

X, Y = noisy_problem(70)
ALIKE = rbf([2.0 ** (k / 4) / 6 for k in range(-12, 9)])


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
@pytest.mark.parametrize("C", [0.01, 0.3, 10.0, 100.0])
def test_the_optimum_of_a_conic_solver(C, tol):
    model = MKLClassifier(kernels=ALIKE, p=1, C=C, tol=tol, engine="local").fit(X, Y)
    best = dual_optimum(gram(ALIKE, X), Y, C, 1)
    assert model.converged_ and model.duality_gap_ <= tol
    assert model.dual_objective_ <= best * (1 + 1e-5) and model.primal_objective_ >= best * (1 - 1e-5)
    assert model.kernel_weights_.min() >= 0


@pytest.mark.parametrize("p", [1.0001, 1.001, 1.007])
def test_very_near_one_as_the_analytic_step(p):
    ours, slow = (
        MKLClassifier(kernels=ALIKE, p=p, C=3.0, theta_step=step, tol=tol, engine="local").fit(X, Y)
        for step, tol in (("auto", 1e-4), ("analytic", 1e-3))
    )
    assert ours.converged_ and ours.n_iter_ < slow.n_iter_
    assert slow.dual_objective_ * (
        1 - 1e-9
    ) <= ours.primal_objective_ and ours.dual_objective_ <= slow.primal_objective_ * (1 + 1e-9)
    assert np.sum(ours.kernel_weights_ ** (p / (2 - p))) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("normalize", [None, "multiplicative", "trace"])
def test_weights_are_exactly_zero_and_sum_to_one(C, normalize):
    model = MKLClassifier(kernels=ALIKE, p=1, C=C, normalize=normalize, engine="local").fit(X, Y)
    assert np.count_nonzero(model.kernel_weights_) <= 8
    assert model.kernel_weights_.sum() == pytest.approx(1.0, abs=1e-12)


def test_one_useful_kernel_among_noise():
    rng = np.random.default_rng(0)
    rows = np.hstack([X, rng.normal(size=(len(X), 20))])
    bank = [RBF(gamma=0.1, view=list(range(6)))] + [RBF(gamma=1.0, view=[6 + j]) for j in range(20)]
    model = MKLClassifier(kernels=bank, p=1, C=0.1, engine="local").fit(rows, Y)
    cuts = MKLClassifier(kernels=bank, p=1, C=0.1, theta_step="cutting_plane", tol=1e-4, engine="local").fit(
        rows, Y
    )
    assert model.converged_ and model.n_iter_ < 60
    assert model.primal_objective_ == pytest.approx(cuts.primal_objective_, rel=2e-3)


def test_few_rounds_with_kernels_much_alike():
    rows, labels = noisy_problem(400)
    sharp, dense = (
        MKLClassifier(kernels=ALIKE, p=p, C=10.0, engine="local").fit(rows, labels) for p in (1, 4 / 3)
    )
    assert sharp.n_iter_ <= 6 * dense.n_iter_


def test_ready_made_matrices():
    model = MKLClassifier(kernels="precomputed", p=1, C=10.0, engine="local").fit(gram(ALIKE, X), Y)
    same = MKLClassifier(kernels=ALIKE, p=1, C=10.0, engine="local").fit(X, Y)
    assert model.duality_gap_ <= 1e-3 and model.primal_objective_ == pytest.approx(
        same.primal_objective_, rel=2e-3
    )


@pytest.mark.parametrize("shared", [False, True])
def test_several_classes(shared):
    labels = np.where(X[:, 3] > 0.5, 2, Y)
    model = MKLClassifier(kernels=ALIKE, p=1, C=3.0, shared_weights=shared, engine="local").fit(X, labels)
    assert model.converged_
    np.testing.assert_allclose(np.atleast_2d(model.kernel_weights_).sum(axis=1), 1.0)


def test_regression():
    values = X[:, 0] * X[:, 1] + 0.1 * X[:, 2]
    sharp = MKLRegressor(kernels=ALIKE, p=1, C=5.0, engine="local").fit(X, values)
    cuts = MKLRegressor(kernels=ALIKE, p=1, C=5.0, theta_step="cutting_plane", engine="local").fit(X, values)
    assert sharp.converged_ and np.any(sharp.kernel_weights_ == 0)
    assert sharp.primal_objective_ == pytest.approx(cuts.primal_objective_, rel=2e-3)


def test_every_cluster_has_weights_of_its_own():
    model = ConvexLocalizedMKLClassifier(kernels=ALIKE, n_clusters=3, p=1, C=5.0, engine="local").fit(X, Y)
    assert model.converged_
    np.testing.assert_allclose(np.reshape(model.kernel_weights_, (-1, len(ALIKE))).sum(axis=1), 1.0)
    assert np.any(model.kernel_weights_ == 0)


def test_a_continued_fit_goes_on_from_weights_that_are_zero():
    model = MKLClassifier(kernels=ALIKE, p=1, C=0.1, warm_start=True, engine="local").fit(X, Y)
    again = model.set_params(C=30.0).fit(X, Y)
    fresh = MKLClassifier(kernels=ALIKE, p=1, C=30.0, engine="local").fit(X, Y)
    assert again.converged_ and again.primal_objective_ == pytest.approx(fresh.primal_objective_, rel=2e-3)
