"""The sub-problem with a variable per row and class: optimality, a conic solver, and the answer of the
weights.
"""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.optim.joint_rows import move_rows, violation_within
from raymkl.optim.losses import JointHinge, Terms, joint_losses, joint_violations


def problem(q=40, K=4, scale=3.0, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(q, 4))
    Q = scale * np.exp(-0.2 * np.sum((rows[:, None] - rows[None]) ** 2, axis=-1))
    return Q, rng.integers(0, K, q), rng.uniform(0.1, 2.0, q)


def own_class(classes, K):
    return (classes[:, None] == np.arange(K)).astype(float)


def solve(Q, classes, upper, K, tolerance=1e-9, left=None, right=None):
    A, residual, none = np.zeros((len(Q), K)), own_class(classes, K), np.zeros((len(Q), K, 0))
    move_rows(
        Q,
        none if left is None else left,
        none if right is None else right,
        residual,
        A,
        classes,
        upper,
        tolerance,
        10**6,
    )
    return A, residual


@pytest.mark.parametrize("K", [2, 3, 10])
@pytest.mark.parametrize("scale", [0.01, 3.0, 300.0])
def test_against_a_conic_solver(K, scale):
    Q, classes, upper = problem(K=K, scale=scale)
    A, residual = solve(Q, classes, upper, K)
    own = own_class(classes, K)
    V, root = cp.Variable(A.shape), np.linalg.cholesky(Q + 1e-12 * np.eye(len(Q)))
    gain = cp.sum(cp.multiply(own, V)) - cp.sum_squares(root.T @ V) / 2
    best = cp.Problem(cp.Maximize(gain), [own * upper[:, None] >= V, cp.sum(V, axis=1) == 0]).solve(
        solver=cp.CLARABEL
    )
    assert np.sum(own * A) - 0.5 * np.einsum("ik,ij,jk", A, Q, A) == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(residual, own - Q @ A, atol=1e-9 * max(scale, 1.0))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(-2, 2))
def test_feasible_and_optimal(seed, K, logs):
    Q, classes, upper = problem(q=20, K=K, scale=10.0**logs, seed=seed)
    A, residual = solve(Q, classes, upper, K, 1e-8)
    own = own_class(classes, K)
    assert np.all(own * upper[:, None] >= A) and np.abs(A.sum(axis=1)).max() <= 1e-12
    assert violation_within(residual, A, classes, upper) <= 1e-7
    np.testing.assert_allclose(
        joint_violations(Q @ A, A, classes, upper).max(),
        violation_within(own - Q @ A, A, classes, upper),
        atol=1e-9,
    )


def test_the_answer_of_the_weights_is_part_of_the_problem():
    """With a second part of the Hessian the solution is that of the problem written out."""
    Q, classes, upper = problem(q=15, K=3, seed=3)
    rng = np.random.default_rng(5)
    right = rng.normal(size=(15, 3, 2))
    left = right @ np.array([[2.0, 0.3], [0.3, 0.5]])
    A, _ = solve(Q, classes, upper, 3, 1e-10, np.ascontiguousarray(left), right)
    V, own = cp.Variable((15, 3)), own_class(classes, 3)
    full = np.kron(Q, np.eye(3)) + left.reshape(45, 2) @ right.reshape(45, 2).T
    flat = cp.reshape(V, (45,), order="C")
    gain = cp.sum(cp.multiply(own, V)) - cp.quad_form(flat, cp.psd_wrap((full + full.T) / 2)) / 2
    best = cp.Problem(cp.Maximize(gain), [own * upper[:, None] >= V, cp.sum(V, axis=1) == 0]).solve(
        solver=cp.CLARABEL
    )
    assert np.sum(own * A) - 0.5 * A.ravel() @ full @ A.ravel() == pytest.approx(best, rel=1e-6)


def test_losses_and_terms_by_hand():
    F, y = np.array([[1.0, 0.5, -1.0], [0.0, 0.0, 0.0], [3.0, -1.0, 0.0]]), np.array([0, 2, 1])
    np.testing.assert_allclose(joint_losses(F, y), [0.5, 1.0, 5.0])
    A, c = np.array([[0.5, -0.5, 0.0], [1.0, -2.0, 1.0], [0.0, 0.0, 0.0]]), np.array([1.0, 2.0, 0.0])
    A[1] = [-1.0, -0.5, 1.5]
    terms = [Terms(JointHinge(k), y, c) for k in range(3)]
    assert sum(part.value(A[:, k]) for k, part in enumerate(terms)) == pytest.approx(0.5 + 1.5)
    # Row 0 may move class 0 up (residual 0) and class 2 down (1), so 0 - ... ; rows that are masked do not
    # count.
    residual = own_class(y, 3) - F
    for i in range(2):
        grow = [residual[i, k] for k in range(3) if A[i, k] < (c[i] if k == y[i] else 0.0)]
        assert joint_violations(F, A, y, c)[i] == pytest.approx(max(0.0, max(grow) - residual[i].min()))
    assert joint_violations(F, A, y, c)[2] == 0.0
