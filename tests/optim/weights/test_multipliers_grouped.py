"""The method of multipliers on two levels: references for kernels within groups and for the groups."""

import numpy as np
import pytest

from raymkl.optim.certificate import Certificate
from raymkl.optim.norms import GroupedNorm
from raymkl.optim.weights.multipliers import Multipliers, TiltedNorm

M, ALL, TOL = 6, np.ones(6, bool), 1e-3
GROUPS = (0, 1, 0, 2, 1, 0)
NORMS = [
    GroupedNorm(p, GROUPS, outer=outer)
    for p, outer in (
        (2.0, 1.0),
        (1.2, 1.0),
        (3.0, 1.0),
        (np.inf, 1.0),
        (1.0, 1.5),
        (1.0, 3.0),
        (1.002, 1.003),
    )
]
every = pytest.mark.parametrize("norm", NORMS, ids=lambda norm: f"{norm.p:.4g}, {norm.outer:.4g}")
S = np.random.default_rng(3).uniform(0.5, 2.0, M)


def made(norm, theta=None, used=ALL):
    return Multipliers(norm, norm.start(M) if theta is None else theta, used, TOL)


def certificate(gap, svm_gap=0.0, weight_gap=0.0):
    return Certificate(
        primal=1.0, dual=1.0 - gap, gap=gap, intercept=0.0, svm_gap=svm_gap, weight_gap=weight_gap
    )


def slow(norm, s):
    """T of S_g = (sum_m r_m s_m^h)^(1/h) over the groups."""
    sizes = [
        np.sum(norm.reference[member] * s[member] ** norm.exponent) ** (1 / norm.exponent)
        for member in norm.members
    ]
    if norm.outer_reference is None:
        return sum(sizes)
    return np.sum(norm.outer_reference * np.array(sizes) ** norm.outer_exponent) ** (1 / norm.outer_exponent)


