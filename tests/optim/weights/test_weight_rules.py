"""Rules for the weights as functions of arrays, against their formulas written out."""

import numpy as np
import pytest

from raymkl.optim.certificate import Certificate
from raymkl.optim.norms import ElasticNetNorm, GroupedNorm, LpNorm, QuadraticNorm, weight_norm
from raymkl.optim.subproblem import line_search, weight_response
from raymkl.optim.weights import (
    CertifiedPoint,
    FixedPoint,
    Follow,
    FollowMultipliers,
    HoldAnalytic,
    HoldCuts,
    Led,
    rule_of,
)
from raymkl.optim.weights.cutting_planes import CuttingPlanes
from raymkl.optim.weights.stride import Stride, fixed_point, lifted, stride_of

M, TOL = 5, 1e-3
ALL = np.ones(M, bool)
RNG = np.random.default_rng(4)
S = RNG.uniform(0.2, 3.0, M)
NOISE = np.full(M, 1e-9)


def start(p):
    return LpNorm(p).start(M)


def made(p, solver="chunking", theta_step="auto", shared=False, used=ALL, theta=None):
    return rule_of(LpNorm(p), used, TOL, start(p) if theta is None else theta, solver, theta_step, shared)


def certificate_of(svm_gap, weight_gap, primal=10.0, gap=0.1):
    return Certificate(primal, primal * (1 - gap), gap, 0.0, svm_gap, weight_gap)


def seen(theta, svm_gap=0.0, weight_gap=1.0, still=False, s=S, dual_value=3.0, noise=NOISE, gap=0.1):
    return CertifiedPoint(theta, s, noise, certificate_of(svm_gap, weight_gap, gap=gap), dual_value, still)


# -- who gets which rule ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "p, solver, theta_step, kind",
    [
        (4 / 3, "chunking", "auto", Follow),
        (5.0, "chunking", "analytic", Follow),
        (1.0, "chunking", "auto", FollowMultipliers),
        (1.005, "chunking", "auto", FollowMultipliers),
        (1.0, "chunking", "analytic", FixedPoint),
        (1.5, "wrapper", "auto", HoldAnalytic),
        (1.0, "wrapper", "analytic", HoldAnalytic),
        (1.0, "wrapper", "auto", HoldCuts),
        (1.5, "chunking", "cutting_plane", HoldCuts),
    ],
)
def test_who_gets_which_rule(p, solver, theta_step, kind):
    assert type(made(p, solver, theta_step)) is kind


@pytest.mark.parametrize(
    "p, theta_step, kind",
    [(1.5, "auto", HoldAnalytic), (1.0, "auto", HoldCuts), (1.0, "analytic", HoldAnalytic)],
)
def test_heads_that_share_weights_hold_them(p, theta_step, kind):
    assert type(made(p, theta_step=theta_step, shared=True)) is kind


@pytest.mark.parametrize(
    "p, more, expected",
    [
        (4 / 3, {}, True),
        (2.0, {}, True),
        (1.0, {}, False),
        (1.05, {}, False),
        (3.0, {}, False),
        (4 / 3, {"solver": "wrapper"}, False),
        (4 / 3, {"theta_step": "cutting_plane"}, False),
    ],
)
def test_who_may_be_held(p, more, expected):
    assert made(p, **more).may_be_held is expected


@pytest.mark.parametrize(
    "p, used, expected", [(1.5, M, True), (2.0, M, False), (1.5, 1, False), (5.0, 2, True)]
)
def test_whose_answer_is_worth_repeating(p, used, expected):
    assert bool(made(p, used=np.arange(M) < used).repeats) is expected


RULES = [
    (1.5, "chunking", "auto"),
    (1.0, "chunking", "auto"),
    (1.0, "chunking", "analytic"),
    (1.5, "wrapper", "auto"),
    (1.0, "wrapper", "auto"),
]


@pytest.mark.parametrize("p, solver, theta_step", RULES)
def test_no_rule_changes_what_it_is_given(p, solver, theta_step):
    rule, theta = made(p, solver, theta_step), start(p)
    point = seen(theta)
    arguments = [theta, S, NOISE]
    copies = [part.copy() for part in arguments]
    results = [
        rule.before_step(theta, S, NOISE),
        rule.after_step(theta, S, 0.5, 0.1),
        rule.after_round(point),
        rule.new_stage(theta, S),
        rule.caught_up(theta, S, NOISE),
    ]
    for part, copy in zip(arguments, copies, strict=True):
        np.testing.assert_array_equal(part, copy)
    assert all(result.shape == (M,) and np.all(result >= 0) for result in results)


def test_led_weights_stay():
    rule, theta = Led(LpNorm(1.5), ALL, TOL), start(1.5)
    assert rule.before_step(theta, S, NOISE) is theta and rule.after_step(theta, S, 1.0, 0.1) is theta
    assert rule.after_round(seen(theta)) is theta and rule.new_stage(theta, S) is theta
    assert rule.to_certify(seen(theta)) is None
    assert (
        rule.response(S, np.ones((3, 2)), np.ones((M, 2))) is None and rule.step_length(1.0, S, S, S) == 1.0
    )


