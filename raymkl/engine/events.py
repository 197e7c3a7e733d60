"""What a coordinator tells the driver while it trains."""

from __future__ import annotations

from collections.abc import Callable
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
    """The last word.

    results : of all heads, or what a program hands back. failures : shards and coordinators lost.
    """

    results: Any
    history: list[dict]
    failures: int = 0


@dataclass(frozen=True)
class Watch:
    """Who is told of a run, at the driver.

    report : takes rows of the history and messages {"message": text}, one at a time; it need not see every
    round. on_round : takes the rows of every round; whether the run is to end. Both may be None. What they
    raise ends the run.
    """

    report: Callable[[dict], None] | None = None
    on_round: Callable[[list[dict]], bool] | None = None

    @property
    def at_all(self) -> bool:
        """Whether anybody is told."""
        return self.report is not None or self.on_round is not None

    def message(self, text: str) -> None:
        """Pass a message on."""
        if self.report is not None:
            self.report({"message": text})

    def take(self, rows: list[dict]) -> bool:
        """Pass the rows of a round on; whether the run is to end."""
        for row in rows if self.report is not None else ():
            self.report(row)
        return self.on_round is not None and bool(rows) and bool(self.on_round(rows))


Event = Rounds | Losses | Waiting | State | Outcome
