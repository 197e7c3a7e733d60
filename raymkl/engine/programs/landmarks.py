"""Dual averaging over explicit features: an epoch costs O(n), and neither rows, features nor lost margins of
single rows are kept.

    theta_m = sum_i phi_m(x_i) N_i  (L, K),     f_k(x) = sum_m mu_m / (alpha t) <phi_m(x), theta_mk>,
    phi_m(x) = k_m(x, Z) K_ZZ^(-1/2)

Shards compute features of their rows, some hundred rows at a time, and the losses of all of them at the end
of an epoch; the coordinator visits rows in their order. The certificate needs theta, and how often margins
were lost: it is that of the approximate kernels <phi_m(x), phi_m(z)>. Rows that stay in their source are read
window by window, and rows of a window are visited in random order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...data.lazy_rows import SourceView, WindowReader
from ...data.rows import take
from ...kernels.base import Kernel
from ...kernels.features.landmarks import Landmarks
from ...kernels.normalize import scales
from ..rounds.coordinator import Coordinator
from ..shard.shard import Shard
from .dual_averaging import Task, kernel_weights, lost_margins, row_losses, visits
from .program import Program

NAME = "landmarks"
# Bytes of features that travel at a time.
FEATURE_BYTES = 32 * 2**20
# Rows that scores are computed of at a time.
SCORED_ROWS = 2_048
# Rows of a source that are read, and shuffled, together.
WINDOW_ROWS = 32_768


@dataclass
class State:
    """Where dual averaging is: theta (M, L, K), gain sum_i N[i, y_i], t visits, and the weight of the rows
    that were visited.
    """

    theta: np.ndarray
    gain: float = 0.0
    t: int = 0
    weight: float = 0.0

    @property
    def squares(self) -> np.ndarray:
        """(M,) ||theta_m||^2."""
        return np.einsum("mlk,mlk->m", self.theta, self.theta)


@dataclass
class Featured:
    """What was learned. mu : (M,). normalisation : (M,) factors of the kernels.

    points : (K, M, L) dual variables of the landmarks, by kernel: f_k(x) = sum_ml mu_m normalisation_m
    points[k, m, l] k_m(x, z_l).
    """

    state: State
    mu: np.ndarray
    normalisation: np.ndarray
    points: np.ndarray
    history: list[dict]


# -- what runs on a shard --------------------------------------------------------------------------


class _Bench:
    """Landmarks, and the rows of a shard: in memory, or those of a window of their source."""

    def __init__(self, shard: Shard, kernels: list[Kernel], rows: dict, spherical: bool):
        self.own, self.landmarks = shard.own, Landmarks(kernels, rows, spherical)
        self.roots: np.ndarray | None = None
        self.window, self.rows = (-1, -1), self.own.features  # of a source no window is read yet
        self.reader = (
            WindowReader(self.own.features)
            if any(isinstance(a, SourceView) for a in self.own.features.values())
            else None
        )

    def take(self, window: tuple[int, int], ids: np.ndarray) -> dict:
        """Own rows of some ids within a window, which is read if it is another one than the last."""
        if self.reader is not None and self.window != window:
            first, last = (min(max(edge - self.own.first, 0), self.own.n) for edge in window)
            self.window, self.rows = window, None
            self.rows = self.reader.read(first, last)
        start = self.own.first if self.reader is None else max(self.window[0], self.own.first)
        return take(self.rows, ids - start)

    def parts(self) -> Iterator[tuple[slice, dict]]:
        """All own rows, some at a time, and their numbers."""
        if self.reader is None:
            for start in range(0, self.own.n, SCORED_ROWS):
                part = slice(start, min(start + SCORED_ROWS, self.own.n))
                yield part, take(self.own.features, part)
        else:
            self.window, self.rows = (-1, -1), None
            yield from self.reader.parts(SCORED_ROWS)


def open_bench(
    shard: Shard, kernels: list[Kernel], rows: dict, spherical: bool, y: np.ndarray, weights: np.ndarray
) -> None:
    """Have landmarks, classes and weights of rows ready."""
    bench = _Bench(shard, kernels, rows, spherical)
    bench.y, bench.weights = y[shard.own.range], weights[shard.own.range]
    shard.scratch[NAME] = bench


def features(shard: Shard, window: tuple[int, int], ids: np.ndarray) -> np.ndarray:
    """(own rows of ids, M, L) features, before normalisation, in the order of ids."""
    bench: _Bench = shard.scratch[NAME]
    mine = ids[shard.own.has(ids)]
    M, L = bench.landmarks.n_kernels, bench.landmarks.size
    found = np.empty((len(mine), M, L))
    if len(mine):
        if bench.roots is None:
            bench.roots = bench.landmarks.roots()
        for m, values in bench.landmarks.values(bench.take(window, mine)):
            found[:, m] = values @ bench.roots[m]
    return found


def losses(shard: Shard, coefficients: np.ndarray) -> float:
    """Own part of sum_i c_i loss_i at scores sum_m k_m(x, Z) coefficients[m], (M, L, K)."""
    bench: _Bench = shard.scratch[NAME]
    total = 0.0
    for part, rows in bench.parts():
        weights = bench.weights[part]
        if not weights.any():
            continue
        scores = np.zeros((len(weights), coefficients.shape[2]))
        for m, values in bench.landmarks.values(rows):
            if coefficients[m].any():
                scores += values @ coefficients[m]
        total += float(weights @ row_losses(scores, bench.y[part]))
    return total


def moments(shard: Shard, sums: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Over own rows that count: (M,) sums of k_m(i, i), and (M, L) of k_m(i, Z) if wanted."""
    bench: _Bench = shard.scratch[NAME]
    M, L = bench.landmarks.n_kernels, bench.landmarks.size
    traces, columns = np.zeros(M), np.zeros((M, L)) if sums else None
    for part, rows in bench.parts():
        counts = (bench.weights[part] > 0).astype(float)
        for m, diagonal in bench.landmarks.diagonals(rows):
            traces[m] += counts @ diagonal
        for m, values in bench.landmarks.values(rows) if sums else ():
            columns[m] += counts @ values
    return traces, columns


