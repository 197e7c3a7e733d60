"""Tail sums of kernels over rows that are spread over shards: the trace of every matrix less its largest
eigenvalues.

    tail_m = trace(K_m) - sum_{j <= zeta} lambda_mj

Subspaces of a few more than zeta vectors per kernel begin with the eigenvectors of some hundred rows
(landmarks), spread to all rows by K_m itself, and are multiplied by K_m until Ritz values are known well
enough. A product goes over the pair statistics once for all kernels that are not done. Every shard computes
the kernel values of its own rows with a block of others, so that nobody ever holds a whole matrix. Beyond
`MOST_ROWS` rows the eigenvalues are those of evenly spaced ones, as a part of their trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...kernels.base import Kernel, row_centers
from ...kernels.combined import pick
from ...kernels.matrices import kernel_matrices
from ...kernels.pairs.families import Family, group
from ...kernels.pairs.statistics import Matrices
from ..rounds.coordinator import Coordinator
from ..shard.shard import Shard
from .k_means import fetch_rows
from .program import Program

# Rows whose eigenvectors the subspaces begin with, rows that products go over at most, columns of a block,
# rows of a part of it.
LANDMARKS = 1024
MOST_ROWS = 16_384
COLUMNS = 2048
PART = 256
# Vectors of a subspace beyond those that are wanted, products at most, and the error, relative to the tail,
# at which a kernel is done.
MORE = 4
PRODUCTS = 12
ENOUGH = 2e-3
# Ready-made matrices whose landmarks are gathered at a time.
TOGETHER = 16


class TailSums(Program):
    """Find the tail sums of kernels. masks : (H, n) rows that count. zeta : eigenvalues that are left out."""

    def __init__(self, kernels: Sequence[Kernel], masks: np.ndarray, zeta: int):
        self.kernels, self.masks, self.zeta = list(kernels), masks, zeta

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        found = [
            tails_of_rows(coordinator.crew, self.kernels, np.flatnonzero(mask), self.zeta)
            for mask in self.masks
        ]
        self.tails, self.traces = (np.stack(parts) for parts in zip(*found, strict=True))
        yield []

    def outcome(self) -> tuple[np.ndarray, np.ndarray]:
        """Tail sums and traces, both (H, M)."""
        return self.tails, self.traces


# -- what runs on a shard --------------------------------------------------------------------------


def traces_of_shard(shard: Shard, kernels: list[Kernel], ids: np.ndarray) -> np.ndarray:
    """(M,) sum of k_m(i, i) over those of the rows that the shard owns."""
    sums, local = np.zeros(len(kernels)), shard.own.numbers(ids)
    for family in group(kernels) if len(local) else ():
        if isinstance(family.statistic, Matrices):
            diagonal = shard.stacks.diagonal(shard.own.features[family.statistic.view])
            sums[family.members] = diagonal[local].sum(axis=0)[[kernel.index for kernel in family.kernels]]
            continue
        rows = _own(shard, family, local)
        t = family.statistic.diagonal(family.statistic.prepare(rows))
        sums[family.members] = [
            float(np.sum(family.values(i, t), dtype=float)) for i in range(len(family.members))
        ]
    return sums


def products_of_shard(
    shard: Shard, kernels: list[Kernel], ids: np.ndarray, columns: np.ndarray, rows: dict, right: np.ndarray
) -> np.ndarray:
    """(M, own, b) kernel values of those of the rows that the shard owns with the columns (k,), times right
    (M, k, b).

    rows : features of the columns.
    """
    local = shard.own.numbers(ids)
    out = np.zeros((len(kernels), len(local), right.shape[2]))
    centers = row_centers(rows)
    for family in group(kernels) if len(local) else ():
        statistic = family.statistic
        if isinstance(statistic, Matrices):
            for start in range(0, len(local), PART):
                part = slice(start, start + PART)
                block = entries_of_shard(shard, family, local[part], columns)
                for i, member in enumerate(family.members):
                    out[member, part] = block[:, :, i] @ right[member]
            continue
        there = statistic.prepare(rows, centers=centers)
        for start in range(0, len(local), PART):
            part = slice(start, start + PART)
            here = statistic.prepare(_own(shard, family, local[part]), centers=centers)
            pairs = statistic.pairs(here, there)
            for i, member in enumerate(family.members):
                out[member, part] = np.asarray(family.values(i, pairs), np.float64) @ right[member]
    return out


def landmarks_of_shard(shard: Shard, kernels: list[Kernel], ids: np.ndarray) -> np.ndarray:
    """(own, L, M) entries of ready-made matrices of one view: own landmarks with all landmarks (L,)."""
    (family,) = group(kernels)
    return entries_of_shard(shard, family, shard.own.numbers(ids), ids)


def entries_of_shard(shard: Shard, family: Family, local: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(k, columns, M) entries of ready-made matrices, of some own rows by their numbers (k,)."""
    view, index = family.statistic.view, [kernel.index for kernel in family.kernels]
    stack = pick({view: shard.own.features[view]}, local)[view]
    block = stack[:, columns] if isinstance(stack, np.ndarray) else stack.entries(columns)
    return np.asarray(block[:, :, index], np.float64)


def _own(shard: Shard, family: Family, local: np.ndarray) -> dict:
    return shard.own.take(list(family.statistic.views), local)


# -- what runs in the coordinator ------------------------------------------------------------------


