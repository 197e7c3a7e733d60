"""Rules for the weights as functions of arrays, against their formulas written out: who gets which rule, and
weights that follow the dual variables.
"""

import numpy as np
import pytest

from raymkl.optim.norms import GroupedNorm, LpNorm, weight_norm
from raymkl.optim.subproblem import line_search, weight_response
from raymkl.optim.weights import FixedPoint, Follow, FollowMultipliers, HoldAnalytic, HoldCuts, Led
from tests.optim.weights.points import ALL, NOISE, TOL, M, S, made, seen, start

RNG = np.random.default_rng(4)

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
