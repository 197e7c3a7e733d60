"""What every norm promises: both sides against a conic solver, gradient and Hessian against differences,
homogeneity, pickles.
"""

import copy
import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raymkl.optim.norms import ElasticNetNorm, GroupedNorm, LpNorm, QuadraticNorm
from raymkl.optim.subproblem import weight_response
from tests.reference import dual_exponent

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*being approximated|Solution may be inaccurate"
)  # cvxpy on exponents that are not small fractions

M = 5
GROUPS = ("a", "b", "a", 3, "b")
RNG = np.random.default_rng(7)
ROOT = RNG.normal(size=(M, M + 2))
ALIKE = np.exp(-0.4 * np.abs(np.subtract.outer(np.arange(M), np.arange(M))))
MATRICES = {
    "diagonal": np.diag([1.0, 2.0, 0.5, 4.0, 1.0]),
    "positive": ALIKE,
    "inverse": np.linalg.inv(ALIKE),
    "chain": 2.5 * np.eye(M) - np.eye(M, k=1) - np.eye(M, k=-1),
    "any signs": ROOT @ ROOT.T / M + 0.2 * np.eye(M),
}
NORMS = {
    **{f"p={p:.3g}": LpNorm(p) for p in (1.0, 4 / 3, 2.0, 3.0, np.inf)},
    **{
        f"groups {p:.3g}, {q:.3g}": GroupedNorm(p, GROUPS, outer=q)
        for p in (1.0, 1.2, 2.0, 3.0, np.inf)
        for q in (1.0, 4 / 3, 2.0, 3.0, np.inf)
    },
    **{f"E {name}": QuadraticNorm(E) for name, E in MATRICES.items()},
    **{
        f"elastic {p:.3g}, {mix}": ElasticNetNorm(p, mix)
        for p in (1.0, 1.2, 4 / 3, 2.0, 3.0, np.inf)
        for mix in (0.05, 0.5, 0.95)
    },
}
SMOOTH = {
    name: norm for name, norm in NORMS.items() if not norm.fixed and max(norm.exponents, default=1.0) < np.inf
}
every = pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
smooth = pytest.mark.parametrize("norm", SMOOTH.values(), ids=SMOOTH)
TERMS = arrays(float, M, elements=st.floats(0.01, 100.0))
S = np.array([0.7, 2.0, 0.3, 1.1, 0.05])


def size(x, p):
    return cp.max(x) if np.isinf(p) else cp.sum(x) if p == 1 else cp.pnorm(x, p)


def size_of(values, p):
    return values.max() if np.isinf(p) else np.sum(values**p) ** (1 / p)


def primal_by_definition(norm, lengths):
    """N of numbers."""
    if isinstance(norm, LpNorm):
        return size_of(lengths, norm.p) ** 2
    if isinstance(norm, GroupedNorm):
        parts = [lengths[[label == g for label in norm.groups]] for g in dict.fromkeys(norm.groups)]
        return size_of(np.array([size_of(part, norm.p) for part in parts]), norm.outer) ** 2
    if isinstance(norm, ElasticNetNorm):
        return norm.mix * size_of(lengths, norm.p) ** 2 + (1 - norm.mix) * lengths @ lengths
    t = cp.Variable(len(lengths))
    return cp.Problem(
        cp.Minimize(cp.sum_squares(np.linalg.inv(np.linalg.cholesky(norm.E)) @ t)), [t >= lengths]
    ).solve(solver=cp.CLARABEL)


def dual_by_definition(norm, s):
    """N* as the largest 2 l'v - N(l), or for QuadraticNorm as the smallest z'Ez over z >= v."""
    v, lengths = np.sqrt(s), cp.Variable(len(s), nonneg=True)
    if isinstance(norm, QuadraticNorm):
        z = cp.Variable(len(s))
        return cp.Problem(cp.Minimize(cp.sum_squares(np.linalg.cholesky(norm.E).T @ z)), [z >= v]).solve(
            solver=cp.CLARABEL
        )
    if isinstance(norm, ElasticNetNorm):
        penalty = norm.mix * cp.square(size(lengths, norm.p)) + (1 - norm.mix) * cp.sum_squares(lengths)
    elif isinstance(norm, LpNorm):
        penalty = cp.square(size(lengths, norm.p))
    else:
        parts = [
            lengths[np.flatnonzero([label == g for label in norm.groups])] for g in dict.fromkeys(norm.groups)
        ]
        penalty = cp.square(size(cp.hstack([size(part, norm.p) for part in parts]), norm.outer))
    return cp.Problem(cp.Maximize(2 * v @ lengths - penalty)).solve(solver=cp.CLARABEL)


