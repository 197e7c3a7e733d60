"""Spans: few functions that give back many."""

import numpy as np
import pytest

from raymkl.kernels.pairs.spans import span

rng = np.random.default_rng(4)


def span_of(values, error=3e-7):
    """`span` of functions given by their values on a grid."""
    grid = np.arange(values.shape[1], dtype=float)
    return span([lambda t, row=row: row[t.astype(int)] for row in values], grid, error)


def largest_error(functions, coefficients, values):
    return np.abs((coefficients @ functions - values) / np.abs(values).max(axis=1, keepdims=True)).max()


@pytest.mark.parametrize("error, most", [(3e-7, 12), (1e-11, 17)])
@pytest.mark.parametrize("count", [1, 3, 40, 100])
def test_span_gives_back_the_values(count, error, most):
    values = np.exp(-np.outer(np.geomspace(0.01, 1, count), np.linspace(0, 10, 801))) * rng.uniform(
        0.1, 10, (count, 1)
    )
    functions, coefficients = span_of(values, error)
    assert largest_error(functions, coefficients, values) < 1.1 * error
    assert len(functions) <= min(count, most)


@pytest.mark.parametrize("error, most", [(3e-7, 15), (1e-11, 20)])
def test_span_of_many_does_not_miss_the_odd_ones(error, most):
    """Three functions unlike the 997 others, one of them with a kink and a thousand times larger."""
    t = np.linspace(0, 10, 1601)
    values = np.exp(-np.outer(np.geomspace(0.01, 1, 1000), t))
    values[[10, 500, 990]] = 1000 * np.abs(t - 3), np.cos(t), 1 / (1 + (t - 5) ** 2)
    functions, coefficients = span_of(values, error)
    assert largest_error(functions, coefficients, values) < 1.1 * error
    assert len(functions) <= most


def test_span_of_functions_without_structure_keeps_every_one():
    values = rng.normal(size=(100, 2000))
    functions, coefficients = span_of(values)
    np.testing.assert_allclose(coefficients @ functions, values, atol=1e-12)


def test_span_of_zero():
    functions, coefficients = span_of(np.zeros((3, 50)))
    np.testing.assert_array_equal(coefficients @ functions, np.zeros((3, 50)))