def tails_of_rows(
    shards: Any, kernels: list[Kernel], rows: np.ndarray, zeta: int
) -> tuple[np.ndarray, np.ndarray]:
    """Tail sums and traces, both (M,), over sorted ids of rows.

    shards : a crew, or anything with its `apply`.
    """
    traces = np.sum(shards.apply(traces_of_shard, kernels, rows), axis=0)
    if zeta == 0:
        return traces.copy(), traces
    ids = _spaced(rows, max(MOST_ROWS, 4 * zeta))
    sampled = traces if len(ids) == len(rows) else np.sum(shards.apply(traces_of_shard, kernels, ids), axis=0)
    tops = _Leading(shards, kernels, ids, zeta, sampled).sums()
    parts = np.where(sampled > 0, 1.0 - tops / np.where(sampled > 0, sampled, 1.0), 0.0)
    return traces * parts, traces


class _Leading:
    """The sum of the zeta largest eigenvalues of every kernel's matrix over the rows `ids` (N,).

    traces : (M,) of these matrices.
    """

    def __init__(self, shards: Any, kernels: list[Kernel], ids: np.ndarray, zeta: int, traces: np.ndarray):
        self.shards, self.kernels, self.ids, self.zeta, self.traces = shards, kernels, ids, zeta, traces
        self.width = min(zeta + MORE, len(ids))

    def sums(self) -> np.ndarray:
        landmarks = _spaced(self.ids, max(LANDMARKS, 2 * self.width))
        basis, tops = self._begin(landmarks)
        if len(landmarks) == len(self.ids):
            return tops
        basis = self._products(np.arange(len(self.kernels)), landmarks, basis)
        active = np.arange(len(self.kernels))
        for _ in range(PRODUCTS):
            basis = np.stack([np.linalg.qr(block)[0] for block in basis])
            images = self._products(active, self.ids, basis)
            found = [self._ritz(U, Y) for U, Y in zip(basis, images, strict=True)]
            tops[active] = [top for top, _ in found]
            errors = np.array([error for _, error in found])
            going = errors > ENOUGH * np.maximum(
                self.traces[active] - tops[active], ENOUGH * 1e-6 * np.abs(self.traces[active])
            )
            active, basis = active[going], images[going]
            if len(active) == 0:
                break
        return tops

    def _begin(self, landmarks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Leading eigenvectors (M, L, b) of the matrices of the landmarks, and the sums (M,) of their zeta
        largest eigenvalues.
        """
        vectors, sums = np.empty((len(self.kernels), len(landmarks), self.width)), np.empty(len(self.kernels))
        for m, matrix in self._matrices(landmarks):
            values, vectors[m] = _leading(matrix, self.width)
            sums[m] = values[-self.zeta :].sum()
        return vectors, sums

    def _matrices(self, ids: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """The matrices (L, L) of some rows, one after the other."""
        vectors = [m for m, kernel in enumerate(self.kernels) if not isinstance(kernel.statistic(), Matrices)]
        some = [self.kernels[m] for m in vectors]
        rows = fetch_rows(self.shards, ids, _views(some))
        yield from ((vectors[m], matrix) for m, matrix in kernel_matrices(some, rows, np.arange(len(ids))))
        for family in group(self.kernels):
            for start in range(
                0, len(family.members) if isinstance(family.statistic, Matrices) else 0, TOGETHER
            ):
                part = slice(start, start + TOGETHER)
                block = np.concatenate(self.shards.apply(landmarks_of_shard, family.kernels[part], ids))
                yield from (
                    (member, (block[:, :, i] + block[:, :, i].T) / 2)
                    for i, member in enumerate(family.members[part])
                )

    def _products(self, active: np.ndarray, columns: np.ndarray, right: np.ndarray) -> np.ndarray:
        """(A, N, b) matrices of the active kernels (A,) over the columns (k,), times right (A, k, b)."""
        kernels: list = [self.kernels[m] for m in active]
        views, out = _views(kernels), np.zeros((len(active), len(self.ids), right.shape[2]))
        for start in range(0, len(columns), COLUMNS):
            part = slice(start, start + COLUMNS)
            rows = fetch_rows(self.shards, columns[part], views)
            out += np.concatenate(
                self.shards.apply(products_of_shard, kernels, self.ids, columns[part], rows, right[:, part]),
                axis=1,
            )
        return out

    def _ritz(self, basis: np.ndarray, image: np.ndarray) -> tuple[float, float]:
        """The sum of the zeta largest Ritz values of orthonormal vectors (N, b) and their images, and by how
        much it may be too small.

        An eigenvalue is off by |r|^2 / gap at most, r being the residual and gap the distance to what the
        subspace leaves out.
        """
        inner = basis.T @ image
        values, turn = np.linalg.eigh((inner + inner.T) / 2)
        residuals = np.linalg.norm(image @ turn - (basis @ turn) * values, axis=0)[-self.zeta :]
        gaps = np.maximum(values[-self.zeta :] - values[0], 1e-300)
        return float(values[-self.zeta :].sum()), float(np.minimum(residuals, residuals**2 / gaps).sum())


def _leading(matrix: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues of a symmetric matrix, ascending, and their vectors in columns."""
    if count < len(matrix) // 10:
        from scipy.sparse.linalg import ArpackNoConvergence, eigsh

        try:
            values, vectors = eigsh(
                matrix, count, which="LA", v0=np.random.default_rng(0).standard_normal(len(matrix))
            )
            order = np.argsort(values)
            return values[order], vectors[:, order]
        except ArpackNoConvergence:
            pass
    values, vectors = np.linalg.eigh(matrix)
    return values[-count:], vectors[:, -count:]


def _spaced(ids: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the ids, evenly spaced."""
    return ids if len(ids) <= most else ids[np.unique(np.linspace(0, len(ids) - 1, most).astype(np.int64))]


def _views(kernels: Sequence[Kernel]) -> list:
    """Views whose rows are needed of both sides; ready-made matrices hold all pairs already."""
    return list(
        dict.fromkeys(
            v for kernel in kernels if not isinstance(kernel.statistic(), Matrices) for v in kernel.views
        )
    )
