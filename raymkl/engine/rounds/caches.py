"""What the coordinator remembers: features of rows it has seen, and which columns the shards have cached.

Caches over rows that were put into a session stand between runs: columns of pair statistics are computed
once. A run takes the caches of its statistics, works with them alone, and gives them back when it has ended
well. Shards keep the columns, under a serial number; what is known here is which columns those are. Caches
obey the memory budget: the oldest ones go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ...data.rows import concatenate, take
from ...kernels.pairs.memory import untouched

_serials = count(1)


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
    """Which column is in which slot of every shard's cache; the least useful columns make room for new
    ones.
    """

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

        in_use : (n,) mask of rows whose dual variable is not zero in some head. Columns of other rows go
        first, and among equals the one unused for the longest time.
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


@dataclass
class Standing:
    """Caches of some statistics.

    serial : what shards know them by. members : the shards that have them. size : planned bytes per shard.
    """

    serial: int
    columns: ColumnCache
    members: tuple
    size: int


class StandingCaches:
    """All caches of a session that no run is working with, by the name of their rows and what they are of."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: OrderedDict[tuple[str, Hashable], Standing] = OrderedDict()
        self.gone: list[int] = []  # serial numbers that shards may forget

    def of(self, rows: str) -> CachesOfRows:
        """The caches over some rows."""
        return CachesOfRows(self, rows)

    def drop(self, rows: str) -> list[int]:
        """Let go of all caches over some rows; returns serial numbers for the shards to forget."""
        with self.lock:
            self.gone += [self.idle.pop(key).serial for key in list(self.idle) if key[0] == rows]
            return self._gone()

    def _gone(self) -> list[int]:
        gone, self.gone = self.gone, []
        return gone


class CachesOfRows:
    """What a run sees of the caches of a session. rows : name of the rows that it trains on."""

    def __init__(self, caches: StandingCaches, rows: str):
        self.caches, self.rows = caches, rows

    def take(self, key: Hashable, members: tuple, largest: int) -> Standing | None:
        """The caches of some statistics, if these very shards have them, of at most so many bytes each."""
        caches = self.caches
        with caches.lock:
            found = caches.idle.pop((self.rows, key), None)
            if found is not None and (found.members != members or found.size > largest):
                caches.gone.append(found.serial)
                return None
            return found

    def make_room(self, size: int, largest: int) -> list[int]:
        """Let go of caches, whatever they are of, until there is room for `size` bytes more; returns serial
        numbers to forget.
        """
        caches = self.caches
        with caches.lock:
            while caches.idle and size + sum(entry.size for entry in caches.idle.values()) > largest:
                caches.gone.append(caches.idle.popitem(last=False)[1].serial)
            return caches._gone()

    def give_back(self, key: Hashable, entry: Standing) -> list[int]:
        """Keep caches for the next run; returns serial numbers for the shards to forget."""
        caches = self.caches
        with caches.lock:
            if (self.rows, key) in caches.idle:  # two runs at once: one of them is enough
                caches.gone.append(caches.idle.pop((self.rows, key)).serial)
            caches.idle[self.rows, key] = entry
            return caches._gone()

    def let_go(self, serial: int) -> None:
        """Caches that nobody will give back."""
        with self.caches.lock:
            self.caches.gone.append(serial)


def new_serial() -> int:
    return next(_serials)
