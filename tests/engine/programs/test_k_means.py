"""Kernel k-means on shards: against the plain algorithm on the whole matrix, whatever the number of
shards.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from raymkl.data.store import KernelStore, StoreRows
from raymkl.engine import Problem
from raymkl.engine.pools.local import LocalPool
from raymkl.engine.programs import k_means
from raymkl.engine.programs.k_means import (
    evenness_of,
    fetch_rows,
    kernel_k_means,
    likelihoods,
    new_distances,
    tau_of_evenness,
)
from raymkl.engine.programs.program import forget
from raymkl.kernels import RBF, Custom, Laplacian, Linear, Precomputed, rbf, write_store
from raymkl.kernels.combined import CombinedKernel
from raymkl.kernels.pairs.families import group
from tests.reference import gram

BANK = [*rbf([0.05, 0.5]), Linear(), Laplacian(gamma=0.1)]


def blobs(n=90, seed=0):
    rng = np.random.default_rng(seed)
    which = rng.integers(0, 3, n)
    return rng.normal(size=(n, 2)) + np.array([[0, 0], [7, 0], [0, 9]])[which], which


def pool_of(rows, bank, shards=1):
    n = next(iter(rows.values())).shape[0]
    return LocalPool(rows, Problem(list(rows), group(bank), n, len(bank)), shards)


class Shards:
    """What k-means needs of a coordinator, straight from a pool."""

    def __init__(self, pool):
        self.pool = pool

    def apply(self, work, *arguments):
        return self.pool.call_all("apply", work, *arguments)

    def keep(self, name, work, *arguments):
        return self.apply(work, *arguments)

    def release(self, name):
        assert all(name in shard.scratch for shard in self.pool.shards)
        self.apply(forget, name)


def clusters_of(rows, bank, kernel=None, shards=1, n_clusters=3, n_init=5, active=None, seed=0):
    n = next(iter(rows.values())).shape[0]
    pool = pool_of(rows, bank, shards)
    try:
        ids = np.arange(n) if active is None else active
        return kernel_k_means(
            Shards(pool), kernel or CombinedKernel(bank), ids, n_clusters, n_init, np.random.default_rng(seed)
        )
    finally:
        pool.close()


def distances_by_definition(K, members):
    """(n, l) || phi(x_i) - sum_k members[k, j] phi(x_k) ||^2 from the whole matrix."""
    return np.diag(K)[:, None] - 2 * K @ members + np.einsum("kj,kl,lj->j", members, K, members)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_fixed_point_of_the_plain_algorithm(shards):
    X, which = blobs()
    found = clusters_of({None: X}, BANK, shards=shards)
    K = gram(BANK, X).mean(axis=2)
    labels = found.members.argmax(axis=1)
    members = (labels[:, None] == np.arange(3)) / np.bincount(labels)
    np.testing.assert_allclose(found.members, members)
    distances = distances_by_definition(K, members)
    np.testing.assert_array_equal(distances.argmin(axis=1), labels)  # no row would move
    np.testing.assert_allclose(found.distances, distances - np.diag(K)[:, None], atol=1e-9)
    assert found.error == pytest.approx(distances.min(axis=1).sum())
    # Well separated blobs are found, up to the order of the clusters.
    assert all(len(set(labels[which == j])) == 1 for j in range(3))


def test_the_partition_into_shards_does_not_matter():
    X, _ = blobs(61, seed=3)
    one, three = (clusters_of({None: X}, BANK, shards=k) for k in (1, 3))
    np.testing.assert_array_equal(one.members, three.members)
    np.testing.assert_allclose(one.distances, three.distances, atol=1e-10)


def test_the_best_of_all_starts_is_kept():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(80, 6))
    errors = [clusters_of({None: X}, BANK, n_clusters=6, n_init=k, seed=1).error for k in (1, 20)]
    assert errors[1] <= errors[0] * (1 + 1e-9)


def test_matrices_stores_sparse_rows_and_functions(tmp_path):
    X, _ = blobs(40, seed=2)
    bank = [RBF(0.05), Linear()]
    K = gram(bank, X)
    expected = clusters_of({None: X}, bank, shards=2)
    ready = [Precomputed(index=m) for m in range(2)]
    key = str(tmp_path / "store")
    write_store(key, bank, X, dtype="float64")
    on_disk = [Precomputed(view=key, index=m) for m in range(2)]
    for rows, kernels in (
        ({None: K}, ready),
        ({key: StoreRows(KernelStore(key))}, on_disk),
        ({None: sp.csr_matrix(X)}, bank),
        ({None: X}, [RBF(0.05), Custom(lambda A, B: A @ B.T)]),
    ):
        found = clusters_of(rows, kernels, shards=2)
        np.testing.assert_array_equal(found.members, expected.members)
        np.testing.assert_allclose(found.distances, expected.distances, atol=1e-8)


def test_a_chosen_kernel_over_another_view_and_spherical_kernels():
    X, _ = blobs(50, seed=4)
    Z = np.random.default_rng(0).normal(size=(50, 3))
    other = clusters_of({None: X, "z": Z}, [RBF(0.1)], CombinedKernel([RBF(0.3, view="z")]))
    alone = clusters_of({"z": Z}, [RBF(0.3, view="z")])
    np.testing.assert_array_equal(other.members, alone.members)
    bank = [Linear(), RBF(0.1)]
    K = gram(bank, X)
    K[..., 0] /= np.sqrt(np.outer(np.diag(K[..., 0]), np.diag(K[..., 0])))
    found = clusters_of({None: X}, bank, CombinedKernel(bank, [0.25, 0.75], [True, False]), shards=2)
    mixed = K @ [0.25, 0.75]
    np.testing.assert_allclose(
        found.distances, distances_by_definition(mixed, found.members) - np.diag(mixed)[:, None], atol=1e-9
    )


def test_rows_that_are_not_active_have_distances_but_no_part_in_the_means():
    X, _ = blobs(60)
    active = np.sort(np.random.default_rng(0).choice(60, 35, replace=False))
    found = clusters_of({None: X}, BANK, shards=3, active=active)
    np.testing.assert_array_equal(found.landmarks, active)
    K = gram(BANK, X).mean(axis=2)
    members = np.zeros((60, 3))
    members[active] = found.members
    np.testing.assert_allclose(
        found.distances, distances_by_definition(K, members) - np.diag(K)[:, None], atol=1e-9
    )


def test_many_rows_are_clustered_through_a_sample(monkeypatch):
    monkeypatch.setattr(k_means, "EXACT_ROWS", 100)
    monkeypatch.setattr(k_means, "SAMPLE", 60)
    X, which = blobs(300, seed=6)
    found = clusters_of({None: X}, BANK, shards=3)
    assert len(found.landmarks) == 60 and np.all(np.diff(found.landmarks) > 0)
    K = gram(BANK, X).mean(axis=2)
    members = np.zeros((300, 3))
    members[found.landmarks] = found.members
    np.testing.assert_allclose(
        found.distances, distances_by_definition(K, members) - np.diag(K)[:, None], atol=1e-8
    )
    labels = found.distances.argmin(axis=1)
    assert all(len(set(labels[which == j])) == 1 for j in range(3))


def test_equal_rows_and_as_many_clusters_as_rows():
    same = clusters_of({None: np.ones((7, 2))}, [RBF(0.1)], n_clusters=4)
    assert np.isfinite(same.distances).all() and np.all(same.members.sum(axis=0) == 1)
    X, _ = blobs(5)
    each = clusters_of({None: X}, [RBF(1.0)], n_clusters=5)
    assert each.error == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_array_equal(np.sort(each.members.argmax(axis=1)), np.arange(5))


def test_an_empty_cluster_gets_the_landmark_that_is_farthest_from_its_mean():
    distances = np.array([[0.0, 9, 9, 9], [1.0, 9, 9, 9], [5.0, 9, 9, 9], [4.0, 9, 9, 9], [9, 9, 9, 99.0]])
    labels = np.array([0, 0, 0, 0, 3])
    k_means._fill_empty(labels, distances, 4)
    np.testing.assert_array_equal(
        labels, [0, 0, 1, 2, 3]
    )  # the far landmark of cluster 3 is its only one and stays


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000), places=st.integers(1, 5), n=st.integers(5, 20), n_clusters=st.integers(1, 5)
)
def test_no_cluster_is_ever_empty(seed, places, n, n_clusters):
    """Rows that stand in fewer places than there are clusters, too."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(places, 2))[rng.integers(places, size=n)]
    found = clusters_of({None: X}, [RBF(0.3)], n_clusters=n_clusters, n_init=3, seed=seed)
    np.testing.assert_allclose(found.members.sum(axis=0), 1.0)
    assert np.all(np.count_nonzero(found.members, axis=1) == 1) and np.isfinite(found.distances).all()


