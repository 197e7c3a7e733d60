"""What a coordinator tells the driver while it trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .faults.policy import FailurePolicy


@dataclass(frozen=True)
class Rounds:
    """The newest rows of the history."""

    rows: list[dict]


@dataclass(frozen=True)
class Losses:
    """Shards were lost and replaced: in words, and all that was counted so far."""

    news: list[str]
    policy: FailurePolicy


@dataclass(frozen=True)
class Waiting:
    """The run waits for something that is being started: for what and since when, in words."""

    words: str


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


Event = Rounds | Losses | Waiting | State | Outcome