@every
@pytest.mark.parametrize("exponent", [4.0, 30.0])
def test_the_calmer_norm_and_its_derivatives(norm, exponent):
    rule = made(norm, np.array([0.3, 0.2, 0.5, 0.4, 0.1, 0.6]))
    rule.exponent = exponent
    followed = rule.followed
    assert followed.dual(S) == pytest.approx(slow(followed, S), rel=1e-12)
    steps = 1e-6 * np.eye(M)
    gradient = [(slow(followed, S + step) - slow(followed, S - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(followed.weights(S), gradient, rtol=1e-5, atol=1e-8)
    d, c, t = followed.curvature(S)
    hessian = np.array([(followed.weights(S + step) - followed.weights(S - step)) / 2e-6 for step in steps]).T
    np.testing.assert_allclose(
        np.diag(d) - (t.T * c) @ t, hessian, rtol=1e-4, atol=1e-5 * np.abs(hessian).max() + 1e-7
    )


@every
def test_the_level_that_is_calm_stays_as_it_is(norm):
    followed = made(norm).followed
    if norm.inner.k <= 64:
        assert followed.exponent == norm.inner.k and np.all(followed.reference == 1.0)
    if norm.between.k <= 64:
        assert followed.outer_exponent == norm.between.k and np.all(followed.outer_reference == 1.0)


@pytest.mark.parametrize("p, outer", [(1.002, 1.003), (1.2, 1.002), (1.003, 3.0), (3.0, 1.004)])
def test_weights_that_come_back_as_they_went_in_are_those_of_the_norm(p, outer):
    norm, s = GroupedNorm(p, GROUPS, outer=outer), 1.0 + 0.01 * S
    rule = made(norm)
    rule._renew(norm.weights(s), 0.0)
    np.testing.assert_allclose(rule.followed.weights(s), norm.weights(s), rtol=1e-8)


def test_equal_terms_leave_the_weights_alone():
    """At p = 1 or outer = 1 the last weights are a fixed point where all that have some are equally good."""
    inside = made(GroupedNorm(1.0, GROUPS, outer=3.0), np.array([0.7, 0.2, 0.1, 0.9, 0.3, 0.2]))
    theta = inside.followed.weights(np.ones(M))
    np.testing.assert_allclose(theta[[0, 2, 5]] / theta[[0, 2, 5]].sum(), [0.7, 0.1, 0.2], atol=1e-3)
    between = made(GroupedNorm(2.0, GROUPS, outer=1.0), np.array([0.6, 0.3, 0.6, 0.1, 0.3, 0.6]))
    np.testing.assert_allclose(
        between.followed.weights(np.array([1.0, 1.5, 1.0, 3.0, 1.5, 1.0])),
        [0.6, 0.3, 0.6, 0.1, 0.3, 0.6],
        atol=1e-3,
    )


def test_kernels_and_groups_that_are_not_used_get_no_weight():
    used = np.array([True, True, False, False, True, True])  # the only kernel of the third group is not used
    for norm in NORMS:
        rule = made(norm, used=used)
        theta = np.where(used, rule.followed.weights(np.where(used, S, 0.0)), 0.0)
        assert np.isfinite(theta).all() and np.all(theta[used] > 0)


def test_a_group_that_has_gone_may_come_back():
    rule = made(GroupedNorm(1.2, GROUPS, outer=1.0), np.array([0.6, 0.0, 0.3, 0.0, 0.0, 0.1]))
    theta = rule.followed.weights(np.array([1.0, 2.0, 1.0, 0.1, 2.0, 1.0]))
    assert np.all(theta > 0) and theta[1] == pytest.approx(theta[4])


def test_whole_groups_leave_with_a_certificate():
    """Two groups make the same function; one of them is dropped, and weights within the other stay in
    proportion.
    """
    norm = GroupedNorm(1.2, (0, 0, 1, 1), outer=1.0)
    functions = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    theta = norm.project(np.array([0.5, 0.25, 0.1, 0.05]))
    rule = Multipliers(norm, theta, np.ones(4, bool), TOL)
    few = rule.after_round(certificate(0.5 * TOL), theta, lambda: functions @ functions.T)
    assert np.count_nonzero(few) == 2 and norm.between.gauge(
        np.array([norm.inner.gauge(few[:2]), norm.inner.gauge(few[2:])])
    ) == pytest.approx(1.0)
    kept = np.flatnonzero(few)
    assert few[kept[0]] / few[kept[1]] == pytest.approx(2.0) and kept.tolist() in ([0, 1], [2, 3])


def test_a_sparse_norm_within_groups_keeps_one_kernel_of_each():
    norm = GroupedNorm(1.0, (0, 0, 1, 1), outer=1.5)
    theta = norm.project(np.array([0.5, 0.5, 1e-4, 1e-4]))
    functions = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    few = Multipliers(norm, theta, np.ones(4, bool), TOL).after_round(
        certificate(0.5 * TOL), theta, lambda: functions @ functions.T
    )
    assert np.count_nonzero(few[:2]) == 1 and np.any(few[2:] > 0)


def test_weights_that_cannot_be_thinned_out_are_kept():
    norm = GroupedNorm(2.0, (0, 0, 1, 1), outer=1.0)
    theta = np.array([0.9, 0.9, 0.1, 0.1])
    rule, rounds = Multipliers(norm, theta, np.ones(4, bool), TOL), 0
    wanted = rule.after_round(certificate(0.5 * TOL), theta, lambda: np.ones((4, 4)))
    while wanted is not None and rounds < 50:
        while wanted is not None:  # whatever is tried costs too much
            wanted = rule.after_round(certificate(1.0), wanted, lambda: np.ones((4, 4)))
        wanted, rounds = rule.after_round(certificate(0.5 * TOL), theta, lambda: np.ones((4, 4))), rounds + 1
    assert rounds < 50  # the weights as they are were accepted


def test_without_a_reference_of_the_groups_their_norms_add_up():
    norm = GroupedNorm(1.0, GROUPS)
    tilted = TiltedNorm(norm, norm.project(S), 5.0)
    again = TiltedNorm(norm, norm.project(S), 5.0, np.ones(3), 1.0)
    assert tilted.dual(S) == pytest.approx(again.dual(S)) and made(norm).followed.outer_reference is None
    np.testing.assert_allclose(tilted.weights(S), again.weights(S), rtol=1e-12)
