"""What a coordinator tells the driver while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rounds:
    """The newest rows of the history."""

    rows: list[dict]


@dataclass(frozen=True)
class Losses:
    """Shards were lost and replaced: in words, and how often so far, by shard (-1: the coordinator)."""

    news: list[str]
    failures: dict[int, int]


@dataclass(frozen=True)
class State:
    """The state of the run, from which another coordinator can go on (see `faults.recovery`)."""

    state: dict


@dataclass(frozen=True)
class Outcome:
    """The last word. results : of all heads, or what a program hands back. failures : shards and coordinators lost."""

    results: Any
    history: list[dict]
    failures: int = 0


Event = Rounds | Losses | State | Outcome
