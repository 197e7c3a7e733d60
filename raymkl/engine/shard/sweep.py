"""Going through all pairs of a shard's rows with some columns, a block of float64 statistics at a time.

Statistics are computed in float64 from the rows as they came (*precise*), or taken from the shard's cache, in
the precision that rounds work in, and read as float64 (*rough*).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...data.rows import take
from ...kernels.pairs.accurate import AccurateSums, CellSums

if TYPE_CHECKING:
    from .shard import Shard

# Rows and columns of a block of statistics; it stays in the processor's cache while all points look at it.
BLOCK_ROWS = 512
BLOCK_COLUMNS = 256


class Columns:
    """Columns to meet rows with.

    ids : (K,) sorted. features : of these rows. slots : (K,) where they are cached (-1: nowhere), or None.
    """

    def __init__(self, ids: np.ndarray, features: dict, slots: np.ndarray | None = None):
        self.ids, self.features, self.slots = ids, features, slots

    def is_rough(self, shard: Shard, s: int) -> bool:
        """Whether a statistic is read from the cache."""
        return self.slots is not None and isinstance(shard.pairs.cache[s], np.ndarray)


def sweep(shard: Shard, columns: Columns, sums: dict[int, AccurateSums], points: list) -> None:
    """Let every point take what it wants of all pairs.

    sums : of the wanted families. A point has `add(f, moments, stat, rows, columns, room)` and, by family,
    `totals` of its moments.
    """
    for s in sorted({shard.pairs.of_family[f] for f in sums}):
        families = [f for f in sums if shard.pairs.of_family[f] == s]
        rough = columns.is_rough(shard, s)
        source = (
            _CachedBlocks(shard, s, columns)
            if rough
            else _PreciseBlocks(shard, s, columns, [sums[f] for f in families])
        )
        moments: dict[int, list] = {}

        def work(start: int, stop: int, source=source, families=families, moments=moments) -> None:
            mine = moments.setdefault(start, [[sums[f].moments() for f in families] for _ in points])
            memory, room = np.empty((2, min(BLOCK_ROWS, shard.own.n) * BLOCK_COLUMNS))
            for portion in range(start, stop):
                rows = slice(portion * BLOCK_ROWS, min((portion + 1) * BLOCK_ROWS, shard.own.n))
                for some, stat in source.blocks(rows, memory):
                    for point, own_moments in zip(points, mine, strict=True):
                        for f, moment in zip(families, own_moments, strict=True):
                            point.add(f, moment, stat, rows, some, room)

        shard.threads.split(-(-shard.own.n // BLOCK_ROWS), work, cost=10.0 * shard.own.n * len(columns.ids))
        for start in sorted(moments):
            for point, own_moments in zip(points, moments[start], strict=True):
                for f, moment in zip(families, own_moments, strict=True):
                    point.totals[f] = point.totals[f] + moment


def _portions(n: int) -> list[slice]:
    return [slice(start, min(start + BLOCK_COLUMNS, n)) for start in range(0, n, BLOCK_COLUMNS)]


class _PreciseBlocks:
    """Statistics computed in float64 from the rows as they came."""

    def __init__(self, shard: Shard, s: int, columns: Columns, sums: list[AccurateSums]):
        self.shard, self.statistic = shard, shard.pairs.statistics[s]
        # Cells take what round-off makes negative for zero.
        self.clip = self.statistic.non_negative and not all(isinstance(one, CellSums) for one in sums)
        self.local = columns.ids - shard.own.first
        prepared = (
            self.statistic.prepare(columns.features, np.float64, shard.pairs.centers)
            if len(columns.ids)
            else None
        )
        side = None if prepared is None else self.statistic.as_right(prepared)
        self.parts = [(some, side.take(some)) for some in _portions(len(columns.ids))]

    def blocks(self, rows: slice | np.ndarray, memory: np.ndarray):
        """Blocks of own rows with every portion of the columns: (slice, statistics), the latter good until
        the next one comes.
        """
        own = self.statistic.prepare(
            take(self.shard.own.features, rows), np.float64, self.shard.pairs.centers
        )
        side = self.statistic.as_left(own)
        numbers = np.arange(self.shard.own.n)[rows]
        # The statistic of a row with itself is known exactly.
        row = np.searchsorted(numbers, self.local)
        there = np.flatnonzero(
            (row < len(numbers)) & (numbers[np.minimum(row, len(numbers) - 1)] == self.local)
        )
        for some, part in self.parts:
            stat = memory[: len(own) * len(part)].reshape(len(own), len(part))
            self.statistic.pairs_into(side, part, stat)
            mine = there[slice(*np.searchsorted(there, (some.start, some.stop)))]
            if len(mine):
                stat[row[mine], mine - some.start] = self.statistic.diagonal(own.take(row[mine]))
            if self.clip:
                np.maximum(stat, 0, out=stat)
            yield some, stat


class _CachedBlocks:
    """Statistics out of the shard's cache; those of columns that are not there are computed as if they
    were.
    """

    def __init__(self, shard: Shard, s: int, columns: Columns):
        self.shard, self.cache, self.statistic, self.own = (
            shard,
            shard.pairs.cache[s],
            shard.pairs.statistics[s],
            shard.pairs.prepared[s],
        )
        self.parts: list[tuple[slice, np.ndarray, np.ndarray, Any]] = []
        for some in _portions(len(columns.ids)):
            slots = columns.slots[some]
            missing = np.flatnonzero(slots < 0)
            fresh = (
                shard.pairs.ready(s, take(columns.features, some.start + missing)) if len(missing) else None
            )
            self.parts.append((some, np.where(slots < 0, 0, slots), missing, fresh))

    def blocks(self, rows: slice, memory: np.ndarray):
        width = rows.stop - rows.start
        for some, slots, missing, fresh in self.parts:
            stat = memory[: width * len(slots)].reshape(width, len(slots))
            stat[:] = self.cache[slots, rows].T
            if fresh is not None:
                stat[:, missing] = self.statistic.pairs(self.own.take(rows), fresh)
            yield some, stat


def precise_values(
    shard: Shard, columns: Columns, sums: dict[int, AccurateSums], point: Any, rows: np.ndarray
) -> np.ndarray:
    """(k,) decision values of some own rows in full precision, of the families in `sums`.

    point : has `add_values`.
    """
    values, (memory, room) = np.zeros(len(rows)), np.empty((2, max(len(rows), 1) * BLOCK_COLUMNS))
    for s in sorted({shard.pairs.of_family[f] for f in sums}):
        families = [f for f in sums if shard.pairs.of_family[f] == s]
        source = _PreciseBlocks(shard, s, columns, [sums[f] for f in families])
        for some, stat in source.blocks(rows, memory):
            for f in families:
                point.add_values(f, stat, rows, some, values, room)
    return values
