"""The block norm with prices: both sides, weights and their derivatives, against slow definitions."""

import numpy as np
import pytest
from scipy.optimize import minimize

from raymkl.optim.norms import LpNorm, PricedNorm
from raymkl.optim.weights import Follow, HoldAnalytic, rule_of

NORMS = [1.05, 4 / 3, 2.0, 3.0]


def example(p, seed=0, m=5):
    random = np.random.default_rng(seed)
    return PricedNorm(p, tuple(random.random(m))), 2.0 * random.random(m)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("seed", range(4))
def test_dual_is_the_largest_value_of_its_definition(p, seed):
    norm, s = example(p, seed)
    v = np.sqrt(s)
    found = minimize(lambda u: norm.primal(u * u) - 2 * (u * u) @ v, np.full(5, 0.5), tol=1e-12)
    assert norm.dual(s) == pytest.approx(-found.fun, rel=1e-4, abs=1e-8)
    theta = norm.weights(s)
    lengths = theta * v
    assert norm.primal(lengths) + norm.dual(s) == pytest.approx(2 * lengths @ v, rel=1e-12)
    assert norm.weight_gap(float(theta @ s), norm.primal(lengths), norm.dual(s)) <= 1e-12
    assert np.array_equal(theta == 0, v <= norm.prices)
    np.testing.assert_allclose(norm.towards(theta, s), theta, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("p", NORMS)
def test_weights_and_curvature_are_derivatives(p):
    norm, s = example(p, 1)
    step = 1e-6 * np.eye(len(s))
    slope = [(norm.dual(s + e) - norm.dual(s - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(norm.weights(s), slope, atol=1e-8)
    d, c, t = norm.curvature(s)
    bend = [(norm.weights(s + e) - norm.weights(s - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(np.diag(d) - c * np.outer(t, t), bend, atol=1e-6)


@pytest.mark.parametrize("p", NORMS)
def test_without_prices_it_is_the_block_norm(p):
    norm, plain, s = PricedNorm(p, (0.0,) * 3), LpNorm(p), np.array([0.3, 2.0, 1.0])
    np.testing.assert_allclose(norm.weights(s), plain.weights(s))
    assert norm.dual(s) == pytest.approx(plain.dual(s)) and norm.primal(s) == pytest.approx(plain.primal(s))
    np.testing.assert_allclose(norm.start(3), plain.start(3))
    np.testing.assert_allclose(norm.floor(s, np.ones(3, bool), 1e-3), plain.floor(s, np.ones(3, bool), 1e-3))


def test_where_nobody_pays():
    norm = PricedNorm(1.5, (2.0, 3.0))
    s = np.array([3.9, 8.0])
    assert norm.dual(s) == 0 and np.array_equal(norm.weights(s), [0.0, 0.0]) and norm.curvature(s) is None
    assert np.array_equal(norm.without_idle(np.array([0.1, 1e-9]), s, 1e-6), [0.1, 0.0])
    assert np.array_equal(norm.without_idle(np.array([0.1, 1e-9]), np.array([9.0, 8.0]), np.inf), [0.1, 0.0])
    rule = Follow(norm, np.ones(2, bool), 1e-3)
    assert np.array_equal(
        rule.before_step(np.ones(2), s, np.full(2, 1.0)), [0.0, 0.0]
    )  # round-off does not make a kernel worth its price
    assert rule.response(s, np.ones((3, 2)), np.eye(2)) is None


def test_rules_and_errors():
    norm, used = PricedNorm(1.01, (1.0, 2.0)), np.ones(2, bool)
    assert isinstance(rule_of(norm, used, 1e-3, np.ones(2), "chunking", "auto"), Follow)
    assert isinstance(rule_of(norm, used, 1e-3, np.ones(2), "wrapper", "auto"), HoldAnalytic)
    assert not Follow(norm, used, 1e-3).may_be_held
    assert norm == PricedNorm(1.01, np.array([1.0, 2.0])) and hash(norm) and "rho=(1.0, 2.0)" in repr(norm)
    for p in (1.0, np.inf):
        with pytest.raises(ValueError, match="p must be"):
            PricedNorm(p, (1.0,))
    for rho in ((-1.0,), (np.nan,), ((1.0,),)):
        with pytest.raises(ValueError, match="rho"):
            PricedNorm(2.0, rho)
    with pytest.raises(ValueError, match="rho"):
        norm.check(3)
