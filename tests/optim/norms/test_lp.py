"""Norms over kernels: every formula against its definition, a numerical derivative or another solver."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.optim.norms import LpNorm, block_norm, power_norm, weight_norm

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*being approximated"
)  # cvxpy on exponents that are not small fractions

SPARSE = [1.0, 1.05, 4 / 3, 1.8]  # weights in a ball
DENSE = [3.0, 10.0, np.inf]  # weights in the reversed set
CURVED = [1.05, 4 / 3, 1.8, 3.0, 10.0, np.inf]
ALL = [*SPARSE, 2.0, *DENSE]

terms = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8).map(np.array)


def naive_norm(values, k):
    return max(values) if np.isinf(k) else sum(v**k for v in values) ** (1 / k)


def random_feasible(rng, n, p):
    """theta in the ball (p < 2), or in the reversed set sum theta^q <= 1 with q < 0 (p > 2); often on the
    boundary.
    """
    theta = rng.uniform(1e-3, 1, n) ** rng.choice([0.3, 1.0, 4.0])
    theta /= naive_norm(theta, weight_norm(p))
    stretch = rng.choice([1.0, rng.uniform(0.5, 1.0)])
    return theta * stretch if p < 2 else theta / stretch


def gradient(function, x, step=1e-6):
    """Central differences; rows are the outputs."""
    columns = [
        (function(x + step * x[i] * e) - function(x - step * x[i] * e)) / (2 * step * x[i])
        for i, e in enumerate(np.eye(len(x)))
    ]
    return np.array(columns).T


@given(st.floats(1.0, 1e6))
def test_block_norm_and_weight_norm_are_inverse(q):
    assert weight_norm(block_norm(q)) == pytest.approx(q, rel=1e-9)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (4 / 3, 2), (1.5, 3), (2, np.inf), (3, -3), (np.inf, -1)])
def test_known_pairs_of_norms(p, q):
    assert weight_norm(p) == pytest.approx(q)
    if q >= 1:
        assert block_norm(q) == pytest.approx(p)


@pytest.mark.parametrize("q", [0.99, 0.0, -1.0, np.nan])
def test_weight_norms_below_one_are_refused(q):
    with pytest.raises(ValueError, match="must be >= 1"):
        block_norm(q)


@pytest.mark.parametrize("k", [0.5, 0.75, 1.0, 2.0, 10.5, np.inf])
def test_power_norm_is_the_naive_one(k):
    values = np.array([0.3, 2.0, 0.0, 1.1])
    assert power_norm(values, k) == pytest.approx(naive_norm(values, k), rel=1e-12)


@pytest.mark.parametrize("p", ALL)
@given(s=terms)
@settings(max_examples=30, deadline=None)
def test_dual_is_weights_times_s_and_weights_are_feasible(p, s):
    norm = LpNorm(p)
    theta = norm.weights(s)
    assert norm.dual(s) == pytest.approx(theta @ s, rel=1e-10)
    assert norm.dual(s) == pytest.approx(naive_norm(s, norm.k), rel=1e-10)
    if p == 2:
        assert np.array_equal(theta, np.ones(len(s)))
    else:
        assert np.all(theta >= 0) and np.sum(theta ** weight_norm(p)) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("p", SPARSE + DENSE)
def test_no_feasible_weights_are_better(p):
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 12):
        s = rng.uniform(0.01, 5, n)
        best = LpNorm(p).dual(s)
        others = np.array([random_feasible(rng, n, p) @ s for _ in range(300)])
        assert np.all(others <= best * (1 + 1e-9)) if p < 2 else np.all(others >= best * (1 - 1e-9))


@pytest.mark.parametrize("p", [1.05, 4 / 3, 1.8])
def test_weights_are_the_maximiser_that_cvxpy_finds(p):
    s = np.random.default_rng(1).uniform(0.1, 3, 6)
    theta = cp.Variable(6, nonneg=True)
    value = cp.Problem(cp.Maximize(s @ theta), [cp.pnorm(theta, weight_norm(p)) <= 1]).solve(
        solver=cp.CLARABEL
    )
    assert LpNorm(p).dual(s) == pytest.approx(value, rel=1e-6)
    assert np.allclose(LpNorm(p).weights(s), theta.value, atol=1e-3)


@pytest.mark.parametrize("p", DENSE)
def test_weights_are_the_minimiser_that_cvxpy_finds(p):
    s = np.random.default_rng(2).uniform(0.1, 3, 6)
    theta = cp.Variable(6, pos=True)
    value = cp.Problem(cp.Minimize(s @ theta), [cp.sum(cp.power(theta, weight_norm(p))) <= 1]).solve(
        solver=cp.CLARABEL
    )
    assert LpNorm(p).dual(s) == pytest.approx(value, rel=1e-5)
    assert np.allclose(LpNorm(p).weights(s), theta.value, rtol=1e-2)


@pytest.mark.parametrize("p", ALL)
def test_weights_are_the_gradient_of_dual(p):
    rng = np.random.default_rng(3)
    for n in (1, 3, 9):
        s = rng.uniform(0.2, 4, n)
        assert np.allclose(LpNorm(p).weights(s), gradient(LpNorm(p).dual, s), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("p", CURVED)
def test_curvature_is_the_jacobian_of_weights(p):
    rng = np.random.default_rng(4)
    for n in (1, 2, 7):
        s = rng.uniform(0.2, 4, n)
        d, c, t = LpNorm(p).curvature(s)
        jacobian = gradient(LpNorm(p).weights, s)
        assert np.allclose(np.diag(d) - c * np.outer(t, t), jacobian, rtol=1e-5, atol=1e-6 * np.abs(d).max())


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_weights_that_do_not_follow_s_have_no_curvature(p):
    assert LpNorm(p).curvature(np.ones(3)) is None


@pytest.mark.parametrize("p", ALL)
@given(s=terms)
@settings(max_examples=30, deadline=None)
def test_primal_at_the_best_weights_is_dual(p, s):
    norm = LpNorm(p)
    assert norm.primal(norm.weights(s) * np.sqrt(s)) == pytest.approx(norm.dual(s), rel=1e-9)


@pytest.mark.parametrize("p", SPARSE)
@given(lengths=terms, seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_weights_from_lengths_minimise_the_weighted_sum(p, lengths, seed):
    norm, rng = LpNorm(p), np.random.default_rng(seed)
    theta = norm.weights_from_lengths(lengths)
    assert naive_norm(theta, weight_norm(p)) == pytest.approx(1.0, rel=1e-9)
    best = np.sum(lengths**2 / theta)
    assert best == pytest.approx(norm.primal(lengths), rel=1e-9)
    assert all(
        np.sum(lengths**2 / random_feasible(rng, len(lengths), p)) >= best * (1 - 1e-9) for _ in range(10)
    )


@pytest.mark.parametrize("p", [1.05, 4 / 3, 1.8])
def test_both_roads_to_the_weights_meet_at_the_optimum(p):
    norm, s = LpNorm(p), np.array([0.5, 2.0, 1.0])
    theta = norm.weights(s)
    assert np.allclose(norm.weights_from_lengths(theta * np.sqrt(s)), theta, rtol=1e-12)


@pytest.mark.parametrize("p", [*SPARSE, 2.0])
def test_project_ends_on_the_boundary_in_the_same_direction(p):
    theta = np.array([0.2, -0.3, 3.0, 0.0, 1.0])
    projected = LpNorm(p).project(theta)
    assert naive_norm(projected, weight_norm(p)) == pytest.approx(1.0)
    assert projected[1] == projected[3] == 0
    assert np.allclose(projected[[0, 4]] / projected[2], theta[[0, 4]] / theta[2])
    assert np.allclose(LpNorm(p).project(projected), projected)


@pytest.mark.parametrize("p", ALL)
def test_start_is_uniform_and_on_the_boundary(p):
    for n in (1, 2, 50):
        theta = LpNorm(p).start(n)
        assert theta.shape == (n,) and np.all(theta == theta[0])
        assert p == 2 or np.sum(theta ** weight_norm(p)) == pytest.approx(1.0)


def test_sparse_norm_shares_between_equal_kernels():
    assert np.array_equal(LpNorm(1.0).weights(np.array([1.0, 3.0, 3.0])), [0.0, 0.5, 0.5])


@pytest.mark.parametrize("p", ALL)
def test_nothing_selected_yet_gives_the_start(p):
    for s in (np.zeros(4), np.full(4, -1e-18)):
        assert np.array_equal(LpNorm(p).weights(s), LpNorm(p).start(4))
        assert LpNorm(p).dual(s) == 0.0 and LpNorm(p).primal(np.zeros(4)) == 0.0
    if p < 2:
        assert np.array_equal(LpNorm(p).weights_from_lengths(np.zeros(4)), LpNorm(p).start(4))
    if p <= 2:
        assert np.array_equal(LpNorm(p).project(np.array([0.0, -1.0, 0.0, 0.0])), LpNorm(p).start(4))


@pytest.mark.parametrize("p", SPARSE)
def test_a_kernel_without_length_gets_no_weight(p):
    assert np.all(LpNorm(p).weights(np.array([1.0, 0.0, -1e-15]))[1:] == 0)
    assert np.all(LpNorm(p).weights_from_lengths(np.array([1.0, 0.0, -1e-15]))[1:] == 0)


@pytest.mark.parametrize("p", ALL)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_weights_do_not_depend_on_the_scale(p, scale):
    norm, s = LpNorm(p), np.array([0.5, 2.0, 1.0])
    assert np.allclose(norm.weights(s * scale), norm.weights(s), rtol=1e-9)
    assert norm.dual(s * scale) == pytest.approx(norm.dual(s) * scale, rel=1e-9)
    assert norm.primal(np.sqrt(s * scale)) == pytest.approx(norm.primal(np.sqrt(s)) * scale, rel=1e-9)
    if p < 2:
        assert np.allclose(norm.weights_from_lengths(s * scale), norm.weights_from_lengths(s), rtol=1e-9)
    if p <= 2:
        assert np.allclose(norm.project(s * scale), norm.project(s), rtol=1e-9)


@pytest.mark.parametrize("p", ALL)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_primal_of_extreme_lengths_is_a_number(p, scale):
    assert LpNorm(p).primal(np.array([1.0, 2.0]) * scale) == (0.0 if scale < 1 else np.inf)


@pytest.mark.parametrize("p", CURVED)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_curvature_scales_with_one_over_s(p, scale):
    s = np.array([0.5, 2.0, 1.0])
    (d, c, t), (d1, c1, t1) = LpNorm(p).curvature(s * scale), LpNorm(p).curvature(s)
    assert np.allclose(d * scale, d1) and c * scale == pytest.approx(c1) and np.allclose(t, t1)


@pytest.mark.parametrize("p", ALL)
@pytest.mark.parametrize(
    "s", [[1.0, 0.0], [0.0, 0.0], [0.0], [1e200, 1e-200], [1e200, 0.0], [1e-200, 0.0]], ids=str
)
def test_zeros_and_mixed_scales_stay_numbers(p, s):
    norm, s = LpNorm(p), np.array(s)
    theta = norm.weights(s)
    assert np.isfinite(theta).all() and np.all(theta >= 0)
    assert theta @ s == pytest.approx(norm.dual(s), rel=1e-9)


@pytest.mark.parametrize("p", CURVED)
@pytest.mark.parametrize(
    "s", [[1.0, 0.0], [0.0, 0.0], [0.0], [1e200, 1e-200], [1e200, 0.0], [1e-200, 0.0]], ids=str
)
def test_curvature_of_zeros_and_mixed_scales_stays_a_number(p, s):
    d, c, t = LpNorm(p).curvature(np.array(s))
    assert not np.isnan(d).any() and not np.isnan(c) and not np.isnan(t).any()
