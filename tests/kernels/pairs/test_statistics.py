"""Pair statistics against double loops, their diagonals and bounds."""

import numpy as np
import pytest
import scipy.sparse as sp

from raymkl.kernels import RBF, Custom, Linear, Precomputed
from raymkl.kernels.pairs.statistics import (
    Chi2Distance,
    InnerProduct,
    Intersection,
    KernelValue,
    L1Distance,
    Matrices,
    Prepared,
    SquaredDistance,
    Statistic,
)

rng = np.random.default_rng(1)
# Histograms with empty bins: a bin that is empty in both rows has a zero denominator in the chi-squared
# distance.
A = rng.uniform(0, 2, size=(9, 5)) * (rng.uniform(size=(9, 5)) > 0.4)
B = rng.uniform(0, 2, size=(4, 5)) * (rng.uniform(size=(4, 5)) > 0.4)


def chi2(x, z):
    return sum((p - q) ** 2 / (p + q) for p, q in zip(x, z, strict=True) if p + q > 0)


NAIVE = [
    (SquaredDistance(), lambda x, z: sum((x - z) ** 2)),
    (InnerProduct(), lambda x, z: sum(x * z)),
    (L1Distance(), lambda x, z: sum(abs(x - z))),
    (Chi2Distance(), chi2),
    (Intersection(), lambda x, z: sum(np.minimum(x, z))),
]
ALL = pytest.mark.parametrize(
    "statistic, naive", NAIVE, ids=lambda value: type(value).__name__ if isinstance(value, Statistic) else ""
)


def naive_pairs(naive, left, right):
    return np.array([[naive(x, z) for z in right] for x in left], dtype=float)


@ALL
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_pairs_and_diagonal(statistic, naive, dtype, tolerance):
    a, b = statistic.prepare({None: A}, dtype), statistic.prepare({None: B}, dtype)
    pairs = statistic.pairs(a, b)
    assert pairs.dtype == dtype and pairs.flags.c_contiguous
    np.testing.assert_allclose(pairs, naive_pairs(naive, A, B), atol=tolerance)
    np.testing.assert_allclose(statistic.diagonal(a), [naive(x, x) for x in A], atol=tolerance)


@ALL
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_caches_fill_piece_by_piece(statistic, naive, dtype, form, monkeypatch):
    """Pieces that divide neither the rows nor the columns; slots in any order; all other slots stay as they
    are.
    """
    monkeypatch.setattr("raymkl.kernels.pairs.statistics.SQUARE", 3)
    monkeypatch.setattr("raymkl.kernels.pairs.statistics.PORTION_BYTES", 200)
    a, b = statistic.prepare({None: form(B)}, dtype), statistic.prepare({None: form(A)}, dtype)
    cache, slots = np.full((7, len(A)), -1.0, dtype), np.array([5, 0, 6, 2])
    statistic.fill(a, b, cache, slots)
    np.testing.assert_allclose(cache[slots], naive_pairs(naive, B, A), atol=1e-5)
    np.testing.assert_array_equal(cache[[1, 3, 4]], -1)


@ALL
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array], ids=lambda f: f.__name__)
def test_sparse_rows_give_the_same(statistic, naive, form):
    expected = naive_pairs(naive, A, B)
    dense = statistic.prepare({None: B})
    thin, thin_too = statistic.prepare({None: form(A)}), statistic.prepare({None: form(B)})
    np.testing.assert_allclose(statistic.pairs(thin, thin_too), expected, atol=1e-12)
    np.testing.assert_allclose(statistic.pairs(thin, dense), expected, atol=1e-12)
    np.testing.assert_allclose(statistic.pairs(dense, thin), expected.T, atol=1e-12)
    np.testing.assert_allclose(statistic.diagonal(thin), [naive(x, x) for x in A], atol=1e-12)


@ALL
def test_taking_rows_of_prepared_ones(statistic, naive):
    a, b = statistic.prepare({None: A}), statistic.prepare({None: B})
    index = np.array([7, 0, 7])
    part = a.take(index)
    assert len(part) == 3 and len(a) == 9
    np.testing.assert_array_equal(statistic.diagonal(part), statistic.diagonal(a)[index])
    np.testing.assert_allclose(statistic.pairs(part, b), naive_pairs(naive, A[index], B), atol=1e-12)


