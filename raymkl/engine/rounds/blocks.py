"""Statistics among the rows of a working set, from the features that the coordinator has seen.

One head keeps the block of its last working set and computes only the rows that are new. Several heads share
one square of statistics over all rows seen, as long as it stays small: what one class or fold has computed
the others copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.loops.vectors import add_gated, copy_pairs, mirror
from ...kernels.pairs.families import NO_GATE
from ...kernels.pairs.memory import untouched
from ...kernels.pairs.statistics import Matrices
from ..problem import Problem
from ..shard.threads import RowThreads
from .caches import RowStore
from .string_blocks import sequence_block

# Rows of a Hessian that are finished at a time, while they are in the processor's cache.
HESSIAN_ROWS = 128
# The square that several heads share takes at most this much memory; so do the blocks of many heads together.
SQUARE_BYTES = 256 * 2**20
# Light statistics are copied out of a square of so many bytes at most: out of a larger one, which no
# processor's cache holds, that takes longer than to compute them anew.
LIGHT_SQUARE_BYTES = 16 * 2**20
# New rows of the square that are computed at a time.
SQUARE_ROWS = 256


class WorkingBlocks:
    """Makes the block of any head's working set.

    `ask_stacks(method, s, ids, ...)` asks the shards about ready-made matrices.
    """

    def __init__(
        self,
        problem: Problem,
        bases: list,
        centers: dict,
        store: RowStore,
        threads: RowThreads,
        ask_stacks: Callable,
    ):
        self.problem, self.bases, self.centers, self.store, self.threads = (
            problem,
            bases,
            centers,
            store,
            threads,
        )
        self.ask_stacks = ask_stacks
        self.statistics = problem.statistics
        self.places = [self.statistics.index(family.statistic) for family in problem.families]
        self.cached = any(statistic.cacheable for statistic in self.statistics)
        self.last: dict[int, tuple] = {}
        self.rooms: dict[
            tuple[int, int], np.ndarray
        ] = {}  # memory for blocks of light statistics, by head and statistic
        self.square: _Square | None = None

    def share(self, n_heads: int) -> None:
        """Let heads share one square if it can hold every row there is."""
        item = sum(self.problem.pair_bytes(s) for s in self.statistics if not isinstance(s, Matrices))
        n = self.problem.n_rows
        plain = not any(statistic.reads_strings for statistic in self.statistics)
        if (
            all(statistic in self.problem.light for statistic in self.statistics)
            and n * n * item > LIGHT_SQUARE_BYTES
        ):
            return
        if n_heads > 1 and self.square is None and self.cached and plain and n * n * item <= SQUARE_BYTES:
            self.square = _Square(n)

    def gather(self, ids: np.ndarray) -> None:
        """Have the statistics among these rows (of all heads of a round) ready to be copied."""
        if self.square is not None:
            self.square.add(self, ids)

    def of(self, h: int, ids: np.ndarray, buffer: np.ndarray, threads: RowThreads) -> WorkingBlock:
        """The block of one head. buffer : (q, q) for its Hessian."""
        previous = self.last.get(h)
        rows = self.store.rows(ids) if self.cached and self.square is None else {}
        blocks: dict[int, Any] = {}
        for s, statistic in enumerate(self.statistics):
            if isinstance(statistic, Matrices):
                blocks[s] = _Stack(self.ask_stacks, s, ids)
            elif self.square is not None:
                blocks[s] = self.square.block(s, ids, threads)
            elif statistic in self.problem.light:
                blocks[s] = self._light_block(statistic, rows, h, s, threads)
            else:
                prepared = statistic.prepare(rows, self.problem.dtype_of(statistic), self.centers)
                blocks[s] = self._block(statistic, prepared, ids, previous, s, threads)
        if self.square is None and self.problem.light != frozenset(self.statistics):
            self.last[h] = (ids, blocks)
        parts = []
        for family, basis, place in zip(self.problem.families, self.bases, self.places, strict=True):
            gate = None if family.gate == NO_GATE else self.problem.gates[ids, family.gate]
            parts.append((basis, blocks[place], gate))
        return WorkingBlock(parts, threads, buffer)

    def forget(self, h: int) -> None:
        self.last.pop(h, None)
        for s in range(len(self.statistics)):
            self.rooms.pop((h, s), None)

    def _light_block(self, statistic: Any, rows: dict, h: int, s: int, threads: RowThreads) -> np.ndarray:
        """(q, q) light statistics of a working set, computed anew in the memory of the last one: nothing is
        quicker to copy.
        """
        prepared = statistic.prepare(rows, self.problem.dtype_of(statistic), self.centers)
        q = len(prepared)
        if self.rooms.get((h, s), np.empty(0)).size < q * q:
            self.rooms[h, s] = np.empty(q * q, self.problem.dtype_of(statistic))
        stat = self.rooms[h, s][: q * q].reshape(q, q)
        threads.split(
            q,
            lambda start, stop: statistic.pairs_into(
                prepared.take(slice(start, stop)), prepared, stat[start:stop]
            ),
            cost=float(q) * q * prepared.array.shape[1],
        )
        np.fill_diagonal(stat, statistic.diagonal(prepared))
        return stat

    def _block(
        self,
        statistic: Any,
        prepared: Any,
        ids: np.ndarray,
        previous: tuple | None,
        s: int,
        threads: RowThreads,
    ) -> np.ndarray:
        """(q, q) statistics of a working set; pairs that were in the previous working set are copied from
        there.
        """
        if statistic.reads_strings:
            last = None if previous is None else (previous[0], previous[1][s])
            return sequence_block(statistic, prepared, ids, last, self.problem.cell_dtype(statistic), threads)
        if previous is None:
            stat = statistic.pairs(prepared, prepared)
        else:
            _, here, there = np.intersect1d(ids, previous[0], assume_unique=True, return_indices=True)
            new = np.setdiff1d(np.arange(len(ids)), here, assume_unique=True)
            stat = np.empty((len(ids), len(ids)), previous[1][s].dtype)

            def compute(start: int, stop: int) -> None:
                statistic.fill(prepared.take(new[start:stop]), prepared, stat, new[start:stop])

            def copy(start: int, stop: int) -> None:
                copy_pairs(previous[1][s], there[start:stop], there, stat, here[start:stop], here)
                mirror(stat, here[start:stop], new)

            threads.split(len(new), compute, cost=float(len(new)) * len(ids) * 100)
            threads.split(len(here), copy, cost=float(len(here)) * len(ids))
        np.fill_diagonal(stat, statistic.diagonal(prepared))
        return stat


class _Square:
    """Statistics among all rows seen so far, in the order in which they came."""

    def __init__(self, n_rows: int):
        self.place = np.full(n_rows, -1, np.int64)
        self.ids = np.empty(0, np.int64)
        self.values: dict[int, np.ndarray] = {}

    def add(self, blocks: WorkingBlocks, ids: np.ndarray) -> None:
        new = ids[self.place[ids] < 0]
        if len(new) == 0:
            return
        before, self.ids = len(self.ids), np.concatenate([self.ids, new])
        self.place[new] = np.arange(before, len(self.ids))
        rows = blocks.store.rows(self.ids)
        for s, statistic in enumerate(blocks.statistics):
            if isinstance(statistic, Matrices):
                continue
            prepared = statistic.prepare(rows, blocks.problem.dtype_of(statistic), blocks.centers)
            if s not in self.values:  # memory is touched only where rows are
                self.values[s] = untouched(
                    (len(self.place), len(self.place)), blocks.problem.dtype_of(statistic)
                )
            values = self.values[s]

            def compute(start: int, stop: int, statistic=statistic, prepared=prepared, values=values) -> None:
                for first in range(before + start, before + stop, SQUARE_ROWS):
                    part = slice(first, min(first + SQUARE_ROWS, before + stop))
                    found = statistic.pairs(prepared.take(part), prepared)
                    values[part, : len(self.ids)] = found
                    values[:before, part] = found[:, :before].T

            blocks.threads.split(len(new), compute, cost=float(len(new)) * len(self.ids) * 100)
            own = np.arange(before, len(self.ids))
            values[own, own] = statistic.diagonal(prepared.take(slice(before, None)))

    def block(self, s: int, ids: np.ndarray, threads: RowThreads) -> np.ndarray:
        places, target = self.place[ids], np.arange(len(ids))
        stat = np.empty((len(ids), len(ids)), self.values[s].dtype)
        threads.split(
            len(ids),
            lambda start, stop: copy_pairs(
                self.values[s], places[start:stop], places, stat, target[start:stop], target
            ),
            cost=float(len(ids)) ** 2,
        )
        return stat


class _Stack:
    """Ready-made matrices among the rows of a working set.

    They stay in the shards, M times as large as what is wanted of them.
    """

    def __init__(self, ask: Callable, s: int, ids: np.ndarray):
        self.ask, self.s, self.ids = ask, s, ids

    def combined(self, matrices: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(q, q) weighted sum of some of the matrices. matrices, weights : (R,)."""
        used = np.flatnonzero(weights)
        return self.ask("stack_hessian", self.s, self.ids, matrices[used], weights[used])

    def change(self, matrices: np.ndarray, delta: np.ndarray) -> np.ndarray:
        """(q, R) products of some of the matrices with delta (q,)."""
        return self.ask("stack_change", self.s, self.ids, matrices, delta)


