"""Compiled loops against sums written out in numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymkl.kernels.loops import compiled, vectors
from raymkl.kernels.loops.lanes import CUBIC_TERMS, LANES, TERMS

DTYPES = [np.float32, np.float64]


def rng_of(seed=0):
    return np.random.default_rng(seed)


def moments_sums(stat, slots, weights, table, bits, origin, rank, terms=TERMS):
    """What loops over moments add: polynomials of v in cells of t + origin, one number at a time."""
    x = (stat[slots].astype(np.float64) + origin) / origin
    octave = np.floor(np.log2(x)).astype(int)
    place = (octave + x / 2.0**octave - 1) * (1 << bits)
    place = np.minimum(place, len(table) // terms - 1e-9)
    cell = np.floor(place).astype(int)
    powers = (2 * (place - cell) - 1)[..., None] ** np.arange(terms)
    values = np.einsum("kic,kicr->kir", powers, table.reshape(-1, terms, table.shape[1])[cell])
    return np.einsum("k,kir->ir", weights, values)[:, :rank]


@given(
    n=st.integers(1, 200),
    k=st.integers(0, 40),
    rank=st.integers(1, 20),
    seed=st.integers(0, 99),
    part=st.tuples(*[st.floats(0, 1)] * 2),
    dtype=st.sampled_from(DTYPES),
)
def test_accumulate_moments_equals_naive_sums(n, k, rank, seed, part, dtype):
    rng = rng_of(seed)
    bits, origin = 2, 0.25
    stat = np.exp(rng.uniform(-9, 3, size=(5, n))).astype(dtype)  # beyond the last cell too
    stat[0] = 0.0
    table = rng.normal(size=(20 * TERMS, -(-rank // TERMS) * TERMS))
    slots, weights = rng.integers(0, 5, size=k), rng.normal(size=k)
    start, stop = sorted(int(share * n) for share in part)
    before = rng.normal(size=(n, rank))
    out = before.copy()
    compiled.accumulate_moments(stat, slots, weights, table, 52 - bits, origin, out, start, stop)
    expected = before.copy()
    expected[start:stop] += moments_sums(stat, slots, weights, table, bits, origin, rank)[start:stop]
    np.testing.assert_allclose(out, expected, atol=1e-6)  # at the end of the table one bit off


@given(
    n=st.integers(1, 100),
    k=st.sampled_from([0, 1, 15, 16, 17, 40, 1100]),
    rank=st.integers(1, 40),
    seed=st.integers(0, 99),
    part=st.tuples(*[st.floats(0, 1)] * 2),
)
def test_accumulate_cubics_equals_naive_sums(n, k, rank, seed, part):
    """Any number of rows, columns (more than are summed in float32 included) and functions, over any range of
    rows.
    """
    rng = rng_of(seed)
    bits, origin = 3, 0.25
    stat = np.exp(rng.uniform(-9, 3, size=(5, n))).astype(np.float32)  # beyond the last cell too
    stat[0] = 0.0
    table = rng.normal(size=(40 * CUBIC_TERMS, -(-rank // LANES) * LANES)).astype(np.float32)
    slots, weights = rng.integers(0, 5, size=k), rng.normal(size=k)
    start, stop = sorted(int(share * n) for share in part)
    before = rng.normal(size=(n, rank))
    out = before.copy()
    compiled.accumulate_cubics(stat, slots, weights, table, 23 - bits, origin, out, start, stop)
    expected = before.copy()
    expected[start:stop] += moments_sums(stat, slots, weights, table, bits, origin, rank, CUBIC_TERMS)[
        start:stop
    ]
    # Statistics and how far into a cell they are have 20 bits.
    np.testing.assert_allclose(out, expected, atol=3e-5 * max(1.0, np.abs(weights).sum()))
    np.testing.assert_array_equal(out[:start], before[:start])
    np.testing.assert_array_equal(out[stop:], before[stop:])


def test_what_round_off_makes_negative_counts_as_zero():
    stat, table = np.array([[-1e-3], [0.0]], np.float32), rng_of().normal(size=(20, LANES)).astype(np.float32)
    out = np.zeros((2, 1, LANES))
    for k in range(2):
        compiled.accumulate_cubics(stat, np.array([k]), np.ones(1), table, 20, 0.25, out[k], 0, 1)
    np.testing.assert_array_equal(out[0], out[1])


def test_weights_that_cancel_leave_nothing_behind():
    """Moments of a cell that are zero only in part are multiplied in, and those of one call are gone in the
    next.
    """
    stat, table = np.array([[0.1], [0.12], [0.1]]), np.arange(16.0 * 8).reshape(16, 8)
    out = np.zeros((1, 8))
    compiled.accumulate_moments(stat, np.arange(2), np.array([1.0, -1.0]), table, 50, 0.25, out, 0, 1)
    np.testing.assert_allclose(
        out, moments_sums(stat, np.arange(2), np.array([1.0, -1.0]), table, 2, 0.25, 8), atol=1e-9
    )
    out[:] = 0.0
    compiled.accumulate_moments(stat, np.array([0, 2]), np.array([1.0, -1.0]), table, 50, 0.25, out, 0, 1)
    np.testing.assert_allclose(out, 0.0, atol=1e-15)


def test_loops_refuse_tables_and_weights_that_do_not_fit():
    stat, out = np.ones((4, 4)), np.zeros((4, 3))
    with pytest.raises(ValueError, match=r"8 lines per cell.*got 12 lines of 8 numbers"):
        compiled.accumulate_moments(stat, np.arange(4), np.ones(4), np.ones((12, 8)), 50, 1.0, out, 0, 4)
    with pytest.raises(ValueError, match="4 slots, 3 weights"):
        compiled.accumulate_moments(stat, np.arange(4), np.ones(3), np.ones((16, 8)), 50, 1.0, out, 0, 4)
    with pytest.raises(TypeError, match="float32, got float64"):
        compiled.accumulate_cubics(
            stat, np.arange(4), np.ones(4), np.ones((4, 16), np.float32), 20, 1.0, out, 0, 4
        )
    with pytest.raises(ValueError, match=r"4 lines per cell.*got 5 lines of 16 numbers"):
        compiled.accumulate_cubics(
            stat, np.arange(4), np.ones(4), np.ones((5, 16), np.float32), 20, 1.0, out, 0, 4
        )
    with pytest.raises(ValueError, match="4 coefficients, got 3"):
        compiled.look_up(stat, np.ones((5, 3)), 50, 1.0, np.zeros((4, 4)), 0, 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 7, 8, 33])
def test_look_up_equals_polynomials(dtype, columns):
    rng, origin = rng_of(), 0.5
    table = rng.normal(size=(11 * 4, 4))
    stat = rng.uniform(0, 3, size=(7, columns)).astype(dtype)
    stat[3:5, 0] = 0.0, 1e-30
    out = np.full(stat.shape, -1.0)
    compiled.look_up(stat, table, 50, origin, out, 2, 6)
    x = (stat[2:6].astype(np.float64) + origin) / origin
    octave = np.floor(np.log2(x)).astype(int)
    place = (octave + x / 2.0**octave - 1) * 4
    cell = place.astype(int)
    np.testing.assert_allclose(
        out[2:6], np.einsum("ijc,ijc->ij", table[cell], (place - cell)[..., None] ** np.arange(4)), atol=1e-9
    )
    assert (out[[0, 1, 6]] == -1.0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_look_up_beyond_the_table_stays_at_its_end(dtype):
    table = rng_of().normal(size=(5, 4))
    stat = np.tile(np.array([4.0, 1e30, np.inf, np.nan], dtype), (1, 3))
    out = np.zeros(stat.shape)
    compiled.look_up(stat, table, 50, 0.5, out, 0, 1)
    np.testing.assert_allclose(out, table[-1].sum(), atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (33, 40, 19), (0, 4, 2)], ids=str)
def test_loops_over_features_equal_numpy(dtype, shape):
    n_a, n_b, d = shape
    rng = rng_of()
    A, B = rng.uniform(size=(n_a, d)).astype(dtype), rng.uniform(size=(n_b, d)).astype(dtype)
    A[:, 0] = 0
    B[:, 0] = 0  # a zero denominator in chi2
    wide = (A[:, None].astype(float), B[None].astype(float))
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    with np.errstate(invalid="ignore"):
        naive = {
            "l1_distances": np.abs(wide[0] - wide[1]).sum(axis=2),
            "chi2_distances": np.nan_to_num((wide[0] - wide[1]) ** 2 / (wide[0] + wide[1])).sum(axis=2),
            "intersections": np.minimum(*wide).sum(axis=2),
        }
    for name, expected in naive.items():
        out = np.empty((n_a, n_b), dtype)
        getattr(vectors, name)(A, B, out)
        np.testing.assert_allclose(out, expected, atol=tolerance)
    norms = np.empty(n_a)
    vectors.squared_norms(A, norms)
    np.testing.assert_allclose(norms, (A.astype(float) ** 2).sum(axis=1), rtol=1e-6)
    target, slots = np.zeros((n_a + 2, n_b + 3), dtype), rng.permutation(n_a + 2)[:n_a]
    a_norms, b_norms = norms.astype(dtype), (B**2).sum(axis=1)
    vectors.finish_squared_distances(A @ B.T, a_norms, b_norms, target, slots, 2)
    np.testing.assert_array_equal(target[:, [0, 1, -1]], 0)
    np.testing.assert_allclose(
        target[slots, 2:-1], ((wide[0] - wide[1]) ** 2).sum(axis=2), atol=10 * tolerance
    )
    assert (target >= 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_loops_over_columns_equal_numpy(dtype):
    rng = rng_of()
    n, k, depth = 30, 11, 4
    slots, weights = rng.integers(0, 6, size=k), rng.normal(size=k)
    stat, exponents = rng.uniform(-1, 1, size=(6, n)).astype(dtype), np.array([0, 1, 3])
    out = np.zeros((n, 3))
    vectors.accumulate_powers(stat, slots, weights, exponents, 0.5, out, 3, n)
    expected = np.einsum("k,kir->ir", weights, (0.5 * stat[slots].astype(float))[..., None] ** exponents)
    expected[:3] = 0
    np.testing.assert_allclose(out, expected, atol=1e-12)
    stack, sums = rng.normal(size=(n, n, depth)).astype(dtype), np.zeros((n, depth))
    rows = rng.permutation(n)[: n - 5]
    vectors.accumulate_stack(stack, rows, slots, np.arange(depth), weights, sums, 0, n - 8)
    expected = np.einsum("k,ikm->im", weights, stack[rows][:, slots].astype(float))
    np.testing.assert_allclose(sums[: n - 8], expected[: n - 8], atol=1e-12)
    np.testing.assert_array_equal(sums[n - 8 :], 0)
    lines, added = rng.normal(size=(k, 3000)).astype(dtype), np.ones(3000)
    vectors.add_lines(lines, weights, added)
    np.testing.assert_allclose(added, 1.0 + weights @ lines.astype(float), atol=1e-12)
    combined, mixture = np.zeros((len(rows), k)), rng.normal(size=depth)
    vectors.combine_stack(stack, rows, slots, np.arange(depth), mixture, combined, 2, len(rows))
    np.testing.assert_allclose(combined[2:], (stack[rows][:, slots].astype(float) @ mixture)[2:], atol=1e-12)
    np.testing.assert_array_equal(combined[:2], 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n, depth", [(1, 1), (15, 3), (33, 1), (50, 20)])
def test_survey_of_matrices_equals_numpy(dtype, n, depth):
    rng = rng_of()
    stack, roots = rng.normal(size=(n, n, depth)).astype(dtype), rng.random((n, depth))
    for start, stop in ((0, n), (n // 3, n), (n // 2, n // 2)):
        found = np.full((3, depth), -1.0)
        vectors.survey_stack(stack, roots, *found, start, stop)
        pairs = [(i, j) for i in range(start, stop) for j in range(i + 1)]
        here, there = (
            np.array([stack[pair] for pair in chosen]) for chosen in (pairs, [pair[::-1] for pair in pairs])
        )
        if pairs:
            size = np.maximum(np.abs(here), np.abs(there))
            over = size - np.array([roots[i] * roots[j] for i, j in pairs])
            expected = [np.maximum(values.max(axis=0), -1.0) for values in (size, np.abs(here - there), over)]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        else:
            np.testing.assert_array_equal(found, -1.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_loops_that_move_pairs_equal_numpy(dtype):
    rng = rng_of()
    block = rng.normal(size=(90, 90)).astype(dtype)
    order = rng.permutation(90)
    rows, columns = order[:50], order[50:]
    mirrored = block.copy()
    vectors.mirror(mirrored, rows, columns)
    block[np.ix_(rows, columns)] = block[np.ix_(columns, rows)].T
    np.testing.assert_array_equal(mirrored, block)
    target, naive = np.zeros((100, 100), dtype), np.zeros((100, 100), dtype)
    vectors.copy_pairs(block, rows, columns, target, rows + 7, columns + 3)
    naive[np.ix_(rows + 7, columns + 3)] = block[np.ix_(rows, columns)]
    np.testing.assert_array_equal(target, naive)


def test_lines_and_gates():
    """A linear kernel's sums, and a gated block in one pass, from their definitions."""
    rng = np.random.default_rng(5)
    for dtype in (np.float32, np.float64):
        stat, out = rng.normal(size=(6, 11)).astype(dtype), rng.normal(size=11)
        slots, weights, before = np.array([4, 0, 5]), rng.normal(size=3), out.copy()
        vectors.accumulate_lines(stat, slots, weights, 0.5, out, 2, 9)
        expected = before + 0.5 * weights @ stat[slots].astype(float)
        np.testing.assert_allclose(out[2:9], expected[2:9], rtol=1e-12)
        np.testing.assert_array_equal(out[[0, 1, 9, 10]], before[[0, 1, 9, 10]])
    values, left, right = rng.normal(size=(4, 7)), np.array([1.0, 0.0, 0.5, 2.0]), rng.random(7)
    total = np.full((4, 7), np.nan)
    vectors.add_gated(values, left, right, total, False)
    np.testing.assert_allclose(total, left[:, None] * values * right, rtol=1e-15)
    vectors.add_gated(values, left, right, total, True)
    np.testing.assert_allclose(total, 2 * left[:, None] * values * right, rtol=1e-15)