def jacobian(function, s, step=1e-6):
    columns = [
        (function(s + step * s[m] * e) - function(s - step * s[m] * e)) / (2 * step * s[m])
        for m, e in enumerate(np.eye(len(s)))
    ]
    return np.array(columns).T


def as_matrix(parts):
    """The matrix of what `curvature` returns."""
    if isinstance(parts, np.ndarray):
        return parts
    d, c, t = parts
    t = np.atleast_2d(t)
    return np.diag(d) - (t.T * c) @ t


# -- both sides ------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("seed", range(2))
def test_both_sides_are_those_of_their_definitions(norm, seed):
    s = np.random.default_rng(seed).uniform(0.1, 3.0, M)
    assert norm.dual(s) == pytest.approx(dual_by_definition(norm, s), rel=2e-5)
    assert norm.primal(np.sqrt(s)) == pytest.approx(primal_by_definition(norm, np.sqrt(s)), rel=2e-6)


@every
@given(s=TERMS)
@settings(max_examples=25, deadline=None)
def test_lengths_and_quadratic_terms_of_one_point_belong_together(norm, s):
    """N(l) / 2 + N*(s) / 2 = l'v at l = theta v, each of them equal to theta's."""
    theta = norm.weights(s)
    assert np.all(theta >= 0) and np.all(np.isfinite(theta))
    assert theta @ s == pytest.approx(norm.dual(s), rel=1e-10)
    assert norm.primal(theta * np.sqrt(s)) == pytest.approx(norm.dual(s), rel=1e-9)
    assert norm.weight_gap(theta @ s, norm.primal(theta * np.sqrt(s)), norm.dual(s)) <= 1e-9 * norm.dual(s)


@every
@given(s=TERMS, lengths=TERMS)
@settings(max_examples=25, deadline=None)
def test_no_lengths_are_better(norm, s, lengths):
    assert 2 * lengths @ np.sqrt(s) - norm.primal(lengths) <= norm.dual(s) * (1 + 1e-9)


@every
@pytest.mark.parametrize("scale", [1e-6, 1e8])
@given(s=TERMS)
@settings(max_examples=10, deadline=None)
def test_both_sides_grow_with_the_square_of_the_lengths(norm, s, scale):
    assert norm.dual(s * scale) == pytest.approx(norm.dual(s) * scale, rel=1e-10)
    assert norm.primal(np.sqrt(s * scale)) == pytest.approx(norm.primal(np.sqrt(s)) * scale, rel=1e-10)
    np.testing.assert_allclose(
        norm.weights(s * scale), norm.weights(s), rtol=1e-7, atol=1e-9 * norm.weights(s).max()
    )


@every
def test_nothing_selected_yet_gives_the_start(norm):
    np.testing.assert_array_equal(norm.weights(np.zeros(M)), norm.start(M))
    assert norm.dual(np.zeros(M)) == 0.0 and norm.primal(np.zeros(M)) == 0.0
    assert norm.start(M).shape == (M,) and norm.start(M).max() > 0


# -- derivatives -----------------------------------------------------------------------------------


@smooth
def test_weights_are_the_gradient_of_the_dual(norm):
    np.testing.assert_allclose(norm.weights(S), jacobian(norm.dual, S), rtol=1e-5, atol=1e-7)


@smooth
def test_curvature_is_the_derivative_of_the_weights(norm):
    found, expected = as_matrix(norm.curvature(S)), jacobian(norm.weights, S)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6 * np.abs(expected).max() + 1e-7)
    g, coefficients = RNG.normal(size=(4, 3)), RNG.uniform(0.0, 1.0, (M, 3))
    left = weight_response(norm, S, g, coefficients)
    part = 2 * g @ coefficients.T @ found @ coefficients @ g.T
    np.testing.assert_allclose(left @ g.T, part, rtol=1e-8, atol=1e-9 * np.abs(part).max() + 1e-12)


@every
def test_fixed_weights_do_not_follow(norm):
    assert norm.fixed == all(
        np.allclose(norm.weights(RNG.uniform(0.1, 5.0, M)), norm.start(M)) for _ in range(3)
    )
    assert not norm.fixed or norm.curvature(S) is None


# -- what the rules ask ----------------------------------------------------------------------------


@every
def test_weights_are_bounded_where_it_says_so(norm):
    largest = max(norm.weights(np.where(np.arange(M) == m, 1e-14, S)).max() for m in range(M))
    groups = [np.where(np.isin(np.arange(M), member), 1e-14, S) for member in ([1, 4], [0, 2], [3])]
    largest = max([largest, *(norm.weights(s).max() for s in groups)])
    assert largest < 40 if norm.bounded else largest > 40


