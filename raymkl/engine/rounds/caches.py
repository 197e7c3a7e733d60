"""What the coordinator remembers: features of rows it has seen, and which columns the shards have cached."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.rows import concatenate, take
from ...kernels.pairs.memory import untouched


class RowStore:
    """Features of the rows that the coordinator has seen, by id."""

    MOST_PARTS = 8

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.count = 0
        self.place = np.full(n_rows, -1, np.int64)  # position of a row in the order of arrival
        self.dense: dict[Any, np.ndarray] = {}  # room for all rows; memory is touched only where rows are
        self.parts: list[dict] = []  # other views (sparse, strings), one part per arrival

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of the given rows that were never seen."""
        return ids[self.place[ids] < 0]

    def add(self, ids: np.ndarray, rows: dict) -> None:
        """Keep rows; those seen before are passed over (a shard does not know what was fetched from it)."""
        new = self.place[ids] < 0
        if not new.all():
            ids, rows = ids[new], take(rows, new)
        if len(ids) == 0:
            return
        first, self.count = self.count, self.count + len(ids)
        self.place[ids] = np.arange(first, self.count)
        other = {}
        for view, array in rows.items():
            if isinstance(array, np.ndarray) and array.dtype != object:
                if view not in self.dense:
                    self.dense[view] = untouched((self.n_rows, *array.shape[1:]), array.dtype)
                self.dense[view][first : self.count] = array
            else:
                other[view] = array
        if other:
            self.parts.append(other)
            if len(self.parts) > self.MOST_PARTS:  # few large parts are quicker to read than many small ones
                self.parts = [concatenate(self.parts)]

    def rows(self, ids: np.ndarray) -> dict:
        """Features of the given rows, in their order."""
        places = self.place[ids]
        if np.any(places < 0):
            raise KeyError(f"row {ids[places < 0][0]} was never seen")
        result = {view: array[places] for view, array in self.dense.items()}
        if self.parts:
            if len(self.parts) > 1:
                self.parts = [concatenate(self.parts)]
            result.update(take(self.parts[0], places))
        return result


class ColumnCache:
    """Which column is in which slot of every shard's cache; the least useful columns make room for new ones."""

    def __init__(self, capacity: int, n_rows: int):
        self.capacity = capacity
        self.slot = np.full(n_rows, -1, np.int64)  # of every column, or -1
        self.owner = np.full(capacity, -1, np.int64)
        self.last_used = np.zeros(capacity, np.int64)
        self.clock = 0
        self.hits = 0  # columns that the last call found cached

    @property
    def columns(self) -> np.ndarray:
        """Ids of the cached columns, ascending."""
        return np.flatnonzero(self.slot >= 0)

    def place(self, ids: np.ndarray, in_use: np.ndarray | None = None) -> np.ndarray:
        """Make room for the given ids; returns those that were not cached and must be computed.

        in_use : (n,) mask of rows whose dual variable is not zero in some head. Columns of other rows go first, and among
        equals the one unused for the longest time.
        """
        self.clock += 1
        there = self.slot[ids] >= 0
        cached, missing = ids[there], ids[~there]
        self.hits = len(cached)
        self.last_used[self.slot[cached]] = self.clock
        free = np.flatnonzero(self.owner < 0)[: len(missing)]
        if len(free) < len(missing):
            taken = np.flatnonzero(self.owner >= 0)
            useful = np.zeros(len(taken), bool) if in_use is None else in_use[self.owner[taken]]
            order = np.lexsort((self.last_used[taken], useful, self.last_used[taken] == self.clock))
            evicted = taken[order[: len(missing) - len(free)]]
            self.slot[self.owner[evicted]] = -1
            free = np.concatenate([free, evicted])
        self.owner[free], self.slot[missing], self.last_used[free] = missing, free, self.clock
        return missing

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """Where the given columns are; all of them must be cached."""
        found = self.slot[ids]
        if np.any(found < 0):
            raise KeyError(f"column {ids[found < 0][0]} is not cached")
        return found
