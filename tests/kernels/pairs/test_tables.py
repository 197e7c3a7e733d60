"""Tables against formulas: over many octaves, at the edges of cells, at zero and beyond the bound, in both
dtypes.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.kernels import RBF, Chi2, Laplacian, Polynomial, rbf
from raymkl.kernels.pairs.tables import (
    Cells,
    NotSmooth,
    TableBasis,
    WideTableBasis,
    cells_for,
    end_of,
    tabulated,
)

rng = np.random.default_rng(4)
few = settings(max_examples=25, deadline=None, derandomize=True)
KINDS = pytest.mark.parametrize("kind", [TableBasis, WideTableBasis])
# dtype of the statistics, and the error that is promised, of a kernel's largest value.
PROMISED = {TableBasis: (np.float32, 2e-6), WideTableBasis: (np.float64, 1e-10)}


def widths(count):
    return rbf(2.0 ** np.linspace(0, -20, count))


def table(kind, kernels, bound=100.0):
    return kind([kernel.profile for kernel in kernels], bound)


def statistics(bound, dtype, cells=None, count=4000):
    """One line of statistics: zero, subnormal and tiny ones, the bound, both scales in between, and both
    sides of edges of cells.
    """
    ends = [0.0, 5e-324, 1e-45, 1e-38, 1e-30, 1e-12, 1e-6 * bound, bound]
    octaves = bound * 2.0 ** -np.arange(80)
    line = np.concatenate(
        [ends, octaves, rng.uniform(0, bound, count), bound * 10.0 ** rng.uniform(-14, 0, count)]
    )
    if cells is not None:
        edges = cells.points(2, np.zeros(1))
        edges = edges[(edges > 0) & (edges < bound)]
        line = np.concatenate([line, edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf)])
    return np.minimum(line.astype(dtype), dtype(bound))[None, :]


def largest_error(basis, kernels, stat):
    """Of looked-up and of summed values, relative to each kernel's value at zero."""
    true = np.stack([np.asarray(kernel.profile(stat[0].astype(np.float64))) for kernel in kernels])
    looked_up = np.concatenate([basis.matrix(stat, line) for line in basis.coefficients])
    sums = np.zeros((stat.shape[1], basis.rank))
    basis.accumulate(stat, np.array([0, 0]), np.array([3.0, -2.0]), sums, 0, len(sums))
    size = np.stack([np.abs(kernel.profile(np.zeros(1))) for kernel in kernels])
    return max(
        np.abs((looked_up - true) / size).max(), np.abs((basis.coefficients @ sums.T - true) / size).max() / 5
    )


@KINDS
@pytest.mark.parametrize("bound", [0.5, 4.0, 100.0, 1e4])
@pytest.mark.parametrize("count", [1, 6, 50, 300])
def test_tables_of_gaussian_widths(kind, count, bound):
    kernels, (dtype, promised) = widths(count), PROMISED[kind]
    basis = table(kind, kernels, bound)
    assert basis.coefficients.shape == (count, basis.rank) and basis.rank <= count
    assert largest_error(basis, kernels, statistics(bound, dtype, getattr(basis, "cells", None))) <= promised


@KINDS
@pytest.mark.parametrize("bound", [4.0, 100.0, 1e4])
def test_rank_does_not_grow_with_the_number_of_widths(kind, bound):
    assert table(kind, widths(1000), bound).rank <= table(kind, widths(120), bound).rank + 3


def test_what_the_ranks_are():
    """41 widths over ten octaves, as the README speaks of them: tables of lines fill two and four vectors."""
    kernels = rbf(2.0 ** np.linspace(-6, 4, 41) / 16)
    assert table(TableBasis, kernels, 400.0).rank <= 20
    assert table(WideTableBasis, kernels, 400.0).rank <= 30


@KINDS
@pytest.mark.parametrize(
    "kernels",
    [
        [Laplacian(1.0), Laplacian(0.01)],
        [Chi2(3.0), Chi2(3.0), Chi2(0.5)],
        [1e-3 * RBF(1.0), 1e3 * RBF(0.5)],
        [RBF(1.0) * RBF(0.1) + 2 * RBF(0.3), RBF(7.0)],
        [RBF(1e6), RBF(1e-6)],
        [RBF(1e-12)],
    ],
    ids=repr,
)
def test_tables_of_other_profiles(kind, kernels):
    """The error is relative to each kernel's own size: small kernels beside large ones keep their digits."""
    dtype, promised = PROMISED[kind]
    assert largest_error(table(kind, kernels, 20.0), kernels, statistics(20.0, dtype)) <= promised


@KINDS
@few
@given(
    gammas=st.lists(st.floats(1e-8, 1e8), min_size=1, max_size=12),
    bound=st.floats(1e-6, 1e6),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=50),
)
def test_tables_of_any_widths_and_bounds(kind, gammas, bound, shares):
    kernels, (dtype, promised) = rbf(gammas), PROMISED[kind]
    stat = np.minimum((np.array(shares) * bound).astype(dtype), dtype(bound))[None, :]
    assert largest_error(table(kind, kernels, bound), kernels, stat) <= promised