# -- what runs in the coordinator ------------------------------------------------------------------


@dataclass
class LandmarkAveraging(Program):
    """Dual averaging over features of all rows.

    kernels, rows : of the landmarks, by view key. normalize : kind that factors are learned of, unless
    `normalisation` (M,) is given.
    state : to go on from, None begins with nothing. stream : these are rows of a stream, visited once: there
    are as many rows as visits so far, and the dual value is known, but not the losses of rows that are not
    here any more.
    """

    task: Task
    kernels: Sequence[Kernel]
    rows: dict
    normalize: str | None = None
    normalisation: np.ndarray | None = None
    state: State | None = None
    stream: bool = False
    history: list[dict] = field(default_factory=list)

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        task, started, crew = self.task, time.perf_counter(), coordinator.crew
        spherical = self.normalize == "spherical"
        crew.keep(NAME, open_bench, list(self.kernels), self.rows, spherical, task.y, task.weights)
        self.roots = Landmarks(self.kernels, self.rows, spherical).roots()
        M, L, _ = self.roots.shape
        if self.normalisation is None:
            self.normalisation = self._scales(crew)
        self.state = self.state or State(np.zeros((M, L, task.n_classes)))
        for epoch in [self.state.t + 1] if self.stream else range(1, task.max_iter + 1):
            self._epoch(crew, epoch)
            if self.stream:
                break
            found = task.certificate(
                self.state.squares,
                self.state.gain,
                sum(crew.apply(losses, self._coefficients())),
                self.state.t,
            )
            self.history.append({"epoch": epoch, "seconds": time.perf_counter() - started, **found})
            yield self.history[-1:]
            if found["gap"] <= task.tol or coordinator.winding_up:
                break
        crew.release(NAME)
        mu, _ = self._weights()
        self.found = Featured(
            self.state, mu, self.normalisation, self._points().transpose(2, 0, 1).copy(), self.history
        )

    def outcome(self) -> Featured:
        return self.found

    def _scales(self, crew: Any) -> np.ndarray:
        """(M,) factors of `normalize`; sums over all pairs are those of the approximate kernels."""
        if self.normalize not in ("multiplicative", "trace"):
            return np.ones(len(self.roots))
        sums = self.normalize == "multiplicative"
        parts = crew.apply(moments, sums)
        pairs = None
        if sums:
            columns = np.sum([part[1] for part in parts], axis=0)
            pairs = np.array([np.sum((c @ root) ** 2) for c, root in zip(columns, self.roots, strict=True)])
        return scales(self.normalize, np.sum([part[0] for part in parts], axis=0), pairs, self.task.n)

    def _weights(self) -> tuple[np.ndarray, float]:
        """(M,) mu, and what scores are multiplied with."""
        task, state = self.task, self.state
        if not self.stream:
            return task.kernel_weights(state.squares, state.t), task.scale(state.t)
        return kernel_weights(np.sqrt(state.squares), state.weight * task.prices, task.q), task.C

    def _points(self) -> np.ndarray:
        """(M, L, K) dual variables of the landmarks, kernel by kernel."""
        used = self.normalisation > 0  # a constant kernel has the factor 0: it has no part in anything
        factors = np.where(used, self._weights()[1] / np.sqrt(np.where(used, self.normalisation, 1.0)), 0.0)
        return np.stack([factors[m] * (root @ self.state.theta[m]) for m, root in enumerate(self.roots)])

    def _coefficients(self) -> np.ndarray:
        """(M, L, K) of the values of kernels as given with the landmarks."""
        return self._points() * (self._weights()[0] * self.normalisation)[:, None, None]

    def _epoch(self, crew: Any, epoch: int) -> None:
        """Visit every row once, batch by batch."""
        task, state = self.task, self.state
        M, L, K = state.theta.shape
        at_once = max(FEATURE_BYTES // (8 * M * L) // task.batch_size, 1) * task.batch_size
        roots = np.sqrt(self.normalisation)[:, None]
        flat = state.theta.reshape(M * L, K)
        for first, last, order in visits(np.flatnonzero(task.weights), task.seed, epoch, task.window):
            for start in range(0, len(order), at_once):
                ids = order[start : start + at_once]
                phi = _in_order(crew.apply(features, (first, last), ids), ids, crew.pool.ranges)
                phi *= roots
                phi = phi.reshape(len(ids), M * L)
                for at in range(0, len(ids), task.batch_size):
                    batch, rows = ids[at : at + task.batch_size], phi[at : at + task.batch_size]
                    mu, scale = self._weights()
                    weighted = (state.theta * (scale * mu)[:, None, None]).reshape(M * L, K)
                    change = lost_margins(rows @ weighted, task.y[batch], task.weights[batch])
                    lost = np.flatnonzero(np.any(change != 0, axis=1))
                    flat += rows[lost].T @ change[lost]
                    state.gain += float(np.maximum(change[lost], 0.0).sum())
                    state.t += len(batch)
                    state.weight += float(task.weights[batch].sum())


def _in_order(parts: list[np.ndarray], ids: np.ndarray, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
    """Features of shards, (own rows of ids, M, L) each, in the order of ids."""
    if len(parts) == 1:
        return parts[0]
    joined = np.empty((len(ids), *parts[0].shape[1:]))
    for part, (first, last) in zip(parts, ranges, strict=True):
        joined[(ids >= first) & (ids < last)] = part
    return joined
