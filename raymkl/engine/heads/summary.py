"""What the coordinator hears of one head in a round, and what it answers: replies of all shards put together,
and a change.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...optim.working_set import merge
from ..problem import HeadReply


@dataclass
class HeadSummary:
    """Replies of all shards for one head, put together in the order of the shards.

    ids : (k,) sorted rows whose `gradients` (k, R) and `offsets` (k,) came back. The rest is as in
    `HeadReply`.
    """

    grow: np.ndarray
    grow_residual: np.ndarray
    shrink: np.ndarray
    shrink_residual: np.ndarray
    ids: np.ndarray
    gradients: np.ndarray | None
    quadratic: np.ndarray
    losses: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, replies: list[HeadReply], count: int) -> HeadSummary:
        sides = []
        for name, sign in (("grow", -1.0), ("shrink", 1.0)):
            keys = [sign * getattr(reply, f"{name}_residual") for reply in replies]
            best, key = merge([getattr(reply, name) for reply in replies], keys, count)
            sides += [best, sign * key]
        # Shards own ascending ranges of rows and report them in order, so the joined ids are sorted.
        return cls(
            *sides,
            ids=np.concatenate([reply.ids for reply in replies]),
            gradients=None
            if replies[0].gradients is None
            else np.concatenate([reply.gradients for reply in replies]),
            quadratic=np.sum([reply.quadratic for reply in replies], axis=0),
            losses=np.sum([reply.losses for reply in replies], axis=0),
            offsets=np.concatenate(
                [np.zeros(len(reply.ids)) if reply.offsets is None else reply.offsets for reply in replies]
            ),
        )

    def gradients_of(self, ids: np.ndarray) -> np.ndarray | None:
        """(len(ids), R) gradients of rows that were reported; None where shards keep f alone, which is then
        in the offsets.
        """
        return None if self.gradients is None else self.gradients[np.searchsorted(self.ids, ids)]

    def offsets_of(self, ids: np.ndarray) -> np.ndarray:
        """(len(ids),) what f of these rows differs by from their gradients."""
        return self.offsets[np.searchsorted(self.ids, ids)]


@dataclass
class Step:
    """A change of dual variables: ids (k,), delta (k,), and the new values (k,)."""

    ids: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    delta: np.ndarray = field(default_factory=lambda: np.empty(0))
    values: np.ndarray = field(default_factory=lambda: np.empty(0))

    def __getitem__(self, part: slice) -> Step:
        return Step(self.ids[part], self.delta[part], self.values[part])
