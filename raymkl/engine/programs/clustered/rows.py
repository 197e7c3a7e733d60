"""The rows of a shard, as a mixture with machines sees them.

What is kept between calls is derived from rows, posteriors and machines: losses by the stamp of a machine,
and the shares of the rows in the clusters. A shard that replaces another one computes them again when they
are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....kernels.features.random_features import draw_noise, frequencies, gradients, losses_of
from ....optim.mixture.descent import row_draws
from ....optim.mixture.posterior import (
    Densities,
    Posterior,
    Statistics,
    expected_logs,
    predictive,
    shares_of,
    statistics_of,
)
from .machines import Batch, Layout, Machines

# Numbers of a tile of rows by clusters and columns.
TILE = 2**20
# A cluster whose log share is so far below the best one, whatever its loss, has no share.
OUT = 30.0
# Shares below this do not count, and below this are no reason to train a machine with the row.
NO_SHARE, TRAINED_SHARE = 1e-14, 1e-4


@dataclass
class Pass:
    """What one pass over rows brings back: sum of v log sum exp, statistics, rows (K,) worth training with,
    losses (K,) by shares.
    """

    value: float
    statistics: Statistics
    rows: np.ndarray
    losses: np.ndarray

    def __add__(self, other: Pass) -> Pass:
        return Pass(
            self.value + other.value,
            self.statistics + other.statistics,
            self.rows + other.rows,
            self.losses + other.losses,
        )


@dataclass
class Shares:
    """Rows with a share in a cluster: numbers (k,) and shares (k,), the weights of rows included."""

    numbers: np.ndarray
    values: np.ndarray


class MixtureRows:
    """Rows of positive weight. X : (n, d). weights : (n,). ids : (n,) numbers among all such rows. y : (n,)
    classes, or None.

    mean : (d,) that statistics are taken about. losses : by stamp, (n,) with NaN where nobody has asked.
    shares : by cluster.
    """

    def __init__(self, X: np.ndarray, y: np.ndarray | None, weights: np.ndarray, first_id: int):
        self.every, self.used = X, None
        if not np.all(weights > 0):
            self.used = np.flatnonzero(weights > 0)
            X, weights, y = X[self.used], weights[self.used], None if y is None else y[self.used]
        self.X, self.y, self.weights = X, y, weights
        self.ids = first_id + np.arange(len(X))
        self.mean = np.zeros(X.shape[1])
        self.layout: Layout | None = None
        self.losses: dict[int, np.ndarray] = {}
        self.shares: list[Shares] = []
        self.epoch: tuple | None = None

    # -- passes ------------------------------------------------------------------------------------

    def tiles(self, n_clusters: int) -> Iterator[slice]:
        d = self.X.shape[1]
        step = max(256, TILE // max(1, n_clusters * d))
        for start in range(0, len(self.X), step):
            yield slice(start, min(start + step, len(self.X)))

    def centered(self, tile: slice | np.ndarray) -> np.ndarray:
        """Rows about the prior mean, float64."""
        return np.subtract(self.X[tile], self.mean, dtype=np.float64)

    def expect(self, q: Posterior, machines: Machines | None, beta: float, keep: bool = False) -> Pass:
        """Responsibilities under posteriors and machines, and what follows from them.

        keep : hold on to them as shares.
        """
        density = expected_logs(q)
        return self._pass(density, machines, beta, keep)

    def remember(self, q: Posterior, machines: Machines) -> Pass:
        """Hold on to memberships, which know nothing of labels, as shares."""
        found = self._pass(predictive(q), None, 0.0, keep=True)
        found.losses = self.losses_by_share(machines)
        return found

    def _pass(self, density: Densities, machines: Machines | None, beta: float, keep: bool) -> Pass:
        K, d = len(density.constants), self.X.shape[1]
        total = Pass(
            0.0,
            Statistics(np.zeros(K), np.zeros((K, d)), np.zeros((K, d, d))),
            np.zeros(K, np.int64),
            np.zeros(K),
        )
        columns = self._columns(machines) if machines is not None and beta > 0 else None
        kept: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(K)]
        for tile in self.tiles(K):
            U = self.centered(tile)
            logs = density.logs(U)
            if columns is not None:
                self._charge(logs, tile, machines, columns, beta)
            shares, values = shares_of(logs)
            weights = self.weights[tile]
            total.value += float(weights @ values)
            shares[shares < NO_SHARE] = 0.0
            rows = np.count_nonzero(shares > TRAINED_SHARE, axis=0)
            shares *= weights[:, None]
            total.statistics += statistics_of(U, shares)
            total.rows += rows
            if columns is not None:
                for k, column in enumerate(columns):
                    there = np.flatnonzero(shares[:, k])
                    total.losses[k] += float(shares[there, k] @ column[tile][there])
            if keep:
                for k in range(K):
                    there = np.flatnonzero(shares[:, k])
                    kept[k].append((there + tile.start, shares[there, k]))
        if keep:
            self.shares = [
                Shares(*(np.concatenate(part) for part in zip(*parts, strict=True))) if parts else _nobody()
                for parts in kept
            ]
            self.epoch = None
        return total

    def _charge(
        self, logs: np.ndarray, tile: slice, machines: Machines, columns: list[np.ndarray], beta: float
    ) -> None:
        """Take beta times the losses off logs (t, K), in place; -inf where a cluster can have no share
        whatever its loss.

        Losses are not negative, so that a cluster far below what another one has after its loss need not be
        asked for its own.
        """
        best = logs.argmax(axis=1)
        for k in range(logs.shape[1]):
            self._fill(k, np.flatnonzero(best == k) + tile.start, machines, columns)
        known = np.stack([column[tile] for column in columns], axis=1)
        with np.errstate(invalid="ignore"):
            floor = np.nanmax(logs - beta * known, axis=1) - OUT
        wanted = (logs > floor[:, None]) & np.isnan(known)
        for k in np.flatnonzero(wanted.any(axis=0)):
            self._fill(k, np.flatnonzero(wanted[:, k]) + tile.start, machines, columns)
            known[:, k] = columns[k][tile]
        logs -= beta * np.where(np.isnan(known), np.inf, known)

    # -- losses ------------------------------------------------------------------------------------

    def _columns(self, machines: Machines) -> list[np.ndarray]:
        """Losses (n,) of every machine as far as they are known."""
        return [self.losses.setdefault(int(stamp), np.full(len(self.X), np.nan)) for stamp in machines.stamps]

    def only(self, stamps: np.ndarray) -> None:
        """Forget losses of machines that are gone."""
        self.losses = {
            stamp: column for stamp, column in self.losses.items() if stamp in set(stamps.tolist())
        }

    def _fill(self, k: int, numbers: np.ndarray, machines: Machines, columns: list[np.ndarray]) -> None:
        missing = numbers[np.isnan(columns[k][numbers])] if len(numbers) else numbers
        if len(missing):
            columns[k][missing] = self.loss_of(k, machines, missing)

    def loss_of(self, k: int, machines: Machines, numbers: np.ndarray) -> np.ndarray:
        """Losses of own rows by machine k, float64."""
        coef = machines.coef[k]
        if not coef.any():
            return np.ones(len(numbers))  # all scores are equal
        frequency = frequencies(self.noise(int(machines.origins[k])), np.exp(machines.log_scales[k]))
        rows = np.subtract(self.X[numbers], self.layout.center, dtype=np.float64)
        return losses_of(rows, self.y[numbers], frequency, coef)

    def noise(self, origin: int) -> np.ndarray:
        """(D, d) of a cluster."""
        return noise_of(self.layout.seed, origin, self.layout.n_features, self.X.shape[1])

    def losses_by_share(self, machines: Machines) -> np.ndarray:
        """(K,) sum of losses of the rows that have a share in a cluster, by their shares."""
        columns = self._columns(machines)
        out = np.zeros(len(columns))
        for k, share in enumerate(self.shares):
            self._fill(k, share.numbers, machines, columns)
            out[k] = float(share.values @ columns[k][share.numbers])
        return out

    def cross_losses(self, machines: Machines, pairs: np.ndarray) -> np.ndarray:
        """(P,) losses of machine i on the rows of cluster j, by their shares there, for pairs (i, j)."""
        columns = self._columns(machines)
        out = np.zeros(len(pairs))
        for p, (i, j) in enumerate(pairs):
            self._fill(i, self.shares[j].numbers, machines, columns)
            out[p] = float(self.shares[j].values @ columns[i][self.shares[j].numbers])
        return out

    def entropies(self, pairs: np.ndarray) -> np.ndarray:
        """(P,) what the entropy of the responsibilities changes by when those of two clusters are added
        up.
        """
        out = np.zeros(len(pairs))
        for p, (i, j) in enumerate(pairs):
            _, a, b = np.intersect1d(
                self.shares[i].numbers, self.shares[j].numbers, assume_unique=True, return_indices=True
            )
            v = self.weights[self.shares[i].numbers[a]]
            r, s = self.shares[i].values[a] / v, self.shares[j].values[b] / v
            out[p] = -float(v @ ((r + s) * np.log(r + s) - r * np.log(r) - s * np.log(s)))
        return out

    # -- batches -----------------------------------------------------------------------------------

    def gradients(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Gradients (A, M, 2 D) and (A, d) of the losses of the rows of one step, by their shares."""
        by_coef, by_scales = np.zeros_like(batch.coef), np.zeros_like(batch.log_scales)
        order, edges = self._epoch_of(batch)
        center = self.layout.center
        for a, k in enumerate(batch.clusters):
            first, last = edges[k][batch.step : batch.step + 2]
            if first == last:
                continue
            chosen = order[k][first:last]
            numbers = self.shares[k].numbers[chosen]
            rows = np.subtract(self.X[numbers], center, dtype=np.float64).astype(np.float32)
            frequency = np.exp(batch.log_scales[a])[:, None] * short_noise_of(
                self.layout.seed, int(batch.origins[a]), self.layout.n_features, self.X.shape[1]
            )
            shares = self.shares[k].values[chosen].astype(np.float32)
            by_coef[a], by_scales[a] = gradients(
                rows, self.y[numbers], shares, frequency, batch.coef[a], batch.scales
            )
        return by_coef, by_scales

    def _epoch_of(self, batch: Batch) -> tuple[dict, dict]:
        """Places among a cluster's shares in the order of an epoch's steps, and where each step begins; made
        once per epoch.
        """
        key = (batch.epoch, batch.seed)
        if self.epoch is None or self.epoch[0] != key:
            draws = row_draws(batch.seed, batch.epoch, self.ids)
            self.epoch = (key, {}, {}, draws)
        _, order, edges, draws = self.epoch
        for k, steps in zip(batch.clusters.tolist(), batch.steps.tolist(), strict=True):
            if k not in order:
                share = self.shares[k]
                chosen = np.flatnonzero(share.values > TRAINED_SHARE * self.weights[share.numbers])
                part = np.minimum((draws[share.numbers[chosen]] * steps).astype(np.int64), steps - 1)
                place = np.argsort(part, kind="stable")
                order[k] = chosen[place]
                edges[k] = np.searchsorted(part[place], np.arange(steps + 1))
        return order, edges

    # -- the end -----------------------------------------------------------------------------------

    def labels(
        self, q: Posterior, machines: Machines | None, beta: float, every_y: np.ndarray | None
    ) -> np.ndarray:
        """(rows of the shard,) the cluster with the largest share of each row, also of those without
        weight.
        """
        rows = self
        if self.used is not None:
            rows = MixtureRows(self.every, every_y, np.ones(len(self.every)), 0)
            rows.mean, rows.layout = self.mean, self.layout
        density, out = expected_logs(q), np.empty(len(rows.X), np.int64)
        columns = rows._columns(machines) if machines is not None and beta > 0 else None
        for tile in rows.tiles(q.n_clusters):
            logs = density.logs(rows.centered(tile))
            if columns is not None:
                rows._charge(logs, tile, machines, columns, beta)
            out[tile] = logs.argmax(axis=1)
        return out


@lru_cache(maxsize=256)
def noise_of(seed: int, origin: int, n_features: int, n_columns: int) -> np.ndarray:
    """(D, d) noise of a cluster, drawn once per process."""
    return draw_noise(seed, origin, n_features, n_columns)


@lru_cache(maxsize=256)
def short_noise_of(seed: int, origin: int, n_features: int, n_columns: int) -> np.ndarray:
    """(d, D) of the same, float32."""
    return np.ascontiguousarray(noise_of(seed, origin, n_features, n_columns).T.astype(np.float32))


def _nobody() -> Shares:
    return Shares(np.empty(0, np.int64), np.empty(0))