# -- follow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.1, 4 / 3, 1.8, 3.0, 10.0])
def test_followed_weights_are_the_gradient_of_the_dual_norm(p):
    """By differences of || s ||_k, k = p / (2p - 2)."""
    rule, k = made(p), p / (2 * p - 2)
    theta = rule.after_step(start(p), S, 1.0, 0.0)

    def dual(s):
        return np.sum(s**k) ** (1 / k)

    h = 1e-6
    slow = [(dual(S + h * e) - dual(S - h * e)) / (2 * h) for e in np.eye(M)]
    np.testing.assert_allclose(theta, slow, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("p", [4 / 3, 5.0])
def test_entries_that_are_not_used_have_no_weight(p):
    used = np.array([True, False, True, True, False])
    rule = made(p, used=used)
    theta = rule.before_step(start(p), np.where(used, S, 0.0), NOISE)
    assert np.all(theta[~used] == 0) and np.all(theta[used] > 0)


def test_weights_stay_before_the_first_dual_variable_moves():
    rule, theta = made(1.5), start(1.5)
    nothing = np.zeros(M)
    assert rule.before_step(theta, nothing, nothing) is theta
    assert rule.response(nothing, np.ones((3, 2)), np.ones((M, 2))) is None


@pytest.mark.parametrize("p", [3.0, 20.0, np.inf])
def test_the_floor_keeps_weights_finite_and_costs_less_than_half_the_tolerance(p):
    """A vanishing term asks for an infinite weight where p > 2."""
    norm, s = LpNorm(p), np.array([1.0, 2.0, 0.0, 1e-30, 0.5])
    rule = made(p)
    theta = rule.before_step(start(p), s, np.zeros(M))
    assert np.isfinite(theta).all() and np.all(rule.floor > 0)
    assert norm.dual(s) < norm.dual(s + rule.floor) <= norm.dual(s) * np.exp(0.5 * TOL)


def test_terms_below_their_round_off_are_lifted_to_it():
    rule, s = made(1.2), np.array([1.0, 1e-12, 0.0, 0.5, 0.3])
    rule.before_step(start(1.2), s, np.full(M, 1e-4))
    np.testing.assert_array_equal(rule.floor, 1e-4)


@pytest.mark.parametrize("p", [4 / 3, 3.0])
def test_sub_problem_and_line_search_are_those_of_the_followed_norm(p):
    rule, norm = made(p), LpNorm(p)
    gradients, coefficients = RNG.normal(size=(4, 3)), RNG.uniform(0, 1, (M, 3))
    rule.before_step(start(p), S, NOISE)
    expected = weight_response(norm, S + rule.floor, gradients, coefficients, 2 * rule.floor)
    np.testing.assert_array_equal(rule.response(S, gradients, coefficients), expected)
    s1, s2 = RNG.normal(size=M), RNG.uniform(0, 2, M)
    for gain in (0.1, 3.0, lambda t: 1.0 - t):
        assert rule.step_length(gain, S, s1, s2) == line_search(norm, gain, S, s1, s2, rule.floor)


@pytest.mark.parametrize("norm", [LpNorm(1.5), GroupedNorm(1.5, (0, 0, 1, 1, 1))], ids=["one ball", "groups"])
def test_held_weights_catch_up_half_way_in_logarithms(norm):
    rule, theta = Follow(norm, ALL, TOL), norm.project(RNG.uniform(0.1, 1.0, M))
    found, goal = rule.caught_up(theta, S, np.zeros(M)), norm.weights(S)
    ratios = np.log(found) - 0.5 * (
        np.log(theta) + np.log(goal)
    )  # equal within a ball, whose boundary it is on
    for member in norm.members:
        np.testing.assert_allclose(ratios[member], ratios[member][0], atol=1e-12)
        assert np.sum(found[member] ** weight_norm(1.5)) == pytest.approx(1.0)


# -- multipliers -----------------------------------------------------------------------------------


def test_multipliers_follow_a_calmer_norm():
    """theta_m = r_m (s_m / size)^(h-1) with size^h = sum r_m s_m^h, h = 4, and r the first weights."""
    rule = made(1.0)
    theta = rule.before_step(start(1.0), S, np.zeros(M))
    r, h = rule.multipliers.last, rule.multipliers.exponent
    size = np.sum(r * S**h) ** (1 / h)
    np.testing.assert_allclose(theta, r * (S / size) ** (h - 1), rtol=1e-12)
    np.testing.assert_array_equal(rule.after_step(theta, S, 0.1, 0.5), theta)
    assert rule.multipliers.short  # it was told of the length of the step


def test_multipliers_move_alone_only_where_nothing_else_can():
    rule, theta = made(1.0), start(1.0)
    assert rule.after_round(seen(theta)) is theta
    moved = rule.after_round(seen(theta, still=True))
    np.testing.assert_array_equal(moved, rule.after_step(theta, S, 1.0, 0.0))
    assert np.any(moved != theta)


def test_multipliers_want_a_certificate_of_few_weights():
    """Within the tolerance, the fewest weights that make the same f: of two equal kernels one."""
    rule, theta = made(1.0), np.array([0.4, 0.4, 0.2, 0.0, 0.0])
    functions = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.3, 0.4], [0.1, 0.9]])
    point = seen(theta, gap=0.5 * TOL)._replace(gram=lambda: functions @ functions.T)
    few = rule.to_certify(point)
    assert np.count_nonzero(few) == 2 and few.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(few @ functions, theta @ functions, atol=1e-9)
    assert made(1.0).to_certify(seen(theta, gap=2 * TOL)) is None


def test_a_new_stage_gives_every_kernel_a_chance_again():
    rule = made(1.0)
    theta = rule.new_stage(np.array([1.0, 0.0, 0.0, 0.0, 0.0]), S)
    assert np.all(theta > 0) and np.all(rule.multipliers.last > 0)


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


# -- other norms -----------------------------------------------------------------------------------

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
