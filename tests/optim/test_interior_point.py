"""The interior-point method: right where SMO zigzags, and honest about bounds and sums."""

import numpy as np
import pytest

from raymkl.optim.interior_point import interior_point
from raymkl.optim.subproblem import solve


def ill_conditioned(q, seed, condition):
    """A kernel of low rank with large values on top of a full one with small values, and a box like that of
    an SVM.
    """
    rng = np.random.default_rng(seed)
    features, fine = rng.normal(size=(q, 5)), rng.normal(size=(q, q)) / np.sqrt(q)
    y = np.where(rng.random(q) < 0.5, 1.0, -1.0)
    return condition * features @ features.T + fine @ fine.T, y, np.minimum(0, 10 * y), np.maximum(0, 10 * y)


def objective(Q, residual, x):
    return residual @ x - 0.5 * x @ Q @ x


def violation(Q, residual, x, lower, upper):
    slope = residual - Q @ x
    return slope[x < upper].max(initial=-np.inf) - slope[x > lower].min(initial=np.inf)


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("q", [2, 30, 150])
def test_optimal_feasible_and_at_its_bounds(q, condition):
    Q, residual, lower, upper = ill_conditioned(q, q, condition)
    residual[:2] = 1.0, -1.0
    lower, upper = np.minimum(0, 10 * residual), np.maximum(0, 10 * residual)
    x = interior_point(Q, -residual, np.zeros(q), lower, upper, 1e-6)
    assert np.all((x >= lower) & (x <= upper)) and abs(x.sum()) < 1e-10
    # A variable short of its bound by round-off would show up here as a large violation.
    assert violation(Q, residual, x, lower, upper) < 1e-6 * max(1.0, condition / 1e3)


@pytest.mark.parametrize("seed", range(4))
def test_better_than_many_pair_steps(seed):
    Q, residual, lower, upper = ill_conditioned(120, seed, 1e6)
    found, left = solve(Q, residual, np.zeros(120), lower, upper, 1e-6)
    pairs, _ = solve(Q, residual, np.zeros(120), lower, upper, 1e-6, max_steps=3_000)
    assert left <= 1e-3
    assert objective(Q, residual, found) >= objective(Q, residual, pairs)


def test_fixed_variables_and_other_starts():
    Q, residual, lower, upper = ill_conditioned(40, 7, 1e3)
    start = np.zeros(40)
    plus, minus = np.flatnonzero(residual > 0)[0], np.flatnonzero(residual < 0)[0]
    start[plus], start[minus] = 4.0, -4.0
    lower[plus] = upper[plus] = 4.0  # no freedom here
    x = interior_point(Q, Q @ start - residual, start, lower, upper, 1e-8)
    assert x[plus] == 4.0 and abs(x.sum()) < 1e-10
    free = upper > lower
    slope = residual - Q @ x
    assert slope[free & (x < upper)].max() - slope[free & (x > lower)].min() < 1e-6


def test_nothing_to_move():
    assert interior_point(np.eye(3), np.ones(3), np.zeros(3), np.zeros(3), np.zeros(3), 1e-6) is None


def test_an_indefinite_matrix_is_refused_or_survived():
    """Round-off makes kernels slightly indefinite, which a ridge absorbs; a clearly indefinite one is not
    ours to solve.
    """
    Q, residual, lower, upper = ill_conditioned(30, 3, 1.0)
    nearly = Q - (np.linalg.eigvalsh(Q)[0] + 1e-9) * np.eye(30)
    assert interior_point(nearly, -residual, np.zeros(30), lower, upper, 1e-6) is not None
    clearly = interior_point(-100 * np.eye(30), -residual, np.zeros(30), lower, upper, 1e-6)
    assert clearly is None or np.all((clearly >= lower) & (clearly <= upper))
