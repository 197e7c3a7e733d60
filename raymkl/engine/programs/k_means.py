"""Kernel k-means over the shards, and the likelihoods of the clusters.

    min over partitions S_1..S_l of   sum_j sum_{i in S_j} || phi(x_i) - mu_j ||^2,      mu_j = mean of phi
    over S_j

in the feature space of one (combined) kernel. Every shard holds the kernel values of its own landmarks with
all landmarks; a Lloyd step sends memberships out and brings products back, for all starts at once. Up to
`EXACT_ROWS` rows every row is a landmark and the algorithm is exact. Beyond, it runs on a random sample of
`SAMPLE` rows (means of clusters are then means over the sample) and all other rows get their distances in one
pass, so that memory and time grow with n and not with n^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.rows import concatenate
from ...kernels.combined import Columns, CombinedKernel, pick
from ..shard.shard import Shard

EXACT_ROWS = 5_000
SAMPLE = 2_048
MAX_STEPS = 100
# From this many landmarks on kernel values are kept in float32.
LARGE_BLOCK = 1_500
# Starts whose errors agree to this part found the same partition; the first of them is taken on every
# machine.
SAME_ERROR = 1e-9


@dataclass
class Clusters:
    """What k-means found.

    landmarks : (L,) ids. rows : their features by view key. members : (L, l) weights of the means over
    landmarks, each column sums to one. offsets : (l,) ||mu_j||^2. distances : (n, l) squared distances of all
    rows, less k(x, x), which is the same for all clusters. error : sum of squared distances of the landmarks.
    steps : Lloyd steps.
    """

    landmarks: np.ndarray
    rows: dict
    members: np.ndarray
    offsets: np.ndarray
    distances: np.ndarray
    error: float
    steps: int


# -- what runs on a shard --------------------------------------------------------------------------


def rows_of_shard(shard: Shard, ids: np.ndarray, views: list) -> dict:
    """Features of those of the given rows that the shard owns."""
    return shard.own.take(views, shard.own.numbers(ids))


def begin_clusters(shard: Shard, kernel: CombinedKernel, ids: np.ndarray, rows: dict) -> np.ndarray:
    """Keep the kernel values of own landmarks with all landmarks; returns k(x, x) of own landmarks."""
    columns = kernel.columns(rows, ids)
    own = ids[shard.own.has(ids)]
    views = {view: shard.own.features[view] for view in kernel.views}
    block = columns.values(
        pick(views, own - shard.own.first), np.float32 if len(ids) >= LARGE_BLOCK else np.float64
    )
    shard.scratch["clusters"] = (columns, block, own, views)
    # Row k of the block is the landmark with number at[k].
    at = np.searchsorted(ids, own)
    return np.array(block[np.arange(len(own)), at], np.float64)


def landmark_products(shard: Shard, right: np.ndarray) -> np.ndarray:
    """(own landmarks, c) kernel values with all landmarks times right (L, c)."""
    _, block, _, _ = shard.scratch["clusters"]
    return block @ right.astype(block.dtype)


def landmark_columns(shard: Shard, picked: np.ndarray) -> np.ndarray:
    """(own landmarks, c) kernel values with the landmarks of the given numbers."""
    return np.asarray(shard.scratch["clusters"][1][:, picked], np.float64)


def all_products(shard: Shard, right: np.ndarray) -> np.ndarray:
    """(own rows, c) kernel values with all landmarks times right (L, c)."""
    columns, block, own, views = shard.scratch["clusters"]
    if len(own) == shard.own.n:
        return np.asarray(block @ right.astype(block.dtype), np.float64)
    return columns.products(views, right)


# -- what runs in the coordinator ------------------------------------------------------------------


def fetch_rows(shards: Any, ids: np.ndarray, views: list) -> dict:
    """Features of sorted ids, from the shards that own them."""
    if not views or len(ids) == 0:
        return {}
    parts = shards.apply(rows_of_shard, ids, views)
    # An empty part may have another width (an empty shard); there is always one that is not empty.
    return concatenate([part for part in parts if next(iter(part.values())).shape[0]])


def kernel_k_means(
    shards: Any,
    kernel: CombinedKernel,
    active: np.ndarray,
    n_clusters: int,
    n_init: int,
    random: np.random.Generator,
) -> Clusters:
    """Clusters of the active rows (sorted ids), the best of `n_init` starts; distances are those of all rows.

    shards : a crew, or anything with its `apply`, `keep` and `release`.
    Starting means are spread out by sampling with probability proportional to the squared distance. A cluster
    that loses its last landmark is given the landmark that is farthest from its own mean.
    """
    landmarks = active if len(active) <= EXACT_ROWS else np.sort(random.choice(active, SAMPLE, replace=False))
    rows = fetch_rows(shards, landmarks, kernel.vector_views)
    diagonal = np.concatenate(shards.keep("clusters", begin_clusters, kernel, landmarks, rows))
    labels = _first_labels(shards, diagonal, n_clusters, n_init, random)
    errors = np.full(n_init, np.inf)
    running, steps = np.arange(n_init), 0
    while len(running) and steps < MAX_STEPS:
        steps += 1
        distances = _distances(shards, diagonal, labels[running], n_clusters)
        fresh = distances.argmin(axis=2)
        errors[running] = np.take_along_axis(distances, fresh[:, :, None], axis=2).sum(axis=(1, 2))
        for start in range(len(running)):
            _fill_empty(fresh[start], distances[start], n_clusters)
        moved = np.any(fresh != labels[running], axis=1)
        labels[running] = fresh
        running = running[moved]
    best = int(np.flatnonzero(errors <= errors.min() + SAME_ERROR * max(abs(diagonal).sum(), 1e-300))[0])
    members = _members(labels[best], n_clusters)
    products = np.concatenate(shards.apply(landmark_products, members))
    offsets = np.einsum("ij,ij->j", members, products.astype(np.float64))
    distances = offsets - 2.0 * np.concatenate(shards.apply(all_products, members))
    shards.release("clusters")
    return Clusters(landmarks, rows, members, offsets, distances, float(errors[best]), steps)


def _members(labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """(L, l) one over the size of its cluster where a landmark is in it."""
    members = (labels[:, None] == np.arange(n_clusters)).astype(float)
    return members / np.maximum(members.sum(axis=0), 1.0)


def _distances(shards: Any, diagonal: np.ndarray, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """(starts, L, l) squared distances of the landmarks to the means of every start. labels : (starts, L)."""
    members = np.concatenate([_members(row, n_clusters) for row in labels], axis=1)
    products = np.concatenate(shards.apply(landmark_products, members)).astype(np.float64)
    offsets = np.einsum("ij,ij->j", members, products)
    distances = np.maximum(diagonal[:, None] - 2.0 * products + offsets, 0.0)
    return distances.reshape(len(diagonal), len(labels), n_clusters).transpose(1, 0, 2)


def _first_labels(
    shards: Any, diagonal: np.ndarray, n_clusters: int, n_init: int, random: np.random.Generator
) -> np.ndarray:
    """(starts, L) labels from means that are single landmarks, far from each other."""
    n = len(diagonal)
    picked = random.integers(n, size=(1, n_init))
    distances = np.empty((n_clusters, n, n_init))
    for j in range(n_clusters):
        values = np.concatenate(shards.apply(landmark_columns, picked[j]))
        distances[j] = np.maximum(diagonal[:, None] - 2.0 * values + diagonal[picked[j]], 0.0)
        if j + 1 == n_clusters:
            break
        nearest = distances[: j + 1].min(axis=0)
        nearest[picked, np.arange(n_init)] = 0.0
        totals = nearest.sum(axis=0)
        # Where all rows are alike there is nothing to prefer.
        chances = np.where(totals > 0, nearest / np.where(totals > 0, totals, 1.0), 1.0 / n)
        reached = np.cumsum(chances, axis=0)
        new = (reached <= random.random(n_init) * reached[-1]).sum(axis=0)
        picked = np.vstack([picked, np.minimum(new, n - 1)])
    labels = distances.argmin(axis=0).T
    for start in range(n_init):
        _fill_empty(labels[start], distances[:, :, start].T, n_clusters)
    return labels


def _fill_empty(labels: np.ndarray, distances: np.ndarray, n_clusters: int) -> None:
    """Give every empty cluster the landmark that is farthest from its mean, in place. distances : (L, l)."""
    sizes = np.bincount(labels, minlength=n_clusters)
    for j in np.flatnonzero(sizes == 0):
        own = np.take_along_axis(distances, labels[:, None], axis=1)[:, 0]
        own[sizes[labels] < 2] = -1.0  # the only landmark of a cluster stays
        farthest = int(own.argmax())
        sizes[labels[farthest]] -= 1
        labels[farthest], sizes[j] = j, 1


# -- likelihoods -----------------------------------------------------------------------------------


def likelihoods(distances: np.ndarray, tau: float) -> np.ndarray:
    """(n, l) c_j(x) proportional to exp(-tau * distances), rows sum to one; tau = inf puts every row into its
    nearest cluster.
    """
    if np.isinf(tau):
        return (distances.argmin(axis=1)[:, None] == np.arange(distances.shape[1])).astype(float)
    values = np.exp(-tau * (distances - distances.min(axis=1, keepdims=True)))
    return values / values.sum(axis=1, keepdims=True)


def evenness_of(distances: np.ndarray, tau: float) -> float:
    """Average evenness mean_i mean_j c_j(x_i) / max_j c_j(x_i): 1 at tau = 0, 1 / l for hard clusters."""
    return float(np.exp(-tau * (distances - distances.min(axis=1, keepdims=True))).mean())


def tau_of_evenness(distances: np.ndarray, evenness: float) -> float:
    """The tau whose average evenness is the given one, by bisection; rows at equal distances may put a limit
    to it.
    """
    if evenness >= 1:
        return 0.0
    excess = distances - distances.min(axis=1, keepdims=True)
    typical = float(np.median(excess[excess > 0])) if np.any(excess > 0) else 1.0
    low, high = 0.0, 1.0 / typical
    while evenness_of(distances, high) > evenness and high * typical < 1e12:
        low, high = high, 4.0 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if evenness_of(distances, middle) > evenness else (low, middle)
    return high


def new_distances(columns: Columns, rows: dict, members: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(n, l) squared distances of new examples (rows by view key) to the means, less k(x, x)."""
    return offsets - 2.0 * columns.products(rows, members)
