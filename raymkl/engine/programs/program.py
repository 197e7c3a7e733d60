"""Programs: learning problems that need more of a pool of shards than one run over a fixed list of heads.

A program runs where the coordinator runs (in this process, or as a task of a Ray cluster), calls its shards,
sets gates and trains heads, as often as it wants, over one set of loaded rows and cached columns.
`engine.train` takes a program in place of a list of heads.

A program does not hear of shards that are lost: the coordinator replaces them, gives them the gates and the
heads at work, and has them do again what was done with `Crew.keep`. Whatever else a program leaves with a
shard it must not count on.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..rounds.coordinator import Coordinator
    from ..shard.shard import Shard


class Program:
    """Something to do with a coordinator and its shards. Instances must be picklable."""

    def rounds(self, coordinator: Coordinator) -> Iterator[list[dict]]:
        """Do it, yielding new rows of the history after every round.

        Once the coordinator is `winding_up`, end with what there is.
        """
        raise TypeError(f"{type(self).__name__} does nothing")
        yield []

    # Whether a run can be taken up again: then there are `identity`, `state` and `restore`.
    checkpointed = False

    def identity(self, data: str) -> dict[str, str]:
        """What a checkpoint belongs to, by name: all that decides the result. data : a digest of the rows."""
        raise TypeError(f"{type(self).__name__} has no checkpoints")

    def state(self) -> dict | None:
        """The state of the run between two of its yields: nested dicts of arrays and numbers, with "round"
        and "history" among them.
        """
        raise TypeError(f"{type(self).__name__} has no checkpoints")

    def restore(self, state: dict) -> None:
        """Go on from a state, once `rounds` begins.

        Raises one of `plain_arrow.DAMAGE` for something that is none.
        """
        raise TypeError(f"{type(self).__name__} has no checkpoints")

    def check_state(self, state: dict) -> None:
        """Raise one of `plain_arrow.DAMAGE` for something that is no state of such a run."""
        copy(self).restore(state)

    def outcome(self) -> Any:
        """What was learned, once `rounds` is exhausted; `train` hands it back."""
        raise TypeError(f"{type(self).__name__} has no outcome")


def forget(shard: Shard, name: str) -> None:
    """Let go of what a function has left with a shard."""
    shard.scratch.pop(name, None)
