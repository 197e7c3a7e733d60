"""What a mixture asks of every shard, about its `MixtureRows`."""

from __future__ import annotations

import numpy as np

from ....optim.mixture.posterior import Posterior, Statistics, statistics_of
from ...shard.shard import Shard
from .machines import Batch, Layout, Machines
from .rows import MixtureRows, Pass, Shares

NAME = "mixture"


def open_rows(shard: Shard, view: object, y: np.ndarray | None, weights: np.ndarray) -> None:
    """Have rows ready. y : (n_total,) classes. weights : (n_total,)."""
    first_id = int(np.count_nonzero(weights[: shard.own.first]))
    own = None if y is None else y[shard.own.range]
    shard.scratch[NAME] = MixtureRows(shard.own.features[view], own, weights[shard.own.range], first_id)


def n_columns(shard: Shard) -> int:
    """Columns of the rows."""
    return shard.scratch[NAME].X.shape[1]


def settle(shard: Shard, mean: np.ndarray, layout: Layout | None) -> None:
    """Say what statistics are taken about, and what machines have in common."""
    rows: MixtureRows = shard.scratch[NAME]
    rows.mean, rows.layout = mean, layout


def moments(shard: Shard, about: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Sums of v, v (x - about) and v (x - about)^2 over own rows."""
    rows: MixtureRows = shard.scratch[NAME]
    d = rows.X.shape[1]
    sums, squares = np.zeros(d), np.zeros(d)
    for tile in rows.tiles(1):
        U = np.subtract(rows.X[tile], about, dtype=np.float64)
        sums += rows.weights[tile] @ U
        squares += rows.weights[tile] @ (U * U)
    return float(rows.weights.sum()), sums, squares


def some_rows(shard: Shard, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (k, d), float64, and weights (k,) of those of the numbers (among rows of positive weight) that are
    here.
    """
    rows: MixtureRows = shard.scratch[NAME]
    first = rows.ids[0] if len(rows.ids) else 0
    mine = ids[(ids >= first) & (ids < first + len(rows.ids))] - first
    return np.asarray(rows.X[mine], np.float64), rows.weights[mine]


def nearest(shard: Shard, centers: np.ndarray, spread: np.ndarray) -> Statistics:
    """Statistics of rows that belong to the nearest of centers (K, d), in columns divided by spread (d,)."""
    rows: MixtureRows = shard.scratch[NAME]
    K, d = centers.shape
    total = Statistics(np.zeros(K), np.zeros((K, d)), np.zeros((K, d, d)))
    scaled = (centers - rows.mean) / spread
    for tile in rows.tiles(K):
        U = rows.centered(tile)
        part = U / spread
        distances = np.sum(scaled**2, axis=1) - 2.0 * part @ scaled.T
        shares = np.zeros((len(U), K))
        shares[np.arange(len(U)), distances.argmin(axis=1)] = rows.weights[tile]
        total += statistics_of(U, shares)
    return total


def expect(shard: Shard, q: Posterior, machines: Machines | None, beta: float, keep: bool = False) -> Pass:
    """A pass over own rows, see `MixtureRows.expect`."""
    rows: MixtureRows = shard.scratch[NAME]
    if machines is not None:
        rows.only(machines.stamps)
    return rows.expect(q, machines, beta, keep)


def remember(shard: Shard, q: Posterior, machines: Machines) -> Pass:
    return shard.scratch[NAME].remember(q, machines)


def take_labels(shard: Shard, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Take shares from labels (n_total,) of rows of positive weight; returns (K,) rows of every cluster."""
    rows: MixtureRows = shard.scratch[NAME]
    own = labels[rows.ids]
    rows.shares = []
    for k in range(n_clusters):
        numbers = np.flatnonzero(own == k)
        rows.shares.append(Shares(numbers, rows.weights[numbers]))
    rows.epoch = None
    return np.bincount(own, minlength=n_clusters)


def entropies(shard: Shard, pairs: np.ndarray) -> np.ndarray:
    return shard.scratch[NAME].entropies(pairs)


def cross_losses(shard: Shard, machines: Machines, pairs: np.ndarray) -> np.ndarray:
    return shard.scratch[NAME].cross_losses(machines, pairs)


def losses_by_share(shard: Shard, machines: Machines) -> np.ndarray:
    return shard.scratch[NAME].losses_by_share(machines)


def all_losses(shard: Shard, machines: Machines) -> np.ndarray:
    """(own rows, K) losses of all machines."""
    rows: MixtureRows = shard.scratch[NAME]
    every = np.arange(len(rows.X))
    return np.stack([rows.loss_of(k, machines, every) for k in range(len(machines.stamps))], axis=1)


def batch_gradients(shard: Shard, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    return shard.scratch[NAME].gradients(batch)


def final_labels(
    shard: Shard, q: Posterior, machines: Machines | None, beta: float, y: np.ndarray | None
) -> np.ndarray:
    """(own rows,) clusters, see `MixtureRows.labels`. y : (n_total,) classes."""
    return shard.scratch[NAME].labels(q, machines, beta, None if y is None else y[shard.own.range])
