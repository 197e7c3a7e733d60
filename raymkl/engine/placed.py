"""Rows that were put into a session, and how the engine recognises them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Hashable, Mapping
from typing import Any

CLOSED = "this Session is closed; open another one"


class Home:
    """Where rows that were put stay between fits: blocks by the views that a fit wants, and names for caches
    over them.

    Fits of other kernels over the same rows may read other views of them, and have caches of their own.
    """

    def __init__(self, session: Any):
        self.session, self.lock = session, threading.Lock()
        self.names: dict[Hashable, str] = {}
        self.placements: dict[Hashable, Any] = {}

    def name_of(self, rows: Mapping) -> str:
        """What a session knows these rows by."""
        with self.lock:
            return self.names.setdefault(tuple(rows), uuid.uuid4().hex)

    def placement(self, rows: Mapping, count: int, make: Callable[[], Any]) -> Any:
        """What was made of these rows when they were placed, for so many shards."""
        key = tuple(rows)
        with self.lock:
            if key not in self.placements or self.placements[key][0] != count:
                self.placements[key] = (count, make())
            return self.placements[key][1]

    def leave(self) -> list[str]:
        """Let go of everything; returns the names that the rows had."""
        with self.lock:
            names = list(self.names.values())
            self.names.clear()
            self.placements.clear()
            return names


class PlacedRows(dict):
    """Rows by view key, as everywhere in the engine, that know their home."""

    def __init__(self, rows: Mapping, home: Home):
        super().__init__(rows)
        self.home = home
        self.presence = getattr(rows, "presence", None)  # which views the rows have, where somebody said so
