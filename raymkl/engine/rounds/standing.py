"""Caches that stand between runs: over rows that were put into a session, columns of pair statistics are computed once.

A run takes the caches of its statistics, works with them alone, and gives them back when it has ended well. Shards keep the columns, under
a serial number; what is known here is which columns those are. Caches obey the memory budget: the oldest ones go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

from .caches import ColumnCache

_serials = count(1)


@dataclass
class Standing:
    """Caches of some statistics. serial : what shards know them by. members : the shards that have them. size : planned bytes per shard."""

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
        """Let go of caches, whatever they are of, until there is room for `size` bytes more; returns serial numbers to forget."""
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