class WorkingBlock:
    """Pair statistics among the rows of a working set, per family, with its basis and the gates of the
    rows.
    """

    def __init__(self, parts: list[tuple], threads: RowThreads, buffer: np.ndarray):
        """parts : per family (basis, stat (q, q) or _Stack, gate (q,) or None).

        buffer : (q, q) to put the Hessian in.
        """
        self.parts, self.threads, self.buffer = parts, threads, buffer
        self.asks_shards = any(isinstance(stat, _Stack) for _, stat, _ in parts)

    def hessian(
        self, combination: np.ndarray, left: np.ndarray | None, right: np.ndarray | None
    ) -> np.ndarray:
        """(q, q) combined kernel matrix sum_r combination[r] basis_r, gates applied, plus left @ right.T
        where given.
        """
        functions, at, begun = [], 0, False
        q, total = len(self.buffer), self.buffer
        for basis, stat, gate in self.parts:
            weights = combination[at : at + basis.rank]
            at += basis.rank
            if isinstance(
                stat, _Stack
            ):  # what a shard of this process answers is good until it is asked again
                self._put(stat.combined(basis.matrices, weights), gate, begun)
                begun = True
            else:
                functions.append((basis.function(weights), stat, gate))

        def fill(start: int, stop: int) -> None:
            scratch = np.empty(
                (HESSIAN_ROWS, q)
            )  # new memory for every few rows would cost more than what is put there
            for first in range(start, stop, HESSIAN_ROWS):
                rows = slice(first, min(first + HESSIAN_ROWS, stop))
                more_values = scratch[: rows.stop - first]
                for position, (function, stat, gate) in enumerate(functions):
                    more = begun or position > 0
                    values = more_values if more or gate is not None else total[rows]
                    function(stat[rows], values)
                    if gate is not None:
                        add_gated(values, gate[rows], gate, total[rows], more)
                    elif more:
                        total[rows] += values
                if left is not None:
                    np.matmul(left[rows], right.T, out=more_values)
                    total[rows] += more_values

        self.threads.split(q, fill, cost=float(q) * q * 10)
        return total

    def _put(self, values: np.ndarray, gate: np.ndarray | None, begun: bool) -> None:
        """Values (q, q), gated, into the buffer, or added to what is there once it was begun."""

        def put(start: int, stop: int) -> None:
            part = (
                values[start:stop] if gate is None else values[start:stop] * (gate[start:stop, None] * gate)
            )
            if begun:
                self.buffer[start:stop] += part
            else:
                self.buffer[start:stop] = part

        self.threads.split(len(values), put, cost=float(values.size))

    def change(self, delta: np.ndarray) -> np.ndarray:
        """(q, R) change of the gradients of the working set when its variables change by delta (q,)."""
        parts = []
        for basis, stat, gate in self.parts:
            weights = delta if gate is None else delta * gate
            if isinstance(stat, _Stack):
                out = stat.change(basis.matrices, weights)
                parts.append(out if gate is None else out * gate[:, None])
                continue
            out = np.zeros((len(delta), basis.rank))
            changed = np.flatnonzero(weights)
            if len(changed):
                self.threads.split(
                    len(delta),
                    lambda start, stop, basis=basis, stat=stat, changed=changed, weights=weights, out=out: (
                        basis.accumulate(stat, changed, weights[changed], out, start, stop)
                    ),
                    cost=float(len(delta)) * len(changed) * basis.rank,
                )
            parts.append(out if gate is None else out * gate[:, None])
        return np.concatenate(parts, axis=1)
