"""A norm with a ball per group: every method against its definition, group by group, and against a conic
solver.
"""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from raymkl.optim.norms import GroupedNorm, LpNorm, weight_norm
from raymkl.optim.subproblem import weight_response
from raymkl.optim.weights.cutting_planes import CuttingPlanes
from tests.reference import dual_exponent

NORMS = [1.0, 1.2, 4 / 3, 2.0, 4.0, np.inf]
GROUPS = (0, 1, 0, 2, 1, 0)
TERMS = arrays(float, len(GROUPS), elements=st.floats(1e-3, 1e3))


def by_group(values):
    return [np.asarray(values)[np.array(GROUPS) == g] for g in range(3)]


@pytest.mark.parametrize("p", NORMS)
@settings(max_examples=40, deadline=None)
@given(s=TERMS)
def test_dual_and_primal_are_sums_over_the_groups(p, s):
    norm, star = GroupedNorm(p, GROUPS), dual_exponent(p)
    lengths = [np.sqrt(part) for part in by_group(s)]
    dual = sum((part.max() if np.isinf(star) else np.sum(part**star) ** (1 / star)) ** 2 for part in lengths)
    primal = sum((part.max() if np.isinf(p) else np.sum(part**p) ** (1 / p)) ** 2 for part in lengths)
    assert norm.dual(s) == pytest.approx(dual, rel=1e-9)
    assert norm.primal(np.sqrt(s)) == pytest.approx(primal, rel=1e-9)


@pytest.mark.parametrize("p", NORMS)
@settings(max_examples=30, deadline=None)
@given(s=TERMS)
def test_weights_attain_the_dual_and_lie_on_the_boundary_of_every_ball(p, s):
    norm = GroupedNorm(p, GROUPS)
    theta = norm.weights(s)
    assert theta @ s == pytest.approx(norm.dual(s), rel=1e-9)
    for weights in (theta, norm.start(len(GROUPS)), norm.project(theta * 7) if p <= 2 else theta):
        for part in by_group(weights):
            q = weight_norm(p)
            assert (part.max() if np.isinf(q) else np.sum(part**q)) == pytest.approx(1.0, rel=1e-8)


@pytest.mark.parametrize("p", [1.2, 4 / 3, 4.0])
@settings(max_examples=30, deadline=None)
@given(s=arrays(float, len(GROUPS), elements=st.floats(0.1, 10.0)))
def test_curvature_is_the_derivative_of_the_weights(p, s):
    norm = GroupedNorm(p, GROUPS)
    d, c, t = norm.curvature(s)
    expected = np.diag(d) - np.einsum("g,gi,gj->ij", c, t, t)
    step = 1e-6 * s
    numeric = np.stack(
        [(norm.weights(s + e) - norm.weights(s - e)) / (2 * step[k]) for k, e in enumerate(np.diag(step))],
        axis=1,
    )
    np.testing.assert_allclose(expected, numeric, atol=1e-4 * np.abs(expected).max())
    g = np.random.default_rng(0).normal(size=(5, len(GROUPS)))
    left = weight_response(norm, s, g, np.eye(len(GROUPS)))
    np.testing.assert_allclose(left @ g.T, 2 * g @ expected @ g.T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("p", NORMS)
def test_one_group_is_the_plain_norm(p):
    s = np.array([0.3, 2.0, 1.0])
    grouped, plain = GroupedNorm(p, (0, 0, 0)), LpNorm(p)
    assert grouped.k == plain.k
    assert grouped.dual(s) == plain.dual(s)
    np.testing.assert_array_equal(grouped.weights(s), plain.weights(s))
    np.testing.assert_array_equal(grouped.start(3), plain.start(3))
    if p < 2:
        np.testing.assert_array_equal(grouped.weights_from_lengths(s), plain.weights_from_lengths(s))
        np.testing.assert_allclose(grouped.largest(s), plain.largest(s))


@pytest.mark.parametrize("p", [1.0, 4 / 3, 2.0])
def test_a_group_without_quadratic_terms_keeps_feasible_weights(p):
    theta = GroupedNorm(p, GROUPS).weights(np.array([1.0, 0.0, 2.0, 0.0, 0.0, 0.0]))
    assert np.isfinite(theta).all()
    for part in by_group(theta):
        q = weight_norm(p)
        assert (part.max() if np.isinf(q) else np.sum(part**q)) == pytest.approx(1.0)


@pytest.mark.parametrize("p", [1.0, 4 / 3])
def test_cutting_planes_respect_every_ball(p):
    """The smallest largest cut, by a conic solver that is told the balls directly."""
    rng = np.random.default_rng(1)
    slopes, constants, q = rng.uniform(0.1, 2.0, (5, 6)), rng.uniform(3.0, 5.0, 5), weight_norm(p)
    planes = CuttingPlanes(GroupedNorm(p, GROUPS), 6)
    for constant, slope in zip(constants, slopes, strict=True):
        planes.add(constant, slope)
    found = planes.largest_cut(planes.step())
    theta = cp.Variable(6, nonneg=True)
    balls = [cp.pnorm(theta[np.flatnonzero(np.array(GROUPS) == g)], q) <= 1 for g in range(3)]
    best = cp.Problem(cp.Minimize(cp.max(constants - slopes @ theta)), balls).solve(solver=cp.CLARABEL)
    assert found == pytest.approx(best, rel=1e-3)


# -- two levels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", "a", "c", "b", "a"],
        (("x", 1), None, ("x", 1), 2.5, None, ("x", 1)),
        np.array([7, 3, 7, 1, 3, 7]),
    ],
    ids=["texts", "mixed", "array"],
)
def test_labels_may_be_anything(labels):
    norm, plain = GroupedNorm(1.2, labels, outer=1.5), GroupedNorm(1.2, GROUPS, outer=1.5)
    s = np.arange(1.0, 7.0)
    np.testing.assert_array_equal(norm.weights(s), plain.weights(s))
    assert [member.tolist() for member in norm.members] == [[0, 2, 5], [1, 4], [3]]


