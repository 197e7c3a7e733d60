"""Weights that are held and then move, by the fixed point or by cutting planes, against their formulas written
out.
"""

import numpy as np
import pytest

from raymkl.optim.norms import LpNorm
from raymkl.optim.weights.cutting_planes import CuttingPlanes
from raymkl.optim.weights.stride import Stride, fixed_point, lifted
from tests.optim.weights.points import ALL, M, S, made, seen, start

RNG = np.random.default_rng(4)

# -- fixed point -----------------------------------------------------------------------------------


def slow_fixed_point(p, theta, s, stride):
    """theta_m^(1 - stride) * target_m^stride on the boundary; target_m = l_m^(2-p) / (sum l^p)^((2-p)/p), l_m
    = theta_m sqrt(s_m).
    """
    lengths = theta * np.sqrt(s)
    target = lengths ** (2 - p) / np.sum(lengths**p) ** ((2 - p) / p)
    mixed = theta ** (1 - stride) * target**stride
    q = p / (2 - p)
    return mixed / np.sum(mixed**q) ** (1 / q)


@pytest.mark.parametrize("p", [1.0, 1.01, 1.5])
@pytest.mark.parametrize("stride", [1.0, 2.5])
def test_a_step_of_the_fixed_point(p, stride):
    theta = LpNorm(p).project(RNG.uniform(0.1, 1.0, M))
    np.testing.assert_allclose(
        fixed_point(LpNorm(p), theta, S, ALL, stride), slow_fixed_point(p, theta, S, stride), rtol=1e-10
    )


def test_no_weight_of_the_fixed_point_vanishes_for_good():
    theta = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    found = fixed_point(LpNorm(1.0), theta, S, np.arange(M) < 4, 1.0)
    assert np.all(found[:4] > 0) and found[4] == 0 and found[1:4].max() < 1e-11


def test_the_fixed_point_stays_where_it_is_optimal():
    """At p = 1: where all s_m of weights above zero are equal."""
    theta = np.array([0.5, 0.2, 0.3, 0.0, 0.0])
    found = fixed_point(LpNorm(1.0), theta, np.array([2.0, 2.0, 2.0, 1.0, 0.5]), ALL, 1.0)
    np.testing.assert_allclose(found, theta, atol=1e-11)


def test_strides_grow_while_the_gap_shrinks():
    stride = Stride()
    assert [stride.after(gap) for gap in (1.0, 0.5, 0.6, 0.7, 0.1)] == pytest.approx(
        [1.3, 1.69, 1.0, 1.0, 1.3]
    )
    for _ in range(40):
        longest = stride.after(0.0)
    assert longest == 32.0


def test_the_rule_of_the_fixed_point_keeps_its_stride_for_a_stage():
    rule, theta = made(1.0, theta_step="analytic"), np.array([0.5, 0.2, 0.2, 0.1, 1e-9])
    for stride in (1.3, 1.69):
        np.testing.assert_array_equal(
            rule.after_step(theta, S, 1.0, 0.1), fixed_point(LpNorm(1.0), theta, S, ALL, stride)
        )
    np.testing.assert_array_equal(rule.new_stage(theta, S), lifted(LpNorm(1.0), theta, ALL))
    np.testing.assert_array_equal(
        rule.after_step(theta, S, 1.0, 0.1), fixed_point(LpNorm(1.0), theta, S, ALL, 1.3)
    )


def test_weights_are_lifted_for_a_new_stage():
    found = lifted(LpNorm(1.0), np.array([0.8, 0.2, 0.0, 1e-6, 0.0]), np.arange(M) < 4)
    np.testing.assert_allclose(found, np.array([0.8, 0.2, 0.008, 0.008, 0.0]) / (1.0 + 3 * 0.008), rtol=1e-12)


# -- hold ------------------------------------------------------------------------------------------

