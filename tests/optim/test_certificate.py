"""The certificate: never negative, tight at the optimum, and its parts as defined."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.optim.certificate import certify, intercept_candidates, intercept_from_residuals
from raymkl.optim.losses import Hinge, Terms
from raymkl.optim.norms import LpNorm, weight_norm

ALL = [1.0, 1.05, 4 / 3, 1.8, 2.0, 3.0, 10.0, np.inf]


def random_kernels(rng, n_kernels, n_rows):
    factors = rng.normal(size=(n_kernels, n_rows, rng.integers(1, n_rows + 1)))
    return np.einsum("mij,mkj->mik", factors, factors) * rng.uniform(0.1, 3, (n_kernels, 1, 1))


def random_dual_point(rng, y, bounds):
    """a with y a in [0, bounds] and sum zero: random in the box, then the heavier class scaled down."""
    alpha = bounds * rng.uniform(0, 1, len(y)) * (rng.random(len(y)) < 0.8)
    positive, negative = alpha[y > 0].sum(), alpha[y < 0].sum()
    if min(positive, negative) == 0:
        return np.zeros(len(y))
    return y * alpha * np.where(y > 0, min(1, negative / positive), min(1, positive / negative))


def random_weights(rng, n_kernels, p):
    """Feasible weights, not related to any dual point: in the ball, or in the reversed set for p > 2."""
    theta = rng.uniform(0.01, 1, n_kernels)
    q = weight_norm(p)
    if np.isinf(q):
        return theta
    theta /= np.sum(theta**q) ** (1 / q)
    return theta * rng.uniform(0.2, 1) if p < 2 else theta / rng.uniform(0.2, 1)


def random_problem(seed, p):
    """Everything certify needs, and the parts it was made of."""
    rng = np.random.default_rng(seed)
    n, n_kernels = int(rng.integers(2, 9)), int(rng.integers(1, 5))
    y = np.where(np.arange(n) % 2, -1.0, 1.0)
    bounds = rng.uniform(0.05, 5, n) * (rng.random(n) < 0.9)  # some rows are masked
    kernels, a = random_kernels(rng, n_kernels, n), random_dual_point(rng, y, bounds)
    theta = random_weights(rng, n_kernels, p)
    s = np.array([a @ K @ a for K in kernels])
    f = np.einsum("m,mij,j->i", theta, kernels, a)
    intercepts = intercept_candidates(rng.normal(), rng.uniform(0, 3), (0.0,))
    losses = np.array([np.sum(bounds * np.maximum(0, 1 - y * (f + b))) for b in intercepts])
    return theta, s, Terms(Hinge(), y, bounds).value(a), intercepts, losses


@pytest.mark.parametrize("p", ALL)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_gap_is_never_negative(p, seed):
    theta, s, dual_value, intercepts, losses = random_problem(seed, p)
    certificate = certify(LpNorm(p), theta, s, dual_value, intercepts, losses)
    assert certificate.gap >= -1e-12
    assert certificate.primal >= certificate.dual - 1e-12 * abs(certificate.primal)


@pytest.mark.parametrize("p", ALL)
def test_parts_are_as_defined(p):
    for seed in range(20):
        theta, s, dual_value, intercepts, losses = random_problem(seed, p)
        got = certify(LpNorm(p), theta, s, dual_value, intercepts, losses)
        best = min(range(len(losses)), key=lambda i, losses=losses: losses[i])
        assert got.intercept == intercepts[best]
        # Of the SVM with kernel K_theta: primal 1/2 theta's + losses, dual dual_value - 1/2 theta's.
        assert got.svm_gap == pytest.approx(
            (0.5 * theta @ s + losses[best]) - (dual_value - 0.5 * theta @ s), abs=1e-9
        )
        # Of the weights: the dual at theta against the dual at the best weights for this dual point.
        assert got.weight_gap == pytest.approx(max(0.0, 0.5 * (LpNorm(p).dual(s) - theta @ s)), abs=1e-9)
        assert got.gap == pytest.approx((got.primal - got.dual) / max(abs(got.primal), 1e-300))
        if p <= 2:
            # ||w||_{2,p}^2 <= sum ||w_m||^2 / theta_m, so the two parts together are an upper bound of the
            # gap.
            assert got.primal - got.dual <= got.svm_gap + got.weight_gap + 1e-9


@pytest.mark.parametrize("p", ALL)
def test_best_weights_have_no_weight_gap_and_the_parts_add_up(p):
    _, s, dual_value, intercepts, losses = random_problem(3, p)
    got = certify(LpNorm(p), LpNorm(p).weights(s), s, dual_value, intercepts, losses)
    assert got.weight_gap == pytest.approx(0.0, abs=1e-9)
    assert got.primal - got.dual == pytest.approx(got.svm_gap, rel=1e-9)


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0])
def test_gap_closes_at_the_optimum_that_cvxpy_finds(p):
    rng = np.random.default_rng(4)
    n, n_kernels = 12, 3
    factors = rng.normal(size=(n_kernels, n, 4))
    y, bounds = np.where(np.arange(n) % 3, -1.0, 1.0), rng.uniform(0.2, 2, n)
    a, k = cp.Variable(n), LpNorm(p).k
    terms = cp.hstack([cp.sum_squares(A.T @ a) for A in factors])
    alpha = cp.multiply(y, a)
    problem = cp.Problem(
        cp.Maximize(cp.sum(alpha) - 0.5 * cp.norm(terms, k)), [alpha >= 0, alpha <= bounds, cp.sum(a) == 0]
    )
    optimum = problem.solve(solver=cp.CLARABEL)
    s = terms.value
    # For p = 1 the largest s_m are tied at the optimum, so s alone does not tell the weights.
    theta = _sparse_weights(factors, y, bounds) if p == 1 else LpNorm(p).weights(s)
    f = np.einsum("m,mij,mkj,k->i", theta, factors, factors, a.value)
    intercepts = y - f  # the loss is piecewise linear in b, and these are its kinks
    losses = np.array([np.sum(bounds * np.maximum(0, 1 - y * (f + b))) for b in intercepts])
    dual_value = Terms(Hinge(), y, bounds).value(y * np.clip(y * a.value, 0, bounds))
    got = certify(LpNorm(p), theta, s, dual_value, intercepts, losses)
    # The dual is second order in the error of the reference solution, the primal (so the gap) only first
    # order.
    assert got.dual == pytest.approx(optimum, rel=1e-6)
    assert got.primal == pytest.approx(optimum, rel=1e-4) and abs(got.gap) < 1e-4


def _sparse_weights(factors, y, bounds):
    """theta_m = ||w_m|| / sum of lengths at the optimum of the primal problem with the squared sum of
    lengths.
    """
    w, b = [cp.Variable(A.shape[1]) for A in factors], cp.Variable()
    f = sum(A @ wm for A, wm in zip(factors, w, strict=True)) + b
    penalty = 0.5 * cp.square(cp.sum(cp.hstack([cp.norm(wm) for wm in w])))
    cp.Problem(cp.Minimize(penalty + bounds @ cp.pos(1 - cp.multiply(y, f)))).solve(solver=cp.CLARABEL)
    lengths = np.array([np.linalg.norm(wm.value) for wm in w])
    return lengths / lengths.sum()


def test_negative_round_off_in_s_is_ignored():
    arguments = (1.0, np.array([0.0]), np.array([0.5]))
    got = certify(LpNorm(4 / 3), np.full(2, 0.5), np.array([2.0, -1e-17]), *arguments)
    assert got == certify(LpNorm(4 / 3), np.full(2, 0.5), np.array([2.0, 0.0]), *arguments)


def test_nothing_learned_and_nothing_lost_is_no_division_by_zero():
    got = certify(LpNorm(1.0), np.array([1.0]), np.zeros(1), 0.0, np.array([0.0]), np.array([0.0]))
    assert got.primal == got.dual == got.gap == 0.0


@pytest.mark.parametrize("center", [0.0, -1.7, 1e6 + 0.1])
@pytest.mark.parametrize("width", [0.0, 1e-9, 0.5, 10.0])
def test_intercept_candidates(center, width):
    got = intercept_candidates(center, width, (3.25, -0.125))
    assert {center, 3.25, -0.125} <= set(got.tolist())
    assert center - width in got and center + width in got
    assert np.all(np.diff(got) > 0)
    # Without extras: symmetric, and finest at the centre.
    offsets = intercept_candidates(0.0, width)
    assert np.array_equal(offsets, -offsets[::-1])
    assert width == 0 or np.abs(offsets[offsets != 0]).min() <= 1e-2 * width


def test_intercept_candidates_without_width_or_extras():
    assert np.array_equal(intercept_candidates(0.7, 0.0), [0.7])
    assert np.array_equal(intercept_candidates(0.7, -1.0), [0.7])
    assert np.array_equal(intercept_candidates(0.7, 0.0, (0.7,)), [0.7])


def masks(text):
    """ "b" both, "g" may grow, "s" may shrink, "-" neither."""
    return np.array([c in "bg" for c in text]), np.array([c in "bs" for c in text])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("bbgs", (1 * 1.0 + 3 * 2.0) / 4),  # free rows, weighted mean; the others do not count
        ("-b--", 2.0),
        ("ggss", (2.0 + -4.0) / 2),  # no free row: largest that may grow, smallest that may shrink
        ("g--s", (1.0 + 5.0) / 2),
        ("gggg", None),
        ("ssss", None),
        ("----", None),
        ("g---", None),
    ],
)
def test_intercept_from_residuals(rows, expected):
    residual, weight = np.array([1.0, 2.0, -4.0, 5.0]), np.array([1.0, 3.0, 0.5, 2.0])
    got = intercept_from_residuals(residual, *masks(rows), weight)
    assert got is None if expected is None else got == pytest.approx(expected)


def test_intercept_of_merged_rows_is_that_of_the_copies():
    free = np.ones(3, bool)
    copies = intercept_from_residuals(np.array([1.0, 2.0, 2.0]), free, free, np.ones(3))
    merged = intercept_from_residuals(np.array([1.0, 2.0]), free[:2], free[:2], np.array([1.0, 2.0]))
    assert copies == pytest.approx(merged)
