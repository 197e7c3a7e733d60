"""The method of multipliers at p = 1: its norm against differences, its weights against programs stated
here.
"""

import numpy as np
import pytest
from scipy.optimize import nnls

from raymkl.optim.certificate import Certificate
from raymkl.optim.norms import GroupedNorm, LpNorm
from raymkl.optim.weights.multipliers import Multipliers, TiltedNorm, few_weights

NORMS = [LpNorm(1.0), LpNorm(1.002), GroupedNorm(1.0, (0, 0, 1, 1, 1)), GroupedNorm(1.003, (0, 1, 0, 1, 1))]


def tilted(norm, exponent, seed=0):
    rng = np.random.default_rng(seed)
    return TiltedNorm(norm, norm.project(rng.uniform(0.1, 1.0, 5)), exponent), rng.uniform(0.5, 2.0, 5)


def certificate(gap, svm_gap, weight_gap):
    return Certificate(
        primal=1.0, dual=1.0 - gap, gap=gap, intercept=0.0, svm_gap=svm_gap, weight_gap=weight_gap
    )


@pytest.mark.parametrize("exponent", [2.0, 8.0, 100.0])
@pytest.mark.parametrize("norm", NORMS)
def test_weights_are_the_gradient_of_the_norm(norm, exponent):
    norm, s = tilted(norm, exponent)
    h = 1e-6 * np.eye(len(s))
    differences = [(norm.dual(s + step) - norm.dual(s - step)) / 2e-6 for step in h]
    np.testing.assert_allclose(norm.weights(s), differences, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("exponent", [2.0, 8.0, 100.0])
@pytest.mark.parametrize("norm", NORMS)
def test_curvature_is_the_derivative_of_the_weights(norm, exponent):
    norm, s = tilted(norm, exponent)
    d, c, t = norm.curvature(s)
    h = 1e-6 * np.eye(len(s))
    differences = np.array([(norm.weights(s + step) - norm.weights(s - step)) / 2e-6 for step in h]).T
    np.testing.assert_allclose(np.diag(d) - (t.T * c) @ t, differences, rtol=1e-4, atol=1e-6)


def test_the_norm_bounds_the_largest_from_below():
    for seed in range(20):
        norm, s = tilted(LpNorm(1.0), 16.0, seed)
        assert norm.dual(s) <= s.max() * (1 + 1e-12)
        assert norm.weights(s).sum() <= 1 + 1e-12


@pytest.mark.parametrize("p", [1.001, 1.005])
def test_weights_that_come_back_as_they_went_in_are_those_of_the_dual_norm(p):
    """Near p = 1 the reference is a power of the last weights; the fixed point is the gradient of the
    original dual norm.
    """
    norm, s = LpNorm(p), np.array([1.0, 0.999, 1.001, 0.9])
    rule = Multipliers(norm, norm.start(4), np.ones(4, bool), 1e-3)
    rule._renew(norm.weights(s), 0.0)
    np.testing.assert_allclose(rule.followed.weights(s), norm.weights(s), rtol=1e-9)


def test_the_exponent_rises_with_the_weights_behind_and_falls_after_a_short_step():
    rule = Multipliers(LpNorm(1.0), np.full(3, 1 / 3), np.ones(3, bool), 1e-3)
    first = rule.exponent
    rule.after_step(1.0)
    assert rule.after_round(certificate(0.5, 0.1, 0.4), np.array([0.5, 0.3, 0.2]), lambda: np.eye(3)) is None
    assert rule.exponent > first
    rule.after_step(0.01)
    rule.after_round(certificate(0.5, 0.4, 0.1), np.array([0.5, 0.3, 0.2]), lambda: np.eye(3))
    assert rule.exponent == first


def test_a_kernel_that_is_not_used_gets_no_reference():
    rule = Multipliers(LpNorm(1.0), np.full(3, 1 / 3), np.array([True, False, True]), 1e-3)
    assert rule.followed.reference[1] == 0 and rule.followed.reference.sum() == pytest.approx(1.0)


def test_small_weights_leave_only_with_a_certificate():
    """Two kernels make the same function: within the tolerance one is dropped; when that costs too much,
    another attempt follows.
    """
    gram = np.outer([1.0, 1.0, 0.0], [1.0, 1.0, 0.0]) + np.diag([0.0, 1e-12, 1.0])
    rule = Multipliers(LpNorm(1.0), np.full(3, 1 / 3), np.ones(3, bool), 1e-3)
    theta = np.array([0.6, 0.1, 0.3])
    few = rule.after_round(certificate(5e-4, 1e-4, 4e-4), theta, lambda: gram)
    assert (
        np.count_nonzero(few) == 2
        and few.sum() == pytest.approx(1.0)
        and few[2] == pytest.approx(0.3, rel=1e-2)
    )
    assert rule.after_round(certificate(2e-3, 2e-3, 0.0), few, lambda: gram) is not None
    assert rule.after_round(certificate(5e-4, 5e-4, 0.0), few, lambda: gram) is None


@pytest.mark.parametrize("seed", range(5))
def test_few_weights_make_the_same_function(seed):
    rng = np.random.default_rng(seed)
    functions = np.cumsum(rng.normal(size=(30, 12)), axis=1)  # neighbours are alike
    theta = rng.dirichlet(np.ones(12))
    few = few_weights(functions.T @ functions, theta, 1e-2)
    assert few.min() >= 0 and np.count_nonzero(few) <= 12
    assert np.linalg.norm(functions @ (few - theta)) <= 1.01e-2 * np.linalg.norm(functions @ theta)


def test_few_weights_end_where_non_negative_least_squares_does():
    rng = np.random.default_rng(3)
    functions = rng.normal(size=(40, 6))
    theta = np.array([0.5, 0.0, 0.2, 0.0, 0.3, 0.0])
    x = few_weights(functions.T @ functions, theta, 1e-9)
    np.testing.assert_allclose(x, nnls(functions, functions @ theta)[0], atol=1e-7)
    np.testing.assert_array_equal(x > 0, theta > 0)
