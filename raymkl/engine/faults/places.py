"""What to do when places come and go while a run is under way: decisions only, no cluster.

A shard that moved in with others after a loss moves out again when its place is back. A run with
`num_shards=(least, most)` splits its rows anew when there is place for more shards, or for fewer. Both go on
from the state that the run has, and the model is the same. Neither is done more than once a minute: bringing
new shards up to date costs some rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..rounds.crew import Crew

LOOK_EVERY_SECONDS = 60.0


class Housing(Protocol):
    """Who knows about places, beside what a pool does."""

    def places(self) -> int:
        """Shards that would find a place now: those that have one, and what is free beside them."""

    def may_move_out(self) -> list[int]:
        """Shards that live with others and whose own places are back."""


class Resplit(Exception):
    """A run is to go on with another number of shards. count : that number."""

    def __init__(self, count: int):
        super().__init__(count)
        self.count = count


@dataclass
class Lookout:
    """When to look for places, and what to do then.

    bounds : (least, most) shards, None where their number is fixed.
    """

    bounds: tuple[int, int] | None = None
    every: float = LOOK_EVERY_SECONDS
    clock: Callable[[], float] = time.monotonic
    looked: float = field(init=False)

    def __post_init__(self) -> None:
        self.looked = self.clock()

    def is_due(self) -> bool:
        """Whether it is time; the next time is a while from then."""
        now = self.clock()
        if now - self.looked < self.every:
            return False
        self.looked = now
        return True

    def another_number(self, places: int, count: int) -> int | None:
        """Shards to go on with where there is place for so many; None to go on with the `count` that there
        are.
        """
        if self.bounds is None:
            return None
        least, most = self.bounds
        wanted = max(least, min(most, places))
        return None if wanted == count else wanted

    def look(self, housing: Housing, crew: Crew, count: int) -> None:
        """Between two rounds: let shards move out if it is time and there is a place.

        Raises Resplit for another number of them.
        """
        if not self.is_due():
            return
        wanted = self.another_number(housing.places(), count) if self.bounds is not None else None
        if wanted is not None:
            raise Resplit(wanted)
        back = housing.may_move_out()
        if back:
            crew.move(back)
            many = len(back) > 1
            names = f"shard{'s' if many else ''} {', '.join(map(str, back))}"
            crew.policy.news.append(
                f"{names} moved back to {'places of their own' if many else 'a place of its own'}"
            )