@every
@pytest.mark.parametrize("tol", [1e-2, 1e-4])
def test_the_floor_costs_less_than_half_the_tolerance(norm, tol):
    s, used = np.array([1.0, 1e-30, 0.5, 0.0, 2.0]), np.array([True, True, True, True, False])
    floor = np.where(used, norm.floor(s, used, tol), 0.0)
    assert norm.dual(s + floor) <= norm.dual(s) * np.exp(0.5 * tol)
    assert norm.bounded == (not np.any(floor > 0))
    assert np.isfinite(norm.weights(s + floor)).all()


@every
def test_the_optimum_is_where_steps_lead_nowhere(norm):
    if max(norm.exponents, default=1.0) < np.inf:
        theta = norm.weights(S)
        kept = theta > 1e-9  # a length of zero says nothing of its weight where it comes from lengths
        np.testing.assert_allclose(norm.towards(theta, S)[kept], theta[kept], rtol=1e-8)


@every
def test_weights_in_a_ball_come_back_from_any_scale(norm):
    theta = norm.weights(S)
    if norm.has_ball:
        np.testing.assert_allclose(norm.project(7.0 * theta), theta, rtol=1e-9)
        assert norm.project(RNG.uniform(0.1, 1.0, M)) @ S <= norm.dual(S) * (1 + 1e-9)
    else:
        np.testing.assert_allclose(norm.project(theta), theta, rtol=1e-12)


@every
def test_copies_are_equal_and_work(norm):
    norm.weights(S)  # whatever it remembers from now on
    for other in (pickle.loads(pickle.dumps(norm)), copy.deepcopy(norm)):
        assert other == norm and hash(other) == hash(norm) and repr(other) == repr(norm)
        np.testing.assert_allclose(other.weights(S), norm.weights(S), rtol=1e-12)
    assert len({norm, pickle.loads(pickle.dumps(norm))}) == 1


def test_different_norms_are_different():
    assert len(set(NORMS.values())) == len(NORMS)
    assert len({repr(norm) for norm in NORMS.values()}) == len(NORMS)


# -- norms that are others -------------------------------------------------------------------------

ONE_LEVEL = {
    "one group": lambda p: GroupedNorm(p, [0] * M, outer=3.0),
    "single kernels": lambda p: GroupedNorm(3.0, range(M), outer=p),
    "twice the same": lambda p: GroupedNorm(p, GROUPS, outer=p),
}


@pytest.mark.parametrize("p", [1.0, 1.2, 2.0, 3.0])
@pytest.mark.parametrize("made", ONE_LEVEL.values(), ids=ONE_LEVEL)
@given(s=TERMS)
@settings(max_examples=15, deadline=None)
def test_groups_that_say_nothing_are_a_block_norm(p, made, s):
    one, other = made(p), LpNorm(p)
    assert one.dual(s) == pytest.approx(other.dual(s), rel=1e-12) and one.primal(s) == pytest.approx(
        other.primal(s), rel=1e-12
    )
    np.testing.assert_allclose(one.weights(s), other.weights(s), rtol=1e-10, atol=1e-14)
    assert (one.fixed, one.bounded, one.has_ball, one.selects is None) == (
        other.fixed,
        other.bounded,
        other.has_ball,
        other.selects is None,
    )
    assert max(one.exponents) == max(other.k, 1.0)


@given(s=TERMS)
@settings(max_examples=15, deadline=None)
def test_a_diagonal_matrix_scales_the_kernels_of_a_plain_sum(s):
    E = MATRICES["diagonal"]
    norm = QuadraticNorm(E)
    assert norm.fixed and norm.bounded
    np.testing.assert_allclose(norm.weights(s), np.diag(E), rtol=1e-12)
    assert norm.dual(s) == pytest.approx(np.diag(E) @ s, rel=1e-12)
    assert norm.primal(np.sqrt(s)) == pytest.approx((s / np.diag(E)).sum(), rel=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.2, 3.0, np.inf])
def test_an_elastic_net_goes_from_the_plain_sum_to_the_block_norm(p):
    assert ElasticNetNorm(p, 1e-9).dual(S) == pytest.approx(LpNorm(2.0).dual(S), rel=1e-7)
    star = dual_exponent(p)
    size = np.sqrt(S).max() if np.isinf(star) else np.sum(np.sqrt(S) ** star) ** (1 / star)
    assert ElasticNetNorm(p, 1 - 1e-9).dual(S) == pytest.approx(size**2, rel=1e-4)
