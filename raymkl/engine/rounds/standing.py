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
    """All caches over some rows that no run is working with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: OrderedDict[Hashable, Standing] = OrderedDict()
        self.gone: list[int] = []  # serial numbers that shards may forget

    def take(self, key: Hashable, members: tuple, largest: int) -> Standing | None:
        """The caches of some statistics, if these very shards have them, of at most so many bytes each."""
        with self.lock:
            found = self.idle.pop(key, None)
            if found is not None and (found.members != members or found.size > largest):
                self.gone.append(found.serial)
                return None
            return found

    def make_room(self, size: int, largest: int) -> list[int]:
        """Let go of caches until there is room for `size` bytes more; returns serial numbers for the shards to forget."""
        with self.lock:
            while self.idle and size + sum(entry.size for entry in self.idle.values()) > largest:
                self.gone.append(self.idle.popitem(last=False)[1].serial)
            gone, self.gone = self.gone, []
            return gone

    def give_back(self, key: Hashable, entry: Standing) -> list[int]:
        """Keep caches for the next run; returns serial numbers for the shards to forget."""
        with self.lock:
            if key in self.idle:  # two runs at once: one of them is enough
                self.gone.append(self.idle.pop(key).serial)
            self.idle[key] = entry
            gone, self.gone = self.gone, []
            return gone

    def let_go(self, serial: int) -> None:
        """Caches that nobody will give back."""
        with self.lock:
            self.gone.append(serial)


def new_serial() -> int:
    return next(_serials)
