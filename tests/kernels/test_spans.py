"""Spans: few functions that give back many."""

import numpy as np
import pytest

from raymkl.kernels import rbf, spans
from raymkl.kernels.spans import span

rng = np.random.default_rng(4)


def span_of(values, error=3e-7, every=8):
    """`span` of functions given by their values on a grid."""
    grid = np.arange(values.shape[1], dtype=float)
    return span([lambda t, row=row: row[t.astype(int)] for row in values], grid, error, every)


def largest_error(functions, coefficients, values):
    return np.abs((coefficients @ functions - values) / np.abs(values).max(axis=1, keepdims=True)).max()


@pytest.mark.parametrize("error, every, most", [(3e-7, 8, 12), (3e-7, 1, 12), (1e-11, 1, 17), (1e-11, 8, 17)])
@pytest.mark.parametrize("count", [1, 3, 40, 100])
def test_span_gives_back_the_values(count, error, every, most):
    values = np.exp(-np.outer(np.geomspace(0.01, 1, count), np.linspace(0, 10, 801))) * rng.uniform(0.1, 10, (count, 1))
    functions, coefficients = span_of(values, error, every)
    assert largest_error(functions, coefficients, values) < 1.1 * error
    assert len(functions) <= min(count, most)


@pytest.mark.parametrize("error, most", [(3e-7, 15), (1e-11, 20)])
def test_span_of_many_does_not_miss_the_odd_ones(error, most):
    """Three functions unlike the 997 others, one of them with a kink and a thousand times larger."""
    t = np.linspace(0, 10, 1601)
    values = np.exp(-np.outer(np.geomspace(0.01, 1, 1000), t))
    values[[10, 500, 990]] = 1000 * np.abs(t - 3), np.cos(t), 1 / (1 + (t - 5) ** 2)
    functions, coefficients = span_of(values, error)
    assert largest_error(functions, coefficients, values) < 4 * error  # between the points that were looked at
    assert len(functions) <= most


@pytest.mark.parametrize("count", [70, 300, 1000])
def test_functions_from_few_profiles_are_those_from_all(count):
    profiles = [kernel.profile for kernel in rbf(2.0 ** np.linspace(0, -20, count))]
    grid = np.append(0.0, np.geomspace(1e-3, 100, 4000))
    coarse = np.array([profile(grid[::8]) for profile in profiles])
    left = np.linalg.svd(coarse, full_matrices=False)[0] * np.sqrt(count)
    inner, scale = left.T @ coarse / count, np.ones(count)
    few = spans._few_on_grid(profiles, grid, left, inner, scale, 17, 3e-7, 8)
    np.testing.assert_allclose(few, spans._all_on_grid(profiles, grid, left[:, :17], scale), atol=1e-10)
    inner[16] += 1e-6  # not what they are elsewhere: they are not used
    assert spans._few_on_grid(profiles, grid, left, inner, scale, 17, 3e-7, 8) is None


def test_span_of_functions_without_structure_keeps_every_one():
    values = rng.normal(size=(100, 2000))
    functions, coefficients = span_of(values)
    np.testing.assert_allclose(coefficients @ functions, values, atol=1e-12)


def test_span_of_zero():
    functions, coefficients = span_of(np.zeros((3, 50)))
    np.testing.assert_array_equal(coefficients @ functions, np.zeros((3, 50)))