def test_whole_groups_are_selected():
    theta = GroupedNorm(2.0, GROUPS, outer=1.0).weights(np.array([1.0, 1.0, 1.0, 2.0, 1.0, 1.0]))
    np.testing.assert_array_equal(theta, [1.0, 0.0, 1.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize("p, outer", [(1.0, 1.5), (1.2, 1.0), (4 / 3, 1.2), (2.0, 1.0)])
@settings(max_examples=20, deadline=None)
@given(s=TERMS)
def test_weights_are_the_best_of_a_nested_ball(p, outer, s):
    """|| (||theta_g||_q)_g ||_Q <= 1, and theta's is largest there."""
    norm = GroupedNorm(p, GROUPS, outer=outer)

    def gauge(theta):
        inside = [
            part.max() if p == 2 else np.sum(part ** weight_norm(p)) ** (1 / weight_norm(p))
            for part in by_group(theta)
        ]
        return np.sum(np.array(inside) ** weight_norm(outer)) ** (1 / weight_norm(outer))

    theta, rng = norm.weights(s), np.random.default_rng(0)
    assert gauge(theta) == pytest.approx(1.0, rel=1e-9) and gauge(norm.start(6)) == pytest.approx(1.0)
    for _ in range(10):
        other = rng.uniform(0, 1, 6) ** 3
        assert other @ s / gauge(other) <= norm.dual(s) * (1 + 1e-9)
        np.testing.assert_allclose(norm.project(other), other / gauge(other), rtol=1e-9)
        lengths = other * np.sqrt(s)
        best = norm.weights_from_lengths(lengths)
        assert gauge(best) == pytest.approx(1.0, rel=1e-9)
        assert np.sum(lengths**2 / best) == pytest.approx(norm.primal(lengths), rel=1e-8)


def test_cutting_planes_are_there_for_balls_of_groups_alone():
    assert (
        GroupedNorm(1.2, GROUPS).has_cutting_planes
        and GroupedNorm(1.2, [0, 0, 0], outer=3.0).has_cutting_planes
    )
    assert (
        not GroupedNorm(1.2, GROUPS, outer=1.0).has_cutting_planes
        and not GroupedNorm(3.0, GROUPS).has_cutting_planes
    )


@pytest.mark.parametrize(
    "p, groups, outer, word",
    [
        (0.5, GROUPS, 1.0, "p must"),
        (np.nan, GROUPS, 1.0, "p must"),
        (True, GROUPS, 1.0, "p must"),
        (1.0, GROUPS, 0.5, "outer"),
        (1.0, GROUPS, "x", "outer"),
        (1.0, (), 1.0, "groups"),
        (1.0, "abc", 1.0, "groups"),
        (1.0, [[0], [1]], 1.0, "groups"),
        (1.0, 3, 1.0, "groups"),
    ],
)
def test_what_is_refused(p, groups, outer, word):
    with pytest.raises(ValueError, match=word):
        GroupedNorm(p, groups, outer=outer)


def test_another_number_of_kernels_is_refused():
    GroupedNorm(1.0, GROUPS).check(6)
    with pytest.raises(ValueError, match="groups"):
        GroupedNorm(1.0, GROUPS).check(5)