# |primal| = 10: full precision is a part of the gap of 0.1 * TOL * 10 = 1e-3.
WAITS = [("wrapper", 2e-3, 1.0, False), ("chunking", 0.6, 1.0, False)]
MOVES = [
    ("wrapper", 0.9e-3, 1.0, False),
    ("wrapper", 2e-3, 1.0, True),
    ("chunking", 0.4, 1.0, False),
    ("chunking", 0.9e-3, 0.0, False),
]


@pytest.mark.parametrize("theta_step", ["analytic", "cutting_plane"])
@pytest.mark.parametrize("solver, svm_gap, weight_gap, still", WAITS)
def test_weights_are_held_until_the_svm_is_solved(theta_step, solver, svm_gap, weight_gap, still):
    rule, theta = made(1.5, solver, theta_step, shared=True), start(1.5)
    assert rule.after_round(seen(theta, svm_gap, weight_gap, still)) is theta


@pytest.mark.parametrize("theta_step", ["analytic", "cutting_plane"])
@pytest.mark.parametrize("solver, svm_gap, weight_gap, still", MOVES)
def test_then_they_move(theta_step, solver, svm_gap, weight_gap, still):
    rule, theta = made(1.5, solver, theta_step, shared=True), start(1.5)
    found = rule.after_round(seen(theta, svm_gap, weight_gap, still))
    assert np.any(found != theta) and np.sum(found**3) == pytest.approx(1.0)


@pytest.mark.parametrize("theta_step", ["analytic", "cutting_plane"])
def test_at_p_2_there_is_nothing_to_move(theta_step):
    theta = np.ones(M)
    assert made(2.0, "wrapper", theta_step).after_round(seen(theta)) is theta


def test_analytic_steps():
    theta = start(1.5)
    np.testing.assert_array_equal(
        made(1.5, "wrapper").after_round(seen(theta)), fixed_point(LpNorm(1.5), theta, S, ALL, 1.3)
    )
    found = made(4.0, "wrapper").after_round(seen(start(4.0), noise=np.zeros(M)))
    k = 4.0 / 6.0
    np.testing.assert_allclose(found, (S / np.sum(S**k) ** (1 / k)) ** (k - 1), rtol=2e-3)


@pytest.mark.parametrize("p", [1.0, 1.5])
def test_steps_of_cutting_planes(p):
    rule, planes, theta = made(p, "wrapper", "cutting_plane"), CuttingPlanes(LpNorm(p), M), start(p)
    for seed in range(3):
        s, value = np.random.default_rng(seed).uniform(0.1, 3.0, M), 2.0 + seed
        planes.add(value, 0.5 * s)
        found = rule.after_round(seen(theta, s=s, dual_value=value))
        np.testing.assert_array_equal(found, planes.step())
        theta = found


def test_cuts_that_stand_still_are_left_for_the_fixed_point():
    rule, theta = made(1.0, "wrapper"), start(1.0)
    while True:
        moved = rule.after_round(seen(theta))
        if rule.planes is None:
            break
        theta = moved
    np.testing.assert_array_equal(moved, fixed_point(LpNorm(1.0), theta, S, ALL, 1.3))
    assert rule.new_stage(moved, S) is moved and rule.planes is not None and len(rule.planes.constants) == 0


def test_cuts_that_were_asked_for_stay():
    rule, theta = made(1.0, "wrapper", "cutting_plane"), start(1.0)
    for _ in range(5):
        theta = rule.after_round(seen(theta))
    assert rule.planes is not None


@pytest.mark.parametrize("p", [1.5, 4.0])
def test_a_new_stage_of_held_weights(p):
    theta = LpNorm(min(p, 2.0)).project(np.array([1.0, 0.5, 0.0, 0.2, 0.1])) if p <= 2 else start(p)
    found = made(p, "wrapper").new_stage(theta, S)
    np.testing.assert_array_equal(found, lifted(LpNorm(p), theta, ALL) if p < 2 else theta)
