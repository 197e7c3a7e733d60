"""The heads of a run: at work, waiting for room or for another head, or still to be forgotten by the
shards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..problem import Head
from .head import HeadSolver
from .joint import JointLeader
from .leader import Leader
from .summary import Step


@dataclass(eq=False)
class HeadAtWork:
    """A head that takes part in rounds.

    normalisation : (E,) factors of the kernels. diagonal : (E,) mean of k(i, i) over its rows. step : its
    change that the shards have not heard of yet. leader : of the heads that it shares its weights with, if it
    does.
    """

    solver: HeadSolver
    normalisation: np.ndarray
    diagonal: np.ndarray
    step: Step = field(default_factory=Step)
    leader: Leader | None = None

    @property
    def party(self) -> HeadSolver | Leader:
        """Who decides: the head itself, or its leader."""
        return self.solver if self.leader is None else self.leader

    @property
    def mover(self) -> HeadSolver | JointLeader:
        """Who solves sub-problems: the head itself, or the leader of the classes of a joint problem."""
        return self.leader if isinstance(self.leader, JointLeader) else self.solver


class Roster:
    """Heads by number, in the order in which they came.

    waiting : parties, that is heads that must come in together because they share their weights. dropped :
    heads that were at work, and that the shards have not been told to forget. numbered : heads so far.
    """

    def __init__(self) -> None:
        self.at_work: dict[int, HeadAtWork] = {}
        self.waiting: deque[list[tuple[int, Head]]] = deque()
        self.dropped: list[int] = []
        self.numbered = 0

    @property
    def n_heads(self) -> int:
        """Heads at work or waiting.

        Other threads may ask: nothing is changed while a list is made of what waits.
        """
        return len(self.at_work) + sum(map(len, list(self.waiting)))

    def add(self, heads: list[Head], finished: Container[int] = ()) -> list[int]:
        """Number new heads and let them wait, except those that are `finished` already; returns their
        numbers.
        """
        numbers = list(range(self.numbered, self.numbered + len(heads)))
        self.numbered += len(heads)
        parties: dict[Any, list] = {}
        for h, head in zip(numbers, heads, strict=True):
            if h in finished:
                continue
            head = head if head.after is None else replace(head, after=numbers[head.after])
            parties.setdefault(("alone", h) if head.group is None else ("group", head.group), []).append(
                (h, head)
            )
        self.waiting.extend(parties.values())
        return numbers

    def call_up(self, room: int, begun: Container[int] = ()) -> list[tuple[int, Head]]:
        """Heads that need not wait any longer, where `room` of them can work at a time; a party that is alone
        always can.

        begun : heads that have a result, which those that come after them wait for. Nobody waits for one that
        is gone without a result.
        """
        chosen: list[tuple[int, Head]] = []
        parties, later = list(self.waiting), []
        expected = {*self.at_work, *(h for party in parties for h, _ in party)}
        for place, party in enumerate(parties):
            there = len(self.at_work) + len(chosen)
            if there and there + len(party) > room:
                later += parties[place:]
                break
            waits = any(head.after in expected and head.after not in begun for _, head in party)
            if waits and (there or place + 1 < len(parties)):  # the last one of all would wait for ever
                later.append(party)
            else:
                chosen += party
        self.waiting = deque(later)
        return chosen

    def drop(self, numbers: list[int]) -> list[int]:
        """Forget heads, whether they work or wait, with the party that they wait in; returns those that were
        at work.
        """
        wanted, gone = set(numbers), [h for h in dict.fromkeys(numbers) if h in self.at_work]
        for h in gone:
            del self.at_work[h]
        self.dropped += gone
        self.waiting = deque(party for party in self.waiting if not wanted & {h for h, _ in party})
        return gone

    def take_dropped(self) -> list[int]:
        """Heads that the shards are to forget, for them to be told once."""
        dropped, self.dropped = self.dropped, []
        return dropped
