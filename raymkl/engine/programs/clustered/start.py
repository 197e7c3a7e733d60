"""Before the first iteration: the prior of the rows at hand, and clusters to begin with."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ....optim.mixture.posterior import Prior, Statistics
from .on_shards import moments, nearest, some_rows

# Rows that k-means looks at, and its starts.
START_ROWS = 20_000
STARTS = 3
# Streams of random numbers of one seed.
SAMPLE, K_MEANS = 1, 2
# Parts of the prior where none are given.
MEAN_PRECISION, SPREAD = 0.1, 0.1


def mean_and_variances(crew: Any, n_columns: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Sum of the weights, and weighted mean and variances (d,) of the rows of all shards."""
    weight, sums, _ = _added(crew.apply(moments, np.zeros(n_columns)))
    mean = sums / weight
    for _ in range(2):  # columns far from zero: the second look is about the mean
        _, sums, squares = _added(crew.apply(moments, mean))
        mean, variances = mean + sums / weight, squares / weight - (sums / weight) ** 2
    return weight, mean, np.maximum(variances, 0.0)


def _added(parts: list[tuple]) -> tuple:
    """Sums over the shards, in their order."""
    return tuple(sum(values[1:], values[0]) for values in zip(*parts, strict=True))


def spreads(variances: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(d,) standard deviations; columns that are constant, but for round-off, count with one."""
    flat = variances <= (64 * np.finfo(float).eps * np.abs(mean)) ** 2
    return np.sqrt(np.where(flat, 1.0, variances))


def prior_of(parts: dict, mean: np.ndarray, spread: np.ndarray, concentration: float) -> Prior:
    """The prior: what is given of it, and for the rest what suits rows of such mean and spread (d,)."""
    d = len(mean)
    scatter = parts.get("scatter")
    if scatter is None:
        scatter = parts.get("spread", SPREAD) * np.diag(spread**2)
    return Prior(
        mean=np.asarray(parts.get("mean", mean), float),
        mean_precision=float(parts.get("mean_precision", MEAN_PRECISION)),
        degrees_of_freedom=float(parts.get("degrees_of_freedom", d + 2)),
        scatter=np.asarray(scatter, float),
        concentration=float(concentration),
    )


def first_statistics(
    crew: Any, n_rows: int, n_clusters: int, mean: np.ndarray, spread: np.ndarray, seed: int
) -> Statistics:
    """Statistics of all rows, each in the cluster of its nearest mean, after k-means on some of them.

    n_rows : of positive weight.
    """
    # Takes a while to load, and only mixtures need it.
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    ids = np.arange(n_rows)
    if n_rows > START_ROWS:
        ids = np.sort(np.random.default_rng([seed, SAMPLE]).choice(n_rows, START_ROWS, replace=False))
    parts = crew.apply(some_rows, ids)
    rows, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    scaled = (rows - mean) / spread
    distinct = (
        len(np.unique(scaled, axis=0))
        if len(scaled) <= 50 * n_clusters or len(scaled) <= 2_000
        else n_clusters
    )
    random_state = int(np.random.default_rng([seed, K_MEANS]).integers(2**31 - 1))
    kmeans = KMeans(max(1, min(n_clusters, distinct)), n_init=STARTS, random_state=random_state)
    with (
        warnings.catch_warnings(),
        threadpool_limits(1),
    ):  # with more threads sums come in another order each time
        warnings.simplefilter("ignore")  # it warns where rows are repeated
        kmeans.fit(scaled, sample_weight=weights)
    centers = kmeans.cluster_centers_ * spread + mean
    total: Statistics = sum_of(crew.apply(nearest, centers, spread))
    return total.take(np.flatnonzero(total.counts > 0))


def sum_of(parts: list) -> Any:
    """Sum over the shards, in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