@KINDS
@pytest.mark.parametrize("bound", [0.0, 1e-20, 1e20])
def test_bounds_at_the_ends_of_what_numbers_can_be(kind, bound):
    dtype, promised = PROMISED[kind]
    kernels = rbf(np.array([1e9, 1.0, 1e-9]) / max(bound, 1e-20))
    stat = np.array([[0.0, bound / 3, bound]], dtype)
    assert largest_error(table(kind, kernels, bound), kernels, stat) <= promised


@KINDS
def test_beyond_the_bound_functions_are_held_constant(kind):
    dtype, promised = PROMISED[kind]
    basis = table(kind, widths(5), 10.0)
    stat = np.array([[1e3, 1e30, np.inf, np.nan]], dtype)
    values = basis.matrix(stat, basis.coefficients[2])
    np.testing.assert_allclose(values, values[0, 0], rtol=0, atol=promised)
    sums = np.zeros((4, basis.rank))
    basis.accumulate(stat, np.zeros(1, np.int64), np.ones(1), sums, 0, 4)
    np.testing.assert_allclose(sums @ basis.coefficients[2], values[0], rtol=0, atol=2 * promised)


@KINDS
def test_equal_kernels_share_one_function(kind):
    assert table(kind, [RBF(0.5)] * 100).rank == 1


@KINDS
def test_banks_over_many_octaves_are_compressed(kind):
    """Thirty octaves of widths on features that were not scaled: the numerical rank is 60 (at 1e-11: 96)."""
    assert table(kind, rbf(2.0 ** np.linspace(15, -15, 300)), 1e4).rank < 150


@KINDS
def test_tables_are_reproducible_and_read_only(kind):
    first, second = table(kind, widths(100)), table(kind, widths(100))
    np.testing.assert_array_equal(first.table, second.table)
    np.testing.assert_array_equal(first.coefficients, second.coefficients)
    assert (
        not first.table.flags.writeable
        and not first.coefficients.flags.writeable
        and first.table.ctypes.data % 64 == 0
    )


LINE = np.array([0.0, 1.0]), np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])


@given(bound=st.floats(1e-20, 1e20), gamma=st.floats(1e-6, 1e6))
def test_cells_cover_the_bound_and_start_where_profiles_vary(bound, gamma):
    cells = cells_for([RBF(gamma).profile], bound, 8, *LINE, 2e-6)
    edges = cells.points(8, np.zeros(1))
    assert edges[0] == 0.0 and np.all(np.diff(edges) > 0)
    assert cells.end >= 1.01 * bound * (1 - 1e-12) and edges[-1] < cells.end
    assert np.frexp(cells.origin)[0] == 0.5
    assert -np.expm1(-gamma * cells.origin) <= 0.3 or cells.origin <= 2.0**-99 * cells.end


def test_cells_double_from_octave_to_octave():
    cells = Cells(0.5, 11)
    np.testing.assert_allclose(
        cells.points(2, np.zeros(1)), [0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5]
    )
    assert cells.end == 3.0 and len(cells.points(3, np.zeros(2))) == 44


@given(bound=st.floats(1e-25, 1e25))
def test_the_end_of_a_table_is_little_beyond_the_bound(bound):
    assert 1.01 * bound * (1 - 1e-12) <= end_of(bound) <= 1.27 * bound
    assert (
        end_of(end_of(bound) / 1.02) == end_of(bound)
        or end_of(bound) > 1.2 * bound
        or end_of(end_of(bound) / 1.02) < end_of(bound)
    )


def with_a_kink(t):
    return np.maximum(0.9 - t, 0.0)


def root(t):
    return np.exp(-np.sqrt(t))


def test_wide_tables_refuse_what_polynomials_cannot_give():
    with pytest.raises(NotSmooth):
        WideTableBasis([RBF(1.0).profile, with_a_kink], 10.0)
    for profile in (with_a_kink, Polynomial(14, 0.1, 1.0).profile):
        with pytest.raises(NotSmooth):
            tabulated(profile, 10.0)


def test_functions_that_are_steep_at_zero_get_more_octaves():
    """exp(-sqrt(t)), a Matern kernel of the squared distance, varies at zero as much as anywhere."""
    for kind, (dtype, promised) in PROMISED.items():
        basis, stat = kind([root, RBF(1.0).profile], 10.0), statistics(10.0, dtype)
        error = np.abs(basis.matrix(stat, basis.coefficients[0]) - root(stat.astype(np.float64))).max()
        assert error <= 2 * promised, kind


@pytest.mark.parametrize(
    "profile",
    [RBF(0.3).profile, Laplacian(2.0).profile, Polynomial(5, 0.1, 1.0).profile, root, np.ones_like],
    ids=["Gaussian", "Laplacian", "polynomial", "root", "constant"],
)
def test_one_function_by_a_table(profile):
    stat = np.concatenate([statistics(30.0, np.float64)[0], [0.0, 30.0]]).reshape(2, -1)
    out = np.empty(stat.shape)
    tabulated(profile, 30.0)(stat, out)
    true = profile(stat)
    np.testing.assert_allclose(out, true, rtol=0, atol=1e-10 * np.abs(true).max())