@ALL
def test_the_bound_covers_every_pair(statistic, naive):
    """Tables end at the bound, so no pair of rows may lie beyond it; shards report `largest` of their own
    rows.
    """
    largest = max(statistic.largest(statistic.prepare({None: rows})) for rows in (A[:3], A[3:], B))
    everything = np.vstack([A, B])
    assert naive_pairs(naive, everything, everything).max() <= statistic.bound(largest) * (1 + 1e-12)
    assert statistic.largest(statistic.prepare({None: A[:0]})) == 0.0


@pytest.mark.parametrize(
    "statistic", [SquaredDistance(), InnerProduct(), L1Distance(), Chi2Distance(), Intersection()]
)
def test_no_rows(statistic):
    empty, some = statistic.prepare({None: A[:0]}), statistic.prepare({None: A})
    assert statistic.pairs(empty, some).shape == (0, 9) and statistic.pairs(some, empty).shape == (9, 0)


@pytest.mark.parametrize(
    "statistic", [SquaredDistance(), InnerProduct(), L1Distance(), Chi2Distance(), Intersection()]
)
def test_rows_of_different_width_are_an_error(statistic):
    """A loop that trusts the first width would read beyond the second array."""
    with pytest.raises(ValueError):
        statistic.pairs(statistic.prepare({None: A}), statistic.prepare({None: B[:, :3]}))


def test_centring_keeps_distances_and_removes_round_off():
    far = {None: A + 1000.0}
    centred = SquaredDistance().prepare(far, np.float32, {None: far[None].mean(axis=0)})
    plain = SquaredDistance().prepare(far, np.float32)
    expected = naive_pairs(lambda x, z: sum((x - z) ** 2), A, A)
    error = np.abs(SquaredDistance().pairs(centred, centred) - expected).max()
    assert error < 1e-5 < np.abs(SquaredDistance().pairs(plain, plain) - expected).max()


def test_centres_leave_sparse_rows_alone():
    """Shifting would fill them up."""
    prepared = SquaredDistance().prepare({None: sp.csr_matrix(A)}, centers={None: A.mean(axis=0)})
    np.testing.assert_array_equal(prepared.array.toarray(), A)


def test_squared_distances_are_never_negative():
    """Round-off of |x|^2 + |z|^2 - 2x'z must not leave the range that tables cover."""
    near = 1e3 + 1e-7 * rng.normal(size=(30, 5))
    for dtype in (np.float32, np.float64):
        prepared = SquaredDistance().prepare({None: near}, dtype)
        pairs = SquaredDistance().pairs(prepared, prepared)
        assert pairs.min() >= 0 and not np.signbit(pairs).any()


def test_equality_is_by_class_and_view():
    assert SquaredDistance("a") == SquaredDistance("a") and hash(SquaredDistance("a")) == hash(
        SquaredDistance("a")
    )
    assert SquaredDistance("a") != SquaredDistance("b") and L1Distance() != Chi2Distance()
    assert (
        len({SquaredDistance(), InnerProduct(), L1Distance(), Chi2Distance(), Intersection(), Matrices()})
        == 6
    )
    assert KernelValue(kernel=RBF(1.0)) == KernelValue(kernel=RBF(1.0)) != KernelValue(kernel=RBF(2.0))


def test_views_are_read_from_the_rows():
    rows = {"a": A, "b": B}
    assert SquaredDistance("b").views == ("b",)
    np.testing.assert_array_equal(L1Distance("b").prepare(rows).array, B)
    assert KernelValue(kernel=RBF(view="a") + Linear(view="b")).views == ("a", "b")


def test_value_of_a_kernel_as_a_statistic():
    kernel = Custom(lambda left, right: 3 * left @ right.T)
    statistic = kernel.statistic()
    a, b = statistic.prepare({None: A}), statistic.prepare({None: B})
    np.testing.assert_allclose(statistic.pairs(a, b), 3 * A @ B.T)
    np.testing.assert_allclose(statistic.diagonal(a), 3 * (A**2).sum(axis=1))
    assert statistic.largest(a) == pytest.approx(3 * (A**2).sum(axis=1).max())


def test_ready_made_matrices():
    statistic = Precomputed("K").statistic()
    assert statistic == Matrices("K") and not statistic.cacheable
    for dtype, kept in ((np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float64)):
        assert statistic.prepare({"K": np.ones((3, 3, 2), dtype)}).array.dtype == kept
    with pytest.raises(TypeError, match="Matrices has no pairs"):
        statistic.pairs(Prepared(A), Prepared(B))
