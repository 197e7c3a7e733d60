"""Programs: learning problems that need more of a pool of shards than one run over a fixed list of heads.

A program runs where the coordinator runs (in this process, or as a task of a Ray cluster), calls its shards, sets gates and trains
heads, as often as it wants, over one set of loaded rows and cached columns. `engine.train` takes a program in place of a list of
heads.

A program does not hear of shards that are lost: the coordinator replaces them, gives them the gates and the heads at work, and has
them do again what was done with `Crew.keep`. Whatever else a program leaves with a shard it must not count on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..rounds.coordinator import Coordinator
    from ..shard.shard import Shard


class Program:
    """Something to do with a coordinator and its shards. Instances must be picklable."""

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        """Do it, yielding new rows of the history now and then."""
        raise TypeError(f"{type(self).__name__} does nothing")
        yield []

    def outcome(self) -> Any:
        """What was learned, once `rounds` is exhausted; `train` hands it back."""
        raise TypeError(f"{type(self).__name__} has no outcome")


def forget(shard: Shard, name: str) -> None:
    """Let go of what a function has left with a shard."""
    shard.scratch.pop(name, None)
