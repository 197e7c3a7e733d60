"""Bases: few functions that give back every kernel of a bank, and sums over columns against the naive
ones.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.kernels import Linear, Polynomial, rbf
from raymkl.kernels.pairs.basis import Basis, FormulaBasis, PowerBasis, StackBasis
from raymkl.kernels.pairs.tables import TableBasis, WideTableBasis

rng = np.random.default_rng(4)
few = settings(max_examples=25, deadline=None, derandomize=True)


def widths(count):
    return rbf(2.0 ** np.linspace(0, -20, count))


def table(kernels, bound=100.0, kind=TableBasis):
    return kind([kernel.profile for kernel in kernels], bound)


POLYNOMIALS = [Linear(), Polynomial(2, 0.5, 1.0), Polynomial(3), 0.5 * Linear() + Polynomial(4, 0.1, 2.0)]
N_SLOTS, N_ROWS = 300, 150  # more slots than one flush of float32 sums, more rows than two tiles
DISTANCES = rng.uniform(0, 30, size=(N_SLOTS, N_ROWS)).astype(np.float32)
PRODUCTS = rng.normal(size=(N_SLOTS, N_ROWS)).astype(np.float32)
BASES = {
    "table": (table(widths(20), 30.0), widths(20), DISTANCES, 2e-6),
    "table of one": (table(widths(1), 30.0), widths(1), DISTANCES, 2e-6),
    "wide table": (table(widths(20), 30.0, WideTableBasis), widths(20), DISTANCES.astype(np.float64), 1e-10),
    "wide table of one": (
        table(widths(1), 30.0, WideTableBasis),
        widths(1),
        DISTANCES.astype(np.float64),
        1e-10,
    ),
    "wide table of float32": (table(widths(20), 30.0, WideTableBasis), widths(20), DISTANCES, 1e-10),
    "powers": (
        PowerBasis([k.powers() for k in POLYNOMIALS], float(np.abs(PRODUCTS).max())),
        POLYNOMIALS,
        PRODUCTS,
        1e-12,
    ),
    "formula": (
        FormulaBasis([k.profile for k in POLYNOMIALS + widths(3)]),
        POLYNOMIALS + widths(3),
        PRODUCTS,
        1e-12,
    ),
}
ALL = pytest.mark.parametrize("basis, kernels, stat, tolerance", BASES.values(), ids=BASES.keys())


def naive_sums(kernels, stat, slots, weights):
    """(rows, kernels) sum_k weights[k] k_m(stat[slots[k], i]), and the sum of absolute values that errors
    refer to.
    """
    values = np.stack(
        [np.asarray(kernel.profile(stat[slots].astype(np.float64))) for kernel in kernels], axis=2
    )
    return np.einsum("k,kim->im", weights, values), np.einsum(
        "k,kim->im", np.abs(weights), np.abs(values)
    ).max(initial=1.0)


def accumulated(basis, stat, slots, weights, start=0, stop=N_ROWS):
    out = np.zeros((N_ROWS, basis.rank))
    basis.accumulate(stat, slots, weights, out, start, stop)
    return out


@ALL
@pytest.mark.parametrize("start, stop", [(0, N_ROWS), (0, 64), (13, 14), (60, 133), (149, 150), (40, 40)])
@pytest.mark.parametrize("n_slots", [0, 1, 7, N_SLOTS])
def test_accumulate_equals_the_naive_sum(basis, kernels, stat, tolerance, start, stop, n_slots):
    slots = rng.permutation(N_SLOTS)[:n_slots]
    weights = rng.normal(size=n_slots)
    out = accumulated(basis, stat, slots, weights, start, stop)
    expected, size = naive_sums(kernels, stat, slots, weights)
    np.testing.assert_allclose(
        out[start:stop] @ basis.coefficients.T, expected[start:stop], rtol=0, atol=tolerance * size
    )
    assert not out[:start].any() and not out[stop:].any()


@ALL
def test_accumulate_adds_to_what_is_there(basis, kernels, stat, tolerance):
    slots, weights = np.arange(40), rng.normal(size=40)
    before = rng.normal(size=(N_ROWS, basis.rank))
    out = before.copy()
    basis.accumulate(stat, slots, weights, out, 10, 90)
    np.testing.assert_allclose(out - before, accumulated(basis, stat, slots, weights, 10, 90), atol=1e-10)


@ALL
def test_matrix_agrees_with_accumulate(basis, kernels, stat, tolerance):
    slots, weights, combination = (
        np.arange(0, N_SLOTS, 3),
        rng.normal(size=N_SLOTS // 3),
        rng.uniform(size=len(kernels)) @ basis.coefficients,
    )
    matrix = basis.matrix(stat, combination)
    assert matrix.shape == stat.shape and matrix.dtype == np.float64
    size = naive_sums(kernels, stat, slots, weights)[1] * len(kernels)
    np.testing.assert_allclose(
        weights @ matrix[slots],
        accumulated(basis, stat, slots, weights) @ combination,
        rtol=0,
        atol=tolerance * size,
    )


@ALL
def test_repeated_slots_count_twice(basis, kernels, stat, tolerance):
    twice = accumulated(basis, stat, np.array([5, 5]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(twice, accumulated(basis, stat, np.array([5]), np.array([2.0])), atol=1e-6)


@ALL
@few
@given(data=st.data())
def test_accumulate_is_linear_in_the_weights(basis, kernels, stat, tolerance, data):
    n = data.draw(st.integers(1, 30))
    numbers = st.lists(st.floats(-10, 10), min_size=n, max_size=n).map(np.array)
    slots = np.array(data.draw(st.lists(st.integers(0, N_SLOTS - 1), min_size=n, max_size=n)))
    first, second, factor = data.draw(numbers), data.draw(numbers), data.draw(st.floats(-3, 3))
    together = accumulated(basis, stat, slots, first + factor * second)
    apart = accumulated(basis, stat, slots, first) + factor * accumulated(basis, stat, slots, second)
    size = (np.abs(first) + abs(factor) * np.abs(second)).sum() + 1
    np.testing.assert_allclose(together, apart, rtol=0, atol=1e-6 * size * max(1.0, np.abs(apart).max()))


@pytest.mark.parametrize(
    "kind, dtype, tolerance", [(TableBasis, np.float32, 2e-6), (WideTableBasis, np.float64, 1e-10)]
)
@few
@given(order=st.permutations(range(12)))
def test_permuting_kernels_permutes_their_results(kind, dtype, tolerance, order):
    """The functions of a table may change with the order, the kernels that they give back may not."""
    slots, weights, stat = np.arange(20), np.ones(20), DISTANCES.astype(dtype)
    straight, shuffled = table(widths(12), 30.0, kind), table([widths(12)[m] for m in order], 30.0, kind)
    one = accumulated(straight, stat, slots, weights) @ straight.coefficients.T
    other = accumulated(shuffled, stat, slots, weights) @ shuffled.coefficients.T
    np.testing.assert_allclose(other, one[:, list(order)], rtol=0, atol=20 * tolerance)


@few
@given(bound=st.floats(1e-3, 1e4), seed=st.integers(0, 1000))
def test_powers_are_exact_for_any_bound(bound, seed):
    stat = np.random.default_rng(seed).uniform(-bound, bound, size=(3, 5))
    basis = PowerBasis([kernel.powers() for kernel in POLYNOMIALS], bound)
    for kernel, line in zip(POLYNOMIALS, basis.coefficients, strict=True):
        size = np.abs(kernel.powers()) @ bound ** np.arange(len(kernel.powers()), dtype=float)
        np.testing.assert_allclose(basis.matrix(stat, line), kernel.profile(stat), rtol=0, atol=1e-13 * size)


def test_powers_keep_only_those_that_occur():
    basis = PowerBasis([Polynomial(3).powers(), Linear().powers()], 2.0)
    assert basis.exponents.tolist() == [1, 3] and basis.rank == 2
    assert PowerBasis([np.zeros(3)], 0.0).coefficients.tolist() == [[0.0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stack_of_matrices(dtype):
    stack = rng.normal(size=(N_ROWS, 30, 3)).astype(dtype)
    basis = StackBasis([2, 0, 2])
    assert basis.rank == 2
    slots, weights = rng.permutation(30)[:11], rng.normal(size=11)
    out = accumulated(basis, stack, slots, weights, 20, 100)
    expected = np.stack([stack[20:100, slots, m].astype(float) @ weights for m in (2, 0, 2)], axis=1)
    np.testing.assert_allclose(out[20:100] @ basis.coefficients.T, expected, atol=1e-12)
    assert not out[:20].any() and not out[100:].any()


@pytest.mark.parametrize("index", [[0, 1, 2], [2, 1, 0, 1], [1]], ids=str)
def test_some_and_all_matrices_of_a_stack(index):
    stack, slots, weights = rng.normal(size=(N_ROWS, 30, 3)), rng.permutation(30)[:7], rng.normal(size=7)
    basis = StackBasis(index)
    expected = np.stack([stack[:, slots, m] @ weights for m in index], axis=1)
    np.testing.assert_allclose(
        accumulated(basis, stack, slots, weights) @ basis.coefficients.T, expected, atol=1e-12
    )


def test_the_base_class_says_what_is_missing():
    with pytest.raises(TypeError, match="Basis accumulates nothing"):
        Basis().accumulate(DISTANCES, np.arange(1), np.ones(1), np.zeros((1, 1)), 0, 1)
    with pytest.raises(TypeError, match="Basis has no function"):
        Basis().matrix(DISTANCES, np.ones(1))
