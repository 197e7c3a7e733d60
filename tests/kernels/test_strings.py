"""String kernels against their definitions, written out letter by letter."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl import kernels
from raymkl.data.alphabet import letters_of
from raymkl.data.strings import pack
from raymkl.kernels import RBF, Spectrum, WeightedDegree
from raymkl.kernels.pairs.basis import LinearBasis
from raymkl.kernels.pairs.families import group
from raymkl.kernels.pairs.match_counts import MatchCounts, RunBasis
from raymkl.kernels.pairs.string_statistics import KmerCounts, MatchRuns


def same(x, z, i, j, d, letters):
    a, b = x[i : i + d].upper(), z[j : j + d].upper()
    return len(a) == len(b) == d and a == b and set(a) <= set(letters)


def weighted_degree(x, z, degree, shift=0, letters="ACGT"):
    total = 0.0
    for d in range(1, degree + 1):
        beta = 2 * (degree - d + 1) / (degree * (degree + 1))
        for i in range(len(x) - d + 1):
            for s in range(shift + 1):
                total += (
                    beta
                    / (2 * (s + 1))
                    * (same(x, z, i + s, i, d, letters) + same(x, z, i, i + s, d, letters))
                )
    return total


def spectrum(x, z, k, letters="ACGT"):
    pieces = [
        Counter(p for p in (s[i : i + k].upper() for i in range(len(s) - k + 1)) if set(p) <= set(letters))
        for s in (x, z)
    ]
    return float(sum(count * pieces[1][piece] for piece, count in pieces[0].items()))


def matrix(function, X, Z, *arguments):
    return np.array([[function(x, z, *arguments) for z in Z] for x in X])


def relatives(n, length, letters="ACGT", seed=0, unknown=True):
    """Random sequences, half of them copies of others with a few letters changed, some unknown letters and
    lower case.
    """
    rng = np.random.default_rng(seed)
    rows = rng.choice(list(letters), (n, length))
    rows[n // 2 :] = rows[: n - n // 2]
    change = rng.random(rows.shape) < 0.08
    change[: n // 2] = False
    rows[change] = rng.choice(list(letters), change.sum())
    if unknown:
        rows[0, length // 2] = "?"
        rows[n - 1, 0] = "?"
    return ["".join(row) if i % 3 else "".join(row).lower() for i, row in enumerate(rows)]


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65, 128, 200])
@pytest.mark.parametrize(("degree", "shift"), [(1, 0), (2, 0), (7, 0), (20, 0), (3, 2), (6, 70)])
def test_weighted_degree_is_its_definition(length, degree, shift):
    X = relatives(6, length)
    if degree > length:
        with pytest.raises(ValueError, match="degree"):
            WeightedDegree(degree, shift)(X)
        return
    want = matrix(weighted_degree, X, X, degree, shift)
    kernel = WeightedDegree(degree, shift)
    np.testing.assert_allclose(kernel(X), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel(X[:2], X[2:]), want[:2, 2:], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(X), np.diag(want), rtol=1e-12, atol=1e-12)


sequences = st.integers(1, 75).flatmap(
    lambda length: st.lists(st.text("ACGTacgtNn-", min_size=length, max_size=length), min_size=1, max_size=5)
)


@settings(max_examples=60, deadline=None)
@given(sequences, st.integers(1, 9), st.integers(0, 4))
def test_weighted_degree_of_any_letters(X, degree, shift):
    degree = min(degree, len(X[0]))
    want = matrix(weighted_degree, X, X, degree, shift)
    np.testing.assert_allclose(WeightedDegree(degree, shift)(X), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(WeightedDegree(degree, shift).diag(X), np.diag(want), rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ACGTacgtN", min_size=1, max_size=40), min_size=1, max_size=6), st.integers(1, 31))
def test_spectrum_of_any_letters_and_lengths(X, k):
    want = matrix(spectrum, X, X, k)
    np.testing.assert_allclose(Spectrum(k)(X), want)
    np.testing.assert_allclose(Spectrum(k).diag(X), np.diag(want))
    np.testing.assert_allclose(Spectrum(k)(X[:1], X), want[:1])


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 9, 12])
def test_spectrum_by_blas_and_by_index(k):
    """Short and long sequences: products go through BLAS for the one and through an inverted index for the
    other.
    """
    for length in (12, 300):
        X, Z = relatives(7, length), relatives(5, length + 3, seed=1)
        np.testing.assert_allclose(Spectrum(k)(X, Z), matrix(spectrum, X, Z, k))


@pytest.mark.parametrize("alphabet", ["protein", "rna", "01", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "A"])
def test_alphabets_of_any_size(alphabet):
    letters = letters_of(alphabet)
    X = relatives(8, 70, letters)
    np.testing.assert_allclose(
        WeightedDegree(5, alphabet=alphabet)(X), matrix(weighted_degree, X, X, 5, 0, letters)
    )
    np.testing.assert_allclose(
        WeightedDegree(4, 3, alphabet=alphabet)(X), matrix(weighted_degree, X, X, 4, 3, letters)
    )
    for k in (1, 2, 11):
        np.testing.assert_allclose(Spectrum(k, alphabet=alphabet)(X), matrix(spectrum, X, X, k, letters))


def test_an_unknown_letter_matches_nothing():
    assert WeightedDegree(1)(["N"]).tolist() == [[0.0]]
    assert Spectrum(1)(["NNN", "ANA"]).tolist() == [[0.0, 0.0], [0.0, 4.0]]
    assert Spectrum(2)(["ANA"]).tolist() == [[0.0]]


def test_arithmetic_parameters_and_names():
    X = relatives(6, 30)
    one, two, other = WeightedDegree(3), WeightedDegree(degree=5, shift=1), Spectrum(k=2)
    np.testing.assert_allclose((one + two)(X), one(X) + two(X))
    np.testing.assert_allclose((one * other)(X), one(X) * other(X))
    np.testing.assert_allclose((one * one)(X), one(X) ** 2)
    np.testing.assert_allclose((0.5 * other).diag(X), 0.5 * other.diag(X))
    np.testing.assert_allclose((one + two).diag(X), one.diag(X) + two.diag(X))
    assert repr(two) == "WeightedDegree(degree=5, shift=1)"
    assert repr(Spectrum(3, view="seq", alphabet="rna")) == "Spectrum(k=3, view='seq', alphabet='rna')"
    assert two.get_params() == {"degree": 5, "shift": 1, "view": None, "alphabet": "dna"}
    assert Spectrum(3) == Spectrum(k=3) != Spectrum(k=4)
    with pytest.raises(ValueError, match="shift"):
        two.set_params(shift=-1)
    assert two.shift == 1


def test_strings_beside_numbers():
    X = {"seq": relatives(5, 20), "x": np.random.default_rng(0).normal(size=(5, 2))}
    both = Spectrum(2, view="seq") * RBF(0.3, view="x")
    np.testing.assert_allclose(both(X), Spectrum(2, view="seq")(X) * RBF(0.3, view="x")(X))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: WeightedDegree(0), "degree"),
        (lambda: WeightedDegree(2.5), "degree"),
        (lambda: WeightedDegree(True), "degree"),
        (lambda: WeightedDegree(3, shift=-1), "shift"),
        (lambda: Spectrum(0), "k must"),
        (lambda: Spectrum("3"), "k must"),
        (lambda: Spectrum(32), "at most 31"),
        (lambda: Spectrum(15, alphabet="protein"), "at most 14"),
        (lambda: Spectrum(10**9, alphabet="A"), "too large"),
        (lambda: Spectrum(3, alphabet="nucleic"), "alphabet"),
    ],
)
def test_parameters_out_of_range(make, word):
    with pytest.raises(ValueError, match=word):
        make()


def test_lengths_must_be_equal_for_weighted_degree():
    with pytest.raises(ValueError, match=r"length 4 and row 1 has length 3"):
        WeightedDegree(2)(["ACGT", "ACG"])
    with pytest.raises(ValueError, match="length"):
        WeightedDegree(2)(["ACGT"], ["ACG"])
    with pytest.raises(ValueError, match="length"):
        WeightedDegree(2)(["A"] * 90 + ["C" * 9999])


# -- families --------------------------------------------------------------------------------------


def test_equal_spectra_share_their_statistic():
    assert (
        Spectrum(3).statistic()
        == Spectrum(k=3, alphabet="TGCA").statistic()
        == (2.0 * Spectrum(3)).statistic()
    )
    assert len(group([Spectrum(3), Spectrum(3), 2.0 * Spectrum(3)])) == 1
    assert len(group([Spectrum(3), Spectrum(4)], join=True)) == 2


def test_all_degrees_are_one_family():
    bank = [WeightedDegree(d) for d in (5, 1, 3, 12, 3)] + [
        WeightedDegree(4, shift=2),
        WeightedDegree(6, shift=2),
        Spectrum(3),
    ]
    families = group(bank, join=True)
    assert [family.members for family in families] == [[0, 1, 2, 3, 4], [5, 6], [7]]
    assert families[0].statistic == MatchCounts(None, "ACGT", 0, (1, 3, 5, 12))
    assert families[1].statistic == MatchRuns(None, "ACGT", 2, (4, 6))
    assert families[0].planes == [2, 0, 1, 3, 1]
    assert len(group(bank)) == 7  # who does not ask for it gets one number per pair


def test_kernels_with_gates_of_their_own_share_the_pass_and_keep_values():
    bank = [WeightedDegree(d) for d in range(1, 7)]
    families = group(bank, list(range(6)), join=True)
    assert len(families) == 6
    assert {family.statistic for family in families} == {MatchRuns(None, "ACGT", 0, (1, 2, 3, 4, 5, 6))}


def test_products_stand_beside_the_family():
    bank = [
        WeightedDegree(2),
        WeightedDegree(3),
        WeightedDegree(3) * WeightedDegree(3),
        2.0 * WeightedDegree(4),
    ]
    families = group(bank, join=True)
    assert [family.members for family in families] == [[0, 1, 3], [2]]


def blocks_of(statistic, X, Z):
    a, b = (statistic.prepare({None: pack(part, "X", None)}) for part in (X, Z))
    dtype = statistic.cell_dtype({None: pack(X, "X", None)}, np.float64)
    block = statistic.empty_block(len(X) + 3, len(Z), dtype)
    slots = np.random.default_rng(0).permutation(len(X) + 3)[: len(X)]
    for start in range(0, len(X), 4):  # rows enter a few at a time
        statistic.fill(a.take(slice(start, start + 4)), b, block, slots[start : start + 4])
    return block, slots


@pytest.mark.parametrize("letters", ["ACGT", "AB", "ACDEFGHIKLMNPQRSTVWY"])
@pytest.mark.parametrize(
    ("length", "degrees"),
    [(40, range(1, 21)), (70, (1, 2, 4, 8, 12, 20)), (200, (2, 3, 4, 5)), (400, range(1, 41))],
)
def test_blocks_of_a_bank_of_degrees(letters, length, degrees):
    """Close relatives have long runs and fill their bytes: these pairs must be counted again, to the last
    match.
    """
    X = relatives(14, length, letters, unknown=False)
    bank = [WeightedDegree(d, alphabet=letters) for d in degrees]
    (family,) = group(bank, join=True)
    basis = family.basis(1.0)
    assert isinstance(basis, RunBasis)
    block, slots = blocks_of(family.statistic, X, X)
    K = np.stack([kernel(X) for kernel in bank], axis=-1)
    weights = np.random.default_rng(1).normal(size=len(X))
    out = np.ones((len(X), basis.rank))
    basis.accumulate(block, slots, weights, out, 0, 9)
    basis.accumulate(block, slots, weights, out, 9, len(X))
    np.testing.assert_allclose(
        (out - 1) @ basis.coefficients.T, np.einsum("k,kim->im", weights, K), rtol=1e-9, atol=1e-9
    )
    theta = np.random.default_rng(2).random(len(bank))
    got = np.empty((len(block.cells), len(X)))
    block.cells[np.setdiff1d(np.arange(len(block.cells)), slots)] = 0
    basis.function(basis.coefficients.T @ theta)(block, got)
    np.testing.assert_allclose(got[slots], K @ theta, rtol=1e-9)
    part = np.empty((2, len(X)))
    basis.function(basis.coefficients.T @ theta)(block[1:3], part)
    np.testing.assert_array_equal(part, got[1:3])


@pytest.mark.parametrize(
    "bank",
    [
        [WeightedDegree(4)],
        [WeightedDegree(2), WeightedDegree(9)],
        [Spectrum(2)],
        [Spectrum(7), 3.0 * Spectrum(7)],
    ],
)
def test_blocks_of_one_number_per_kernel(bank):
    X = relatives(10, 50)
    (family,) = group(bank, join=True)
    basis = family.basis(1.0)
    assert isinstance(basis, LinearBasis)
    block, slots = blocks_of(family.statistic, X, X)
    assert block.dtype == np.uint16
    K = np.stack([kernel(X) for kernel in bank], axis=-1)
    weights = np.random.default_rng(1).normal(size=len(X))
    out = np.zeros((len(X), basis.rank))
    basis.accumulate(block, slots, weights, out, 0, len(X))
    np.testing.assert_allclose(
        out @ basis.coefficients.T, np.einsum("k,kim->im", weights, K), rtol=1e-9, atol=1e-9
    )
    theta = np.random.default_rng(2).random(len(bank))
    np.testing.assert_allclose(basis.matrix(block[slots], basis.coefficients.T @ theta), K @ theta, rtol=1e-9)


def test_cells_are_as_wide_as_the_values():
    def rows(length):
        return {None: np.full((2, length), 65, np.uint8)}

    assert KmerCounts(k=3).cell_dtype(rows(257), np.float32) == np.uint16
    assert KmerCounts(k=3).cell_dtype(rows(259), np.float32) == np.float32
    assert KmerCounts(k=3).cell_dtype(rows(5000), np.float32) == np.float64
    assert MatchRuns(degrees=(20,)).cell_dtype(rows(70), np.float32) == np.uint16
    assert MatchRuns(degrees=(20,)).cell_dtype(rows(398), np.float64) == np.float64
    assert MatchRuns(degrees=(2,), shift=1).cell_dtype(rows(10), np.float32) == np.float32
    bank = MatchCounts(degrees=tuple(range(1, 21)))
    assert bank.cell_dtype(rows(398), np.float32) == np.uint8 and bank.pair_bytes(np.uint8) == 8
    assert bank.cell_dtype(rows(3000), np.float32) == np.uint16


def test_the_largest_values_fit_their_cells():
    """Identical sequences of one letter give the largest values there are."""
    X = ["A" * 257] * 3
    block, slots = blocks_of(KmerCounts(k=3), X, X)
    assert block.dtype == np.uint16 and (block[slots] == 255**2).all()
    degree = 17
    X = ["A" * 398] * 3
    statistic = MatchRuns(degrees=(degree,))
    block, slots = blocks_of(statistic, X, X)
    assert block.dtype == np.uint16
    np.testing.assert_allclose(
        WeightedDegree(degree).profile(block[slots]), weighted_degree(X[0], X[0], degree)
    )


def test_names_are_exported():
    assert {"Spectrum", "WeightedDegree"} <= set(kernels.__all__)
