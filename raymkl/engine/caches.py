"""What the coordinator remembers: features of rows it has seen, and which columns the shards have cached."""

from __future__ import annotations

import numpy as np

from .rows import concatenate, take


class RowStore:
    """Features of the rows that the coordinator has seen, by id."""

    MOST_PARTS = 8

    def __init__(self, n_rows: int) -> None:
        self.parts: list[dict] = []
        self.starts = [0]
        self.place = np.full(n_rows, -1, np.int64)  # position of a row in the parts, one after the other

    def missing(self, ids: np.ndarray) -> np.ndarray:
        """Those of the given rows that were never seen."""
        return ids[self.place[ids] < 0]

    def add(self, ids: np.ndarray, rows: dict) -> None:
        if len(ids) == 0:
            return
        self.place[ids] = self.starts[-1] + np.arange(len(ids))
        self.parts.append(rows)
        self.starts.append(self.starts[-1] + len(ids))
        if len(self.parts) > self.MOST_PARTS:  # few large parts are quicker to read than many small ones
            self.parts, self.starts = [concatenate(self.parts)], [0, self.starts[-1]]

    def rows(self, ids: np.ndarray) -> dict:
        """Features of the given rows, in their order."""
        places = self.place[ids]
        if np.any(places < 0):
            raise KeyError(f"row {ids[places < 0][0]} was never seen")
        part_of = np.searchsorted(self.starts, places, side="right") - 1
        used = np.unique(part_of)
        if len(used) == 1:
            return take(self.parts[used[0]], places - self.starts[used[0]])
        chosen = [np.flatnonzero(part_of == part) for part in used]
        joined = concatenate([take(self.parts[part], places[rows] - self.starts[part]) for part, rows in zip(used, chosen, strict=True)])
        back = np.empty(len(ids), np.int64)
        back[np.concatenate(chosen)] = np.arange(len(ids))
        return take(joined, back)


class ColumnCache:
    """Which column is in which slot of every shard's cache; the least useful columns make room for new ones."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.slot: dict[int, int] = {}
        self.owner = np.full(capacity, -1, np.int64)
        self.last_used = np.zeros(capacity, np.int64)
        self.clock = 0

    def place(self, ids: np.ndarray, in_use: np.ndarray | None = None) -> np.ndarray:
        """Make room for the given ids; returns those that were not cached and must be computed.

        in_use : (n,) mask of rows whose dual variable is not zero in some head. Columns of other rows go first, and among
        equals the one unused for the longest time.
        """
        self.clock += 1
        cached = [i for i in ids.tolist() if i in self.slot]
        missing = [i for i in ids.tolist() if i not in self.slot]
        self.last_used[[self.slot[i] for i in cached]] = self.clock
        free = np.flatnonzero(self.owner < 0)[: len(missing)]
        if len(free) < len(missing):
            taken = np.flatnonzero(self.owner >= 0)
            useful = np.zeros(len(taken), bool) if in_use is None else in_use[self.owner[taken]]
            order = np.lexsort((self.last_used[taken], useful, self.last_used[taken] == self.clock))
            evicted = taken[order[: len(missing) - len(free)]]
            for i in self.owner[evicted].tolist():
                del self.slot[i]
            free = np.concatenate([free, evicted])
        self.owner[free] = missing
        self.last_used[free] = self.clock
        self.slot.update(zip(missing, free.tolist(), strict=True))
        return np.array(missing, np.int64)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        return np.array([self.slot[i] for i in ids.tolist()], np.int64)