def test_new_examples_by_definition():
    X, _ = blobs(40)
    T, _ = blobs(15, seed=9)
    found = clusters_of({None: X}, BANK)
    K, cross = gram(BANK, X).mean(axis=2), gram(BANK, T, X).mean(axis=2)
    columns = CombinedKernel(BANK).columns(found.rows, found.landmarks)
    expected = np.einsum("kj,kl,lj->j", found.members, K, found.members) - 2 * cross @ found.members
    np.testing.assert_allclose(
        new_distances(columns, {None: T}, found.members, found.offsets), expected, atol=1e-9
    )


def test_rows_are_fetched_in_order():
    X, _ = blobs(20)
    pool = pool_of({None: X}, BANK, 3)
    ids = np.array([0, 5, 6, 13, 19])
    np.testing.assert_array_equal(fetch_rows(Shards(pool), ids, [None])[None], X[ids])
    pool.close()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(2, 6),
    share=st.floats(0.05, 0.95),
    scale=st.floats(1e-6, 1e6),
)
def test_tau_gives_the_evenness_that_was_asked_for(seed, count, share, scale):
    distances = scale * np.random.default_rng(seed).uniform(size=(50, count))
    evenness = 1 / count + share * (1 - 1 / count)
    c = likelihoods(distances, tau_of_evenness(distances, evenness))
    assert np.mean(c / c.max(axis=1, keepdims=True)) == pytest.approx(evenness, abs=1e-6)
    np.testing.assert_allclose(c.sum(axis=1), 1.0)


def test_limits_of_the_likelihoods():
    distances = np.array([[0.0, 1.0, 3.0], [2.0, -1.0, 0.0]])
    assert tau_of_evenness(distances, 1.0) == 0.0
    np.testing.assert_allclose(likelihoods(distances, 0.0), 1 / 3)
    np.testing.assert_array_equal(likelihoods(distances, np.inf), [[1, 0, 0], [0, 1, 0]])
    assert evenness_of(distances, 0.0) == 1.0
    assert np.isfinite(tau_of_evenness(np.zeros((4, 3)), 0.5))  # equal distances: no tau reaches it
