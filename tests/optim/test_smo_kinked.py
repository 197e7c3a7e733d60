"""The sub-problem with a kink at zero, against a conic solver."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.optim.certificate import intercept_from_residuals
from raymkl.optim.losses import slopes
from raymkl.optim.norms import LpNorm
from raymkl.optim.subproblem import line_search, solve
from raymkl.optim.working_set import violators


def problem(seed, q=20, rank=20, spread=1.0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, q)) * np.geomspace(1.0, spread, q)
    upper = rng.uniform(0.2, 2.0, q)
    x = np.where(rng.uniform(size=q) < 0.4, 0.0, rng.uniform(-1, 1, q) * upper)
    return root.T @ root, rng.normal(size=q) * 2, x, -upper, upper


def objective(Q, residual, x, point, kink):
    d = point - x
    return residual @ d - 0.5 * d @ Q @ d - kink * np.abs(point).sum()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), kink=st.sampled_from([0.01, 0.3, 2.0]), rank=st.sampled_from([3, 20]))
def test_the_solution_is_that_of_a_conic_solver(seed, kink, rank):
    Q, residual, x, lower, upper = problem(seed, rank=rank)
    found, violation = solve(Q, residual, x, lower, upper, 1e-9, kink=kink)
    v = cp.Variable(len(x))
    d = v - x
    best = cp.Problem(
        cp.Maximize(residual @ d - 0.5 * cp.quad_form(d, cp.psd_wrap(Q)) - kink * cp.norm1(v)),
        [v >= lower, v <= upper, cp.sum(v) == x.sum()],
    ).solve(solver=cp.CLARABEL)
    assert np.all(found >= lower) and np.all(found <= upper)
    assert found.sum() == pytest.approx(x.sum(), abs=1e-9)
    assert objective(Q, residual, x, found, kink) == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert violation <= 1e-9


def test_many_variables_end_at_zero_exactly():
    Q, residual, x, lower, upper = problem(3, q=60, rank=60)
    found, _ = solve(Q, residual, x, lower, upper, 1e-9, kink=1.5)
    assert np.sum(found == 0.0) > 10 and np.all((np.abs(found) > 1e-9) | (found == 0.0))


def test_badly_conditioned_problems_are_solved_too():
    Q, residual, x, lower, upper = problem(5, q=40, rank=40, spread=1e4)
    found, _ = solve(Q, residual, x, lower, upper, 1e-6, max_steps=200_000, kink=0.3)
    gradient = residual - Q @ (found - x)
    up, down = slopes(gradient, found, 0.3)
    assert up[found < upper].max() - down[found > lower].min() < 1e-3


def test_without_a_kink_nothing_changes():
    Q, residual, x, lower, upper = problem(7)
    plain, _ = solve(Q, residual, x, lower, upper, 1e-10)
    nearly, _ = solve(Q, residual, x, lower, upper, 1e-10, kink=1e-12)
    np.testing.assert_allclose(plain, nearly, atol=1e-6)


def test_violators_and_intercept_use_the_slope_of_their_side():
    residual, a, bound = np.array([1.0, 0.2, -0.1, -1.0]), np.array([0.0, 0.5, 0.0, -1.0]), np.ones(4)
    up, down = slopes(residual, a, 0.5)
    np.testing.assert_allclose(up, [0.5, -0.3, -0.6, -0.5])
    np.testing.assert_allclose(down, [1.5, -0.3, 0.4, -0.5])
    grow, shrink = violators((up, down), a, -bound, bound, 4)
    np.testing.assert_array_equal(grow, [0, 1, 3, 2])
    np.testing.assert_array_equal(shrink, [1, 2, 0])
    # Only the row strictly inside a piece tells b; rows at zero bound it.
    assert intercept_from_residuals((up, down), a < bound, a > -bound, bound) == pytest.approx(-0.3)
    zero = np.zeros(2)
    pair = slopes(np.array([0.2, 0.4]), zero, 0.5)
    assert intercept_from_residuals(pair, zero < 1, zero > -1, np.ones(2)) == pytest.approx(
        ((-0.1) + 0.7) / 2
    )


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000))
def test_line_search_over_kinks_finds_the_best_step(seed):
    rng = np.random.default_rng(seed)
    x, delta, y, kink = rng.normal(size=8), rng.normal(size=8), rng.normal(size=8) * 3, 0.4
    roots = rng.normal(size=(3, 8, 8))
    norm = LpNorm(4 / 3)
    s = lambda t: np.array([np.sum((root @ (x + t * delta)) ** 2) for root in roots])
    s0, s2 = s(0.0), np.array([np.sum((root @ delta) ** 2) for root in roots])
    s1 = s(1.0) - s0 - s2
    value = lambda t: t * (y @ delta) - kink * np.abs(x + t * delta).sum() - 0.5 * norm.dual(s(t))
    t = line_search(norm, lambda t: y @ delta - kink * np.sign(x + t * delta) @ delta, s0, s1, s2)
    best = max(value(u) for u in np.linspace(0, 1, 2001))
    assert value(t) >= best - 1e-3 * max(abs(best - value(0.0)), 1e-2)
