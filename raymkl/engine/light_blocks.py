"""Sums over light statistics: those that take no longer to compute than to read from memory.

    G[i, r] += sum_k weights[k] basis_r(statistic(x_i, column_k))        or, for one combined function of held weights,
    f[i] += gate[i] sum_k weights[k] F(statistic(x_i, column_k))

Rows of few columns need no cache: a block of statistics is made, met by all sums that want it while it is in the processor's cache, and
forgotten. Fresh memory alone would cost more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .shard import Shard

# Rows and columns of a block.
BLOCK_ROWS = 2048
BLOCK_COLUMNS = 256


@dataclass
class LightSum:
    """One sum: places (k,) of its columns among all, ascending, their weights (k,), and out (m, R) for m rows."""

    basis: Any
    places: np.ndarray
    weights: np.ndarray
    out: np.ndarray


@dataclass
class HeldSum:
    """The sum of one function: called as function(stat, values) for blocks (columns, rows). weights : (k,) of all columns, zero for those
    that have no part in it. gate : (m,) of the rows, or None. out : (m,).
    """

    function: Any
    weights: np.ndarray
    gate: np.ndarray | None
    out: np.ndarray

    def add(self, block: np.ndarray, some: slice, rows: slice, room: np.ndarray) -> None:
        """Add a block. room : memory for values of all its pairs."""
        weights = self.weights[some]
        used = np.flatnonzero(weights)
        if len(used) < len(weights):
            block, weights = np.ascontiguousarray(block[used]), weights[used]
        values = room[: block.size].reshape(block.shape)
        self.function(block, values)
        found = weights @ values
        self.out[rows] += found if self.gate is None else found * self.gate[rows]


def add_columns(shard: Shard, s: int, columns: Any, ids: np.ndarray, rows: np.ndarray | None, sums: list) -> None:
    """Add columns to some sums (`LightSum`, `HeldSum`).

    columns, ids : (k,) prepared features and numbers. rows : own rows that the sums are for, or None for all.
    """
    own = shard.prepared[s] if rows is None else shard.prepared[s].take(rows)
    local = ids - shard.first
    if rows is not None:  # where each column stands among the rows, if it does
        place = np.full(shard.n + 1, -1)
        place[rows] = np.arange(len(rows))
        local = place[np.where((local >= 0) & (local < shard.n), local, shard.n)]
    blocks = _Blocks(shard.statistics[s], shard.problem.dtype_of(shard.statistics[s]), own, columns, local, sums)
    shard.threads.split(-(-len(own) // BLOCK_ROWS), blocks, cost=10.0 * len(ids) * len(own))


class _Blocks:
    """Goes through portions of the rows, and for each through all columns."""

    def __init__(self, statistic: Any, dtype: Any, own: Any, columns: Any, local: np.ndarray, sums: list):
        self.statistic, self.dtype, self.own = statistic, dtype, own
        self.held = [one for one in sums if isinstance(one, HeldSum)]
        sums = [one for one in sums if isinstance(one, LightSum)]
        self.parts = []  # (which columns, their features, their places among the rows, what each sum by functions has of them)
        for first in range(0, len(columns), BLOCK_COLUMNS):
            some = slice(first, min(first + BLOCK_COLUMNS, len(columns)))
            wanted = []
            for one in sums:
                here = slice(*np.searchsorted(one.places, (some.start, some.stop)))
                if here.stop > here.start:
                    wanted.append(LightSum(one.basis, one.places[here] - first, one.weights[here], one.out))
            self.parts.append((some, columns.take(some), local[some], wanted))

    def __call__(self, start: int, stop: int) -> None:
        # Fresh memory for every block would cost as much as the block.
        size = min(BLOCK_ROWS, len(self.own)) * max(len(part[1]) for part in self.parts)
        memory, room = np.empty(size, self.dtype), np.empty(size if self.held else 0)
        for portion in range(start, stop):
            rows = slice(portion * BLOCK_ROWS, min((portion + 1) * BLOCK_ROWS, len(self.own)))
            own, width = self.own.take(rows), rows.stop - rows.start
            for some, columns, local, wanted in self.parts:
                block = memory[: len(columns) * width].reshape(len(columns), width)
                self.statistic.pairs_into(columns, own, block)
                mine = np.flatnonzero((local >= rows.start) & (local < rows.stop))
                if len(mine):  # the statistic of a row with itself is known exactly
                    block[mine, local[mine] - rows.start] = self.statistic.diagonal(columns.take(mine))
                for held in self.held:
                    held.add(block, some, rows, room)
                for one in wanted:
                    one.basis.accumulate(block, one.places, one.weights, one.out[rows], 0, width)
