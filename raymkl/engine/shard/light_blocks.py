"""Sums over light statistics: those that take no longer to compute than to read from memory.

    G[i, r] += sum_k weights[k] basis_r(statistic(x_i, column_k))        or, for one combined function of held
    weights,
    f[i] += gate[i] sum_k weights[k] F(statistic(x_i, column_k))

Rows of few columns need no cache: a block of statistics is made, met by all sums that want it while it is in
the processor's cache, and forgotten. Fresh memory alone would cost more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.pairs.families import NO_GATE
from ...kernels.pairs.tables import TableBasis, WideTableBasis

if TYPE_CHECKING:
    from .head_rows import HeadRows
    from .shard import Shard

# Rows and columns of a block. Smaller ones would stay in the second-level cache, but threads meet at the
# interpreter lock between two of them, which costs more.
BLOCK_ROWS = 512
BLOCK_COLUMNS = 1024


@dataclass
class LightSum:
    """One sum: places (k,) of its columns among all, ascending, their weights (k,), and out (m, R) for m
    rows.

    gate : (m,) what sums of the rows are multiplied with, or None.
    """

    basis: Any
    places: np.ndarray
    weights: np.ndarray
    out: np.ndarray
    gate: np.ndarray | None = None

    def add(self, block: np.ndarray, rows: slice) -> None:
        """Add a block (columns, rows), whose columns `places` speaks of."""
        width = rows.stop - rows.start
        if self.gate is None:
            self.basis.accumulate(block, self.places, self.weights, self.out[rows], 0, width)
            return
        found = np.zeros((width, self.out.shape[1]))
        self.basis.accumulate(block, self.places, self.weights, found, 0, width)
        self.out[rows] += found * self.gate[rows, None]


def add_light(
    shard: Shard,
    ids: np.ndarray,
    features: dict,
    changes: dict[int, tuple[np.ndarray, np.ndarray]],
    combinations: Mapping | None = None,
) -> None:
    """Add the part of some columns to the sums over light statistics.

    ids : (k,) sorted. features : of these rows. changes, combinations : by head, columns and what they
    weigh, and the weights (R,) of the basis functions, for heads whose weights are held.
    """
    if len(ids) == 0:
        return
    together: dict[int | None, list[int]] = {}  # heads with the same rows at work share every block
    for h in changes:
        together.setdefault(None if shard.heads[h].rows is None else h, []).append(h)
    for s, statistic in enumerate(shard.pairs.statistics):
        if statistic not in shard.problem.light:
            continue
        columns = shard.pairs.ready(s, features)
        for heads in together.values():
            # Heads that do not share their blocks meet their own columns alone.
            used = ids if len(together) == 1 else np.unique(np.concatenate([changes[h][0] for h in heads]))
            sums: list = []
            for f in (f for f, place in enumerate(shard.pairs.of_family) if place == s):
                for h in heads:
                    weights, live = shard.gated(f, *changes[h])
                    if len(weights):
                        places = np.searchsorted(used, changes[h][0][live])
                        sums.append(
                            _light_sum(shard, f, shard.heads[h], places, weights, (combinations or {}).get(h))
                        )
            if sums:
                some = columns if len(used) == len(ids) else columns.take(np.searchsorted(ids, used))
                add_columns(shard, s, some, used, shard.heads[heads[0]].rows, sums)


def _light_sum(
    shard: Shard, f: int, state: HeadRows, places: np.ndarray, weights: np.ndarray, combination: Any
) -> LightSum:
    """The sum of a family that some columns (at `places`) are added to."""
    if state.G is not None:
        return LightSum(shard.bases[f], places, np.array(weights), state.G[f])
    one, gate = shard.bases[f].combined(combination[shard.functions[f]]), shard.problem.families[f].gate
    gates = None if gate == NO_GATE else state.of(shard.own.gates[:, gate])
    return LightSum(one, places, np.array(weights), state.offset[:, None], gates)


def add_columns(
    shard: Shard, s: int, columns: Any, ids: np.ndarray, rows: np.ndarray | None, sums: list[LightSum]
) -> None:
    """Add columns to some sums.

    columns, ids : (k,) prepared features and numbers. rows : own rows that the sums are for, or None for all.
    """
    own = shard.pairs.prepared[s] if rows is None else shard.pairs.prepared[s].take(rows)
    local = ids - shard.own.first
    if rows is not None:  # where each column stands among the rows, if it does
        place = np.full(shard.own.n + 1, -1)
        place[rows] = np.arange(len(rows))
        local = place[np.where((local >= 0) & (local < shard.own.n), local, shard.own.n)]
    blocks = _Blocks(
        shard.pairs.statistics[s],
        shard.problem.dtype_of(shard.pairs.statistics[s]),
        own,
        columns,
        local,
        sums,
    )
    shard.threads.split(-(-len(own) // BLOCK_ROWS), blocks, cost=10.0 * len(ids) * len(own))


class _Blocks:
    """Goes through portions of the rows, and for each through all columns."""

    def __init__(
        self, statistic: Any, dtype: Any, own: Any, columns: Any, local: np.ndarray, sums: list[LightSum]
    ):
        self.statistic, self.dtype, self.size, self.features = statistic, dtype, len(own), columns
        columns, self.own = statistic.as_left(columns), statistic.as_right(own)
        # Tables take what round-off makes negative for zero.
        self.clip = statistic.non_negative and not all(
            isinstance(one.basis, TableBasis | WideTableBasis) for one in sums
        )
        self.parts = []  # (columns, their places among the rows, where they stand, what each sum has of them)
        for first in range(0, len(columns), BLOCK_COLUMNS):
            some = slice(first, min(first + BLOCK_COLUMNS, len(columns)))
            wanted = []
            for one in sums:
                here = slice(*np.searchsorted(one.places, (some.start, some.stop)))
                if here.stop > here.start:
                    wanted.append(replace(one, places=one.places[here] - first, weights=one.weights[here]))
            self.parts.append((columns.take(some), local[some], first, wanted))

    def __call__(self, start: int, stop: int) -> None:
        # Fresh memory for every block would cost as much as the block.
        memory = np.empty(min(BLOCK_ROWS, self.size) * max(len(part[0]) for part in self.parts), self.dtype)
        for portion in range(start, stop):
            rows = slice(portion * BLOCK_ROWS, min((portion + 1) * BLOCK_ROWS, self.size))
            own, width = self.own.take(rows), rows.stop - rows.start
            for columns, local, first, wanted in self.parts:
                block = memory[: len(columns) * width].reshape(len(columns), width)
                self.statistic.pairs_into(columns, own, block)
                mine = np.flatnonzero((local >= rows.start) & (local < rows.stop))
                if len(mine):  # the statistic of a row with itself is known exactly
                    block[mine, local[mine] - rows.start] = self.statistic.diagonal(
                        self.features.take(first + mine)
                    )
                if self.clip:
                    np.maximum(block, 0, out=block)
                for one in wanted:
                    one.add(block, rows)
