"""Rules for the weights of norms other than one ball."""

import numpy as np
import pytest

from raymkl.optim.norms import ElasticNetNorm, GroupedNorm, QuadraticNorm
from raymkl.optim.weights import (
    FixedPoint,
    Follow,
    FollowMultipliers,
    HoldAnalytic,
    HoldCuts,
    rule_of,
)
from raymkl.optim.weights.stride import stride_of
from tests.optim.weights.points import ALL, TOL, M, seen

CHAIN = 2.5 * np.eye(M) - np.eye(M, k=1) - np.eye(M, k=-1)
SIGNS = np.random.default_rng(0).normal(size=(M, M + 1))
LABELS = (0, 0, 1, 1, 2)


@pytest.mark.parametrize(
    "norm, chunking, analytic, wrapper",
    [
        (GroupedNorm(1.2, LABELS, outer=3.0), Follow, Follow, HoldAnalytic),
        (GroupedNorm(2.0, LABELS, outer=1.0), FollowMultipliers, FixedPoint, HoldAnalytic),
        (GroupedNorm(1.0, LABELS, outer=3.0), FollowMultipliers, FixedPoint, HoldAnalytic),
        (GroupedNorm(1.0, LABELS, outer=2.0), FollowMultipliers, FixedPoint, HoldCuts),
        (GroupedNorm(1.0, LABELS, outer=1.0), FollowMultipliers, FixedPoint, HoldCuts),
        (QuadraticNorm(CHAIN), Follow, Follow, HoldAnalytic),
        (ElasticNetNorm(1.0, 0.5), Follow, Follow, HoldAnalytic),
    ],
)
def test_who_gets_which_rule_with_other_norms(norm, chunking, analytic, wrapper):
    for kind, solver, step in (
        (chunking, "chunking", "auto"),
        (analytic, "chunking", "analytic"),
        (wrapper, "wrapper", "auto"),
    ):
        assert type(rule_of(norm, ALL, TOL, norm.start(M), solver, step)) is kind


@pytest.mark.parametrize(
    "norm, held",
    [
        (GroupedNorm(4 / 3, LABELS, outer=1.5), True),
        (GroupedNorm(4 / 3, LABELS, outer=1.05), False),
        (GroupedNorm(1.5, LABELS, outer=3.0), False),
        (QuadraticNorm(np.eye(M)), True),
        (QuadraticNorm(CHAIN), False),
        (ElasticNetNorm(1.0, 0.5), False),
        (ElasticNetNorm(2.0, 0.5), True),
    ],
)
def test_who_may_be_held_with_other_norms(norm, held):
    assert Follow(norm, ALL, TOL).may_be_held is held


FEW_STEPS = {
    "ball": GroupedNorm(1.2, LABELS, outer=1.5),
    "mixed": GroupedNorm(1.2, LABELS, outer=3.0),
    "mixed the other way": GroupedNorm(3.0, LABELS, outer=1.2),
    "chain": QuadraticNorm(CHAIN),
    "any signs": QuadraticNorm(SIGNS @ SIGNS.T / M + 0.3 * np.eye(M)),
    "all positive": QuadraticNorm(np.full((M, M), 0.5) + np.eye(M)),
    "elastic": ElasticNetNorm(1.0, 0.5),
    "elastic, p > 2": ElasticNetNorm(4.0, 0.5),
}


@pytest.mark.parametrize("norm", FEW_STEPS.values(), ids=FEW_STEPS)
def test_held_weights_arrive_where_dual_variables_answer(norm):
    """A dual point a >= 0 with a value of sum(a) and s = a^2 answers to weights by a_m = 1 / theta_m: the
    optimum is that of max_a sum(a) - N*(a^2) / 2, where N*(a^2) = sum(a).
    """
    rule, theta = HoldAnalytic(norm, ALL, 1e-6, full=True), norm.start(M) + 0.1
    for _ in range(600):
        s = 1.0 / theta**2
        primal, dual = norm.primal(theta * np.sqrt(s)), norm.dual(s)
        gap = norm.weight_gap(theta @ s, primal, dual)
        if gap <= 1e-6 * dual:
            break
        theta = rule.after_round(seen(theta, 0.0, gap, s=s, noise=np.zeros(M)))
    assert gap <= 1e-6 * dual
    assert norm.dual(s) == pytest.approx(np.sqrt(s).sum(), rel=2e-3)  # the gap is the square of the distance


def test_damped_steps_shrink_when_they_lead_back():
    stride, parts = stride_of(FEW_STEPS["any signs"]), np.ones(2)
    first = stride.along(parts, np.array([1.0, 1.0]))
    assert stride.along(parts, np.array([1.0, -0.5])) == pytest.approx(1.3 * first)
    assert stride.along(parts, np.array([-1.0, 0.5])) == pytest.approx(0.65 * first)
    assert all(stride.along(parts, sign * np.ones(2)) >= 1 / 64 for sign in (1, -1) * 20)
