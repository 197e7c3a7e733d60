"""The crew: shards that are asked, and replaced when they are lost.

Every call goes through here. Shards that were lost are replaced and the new ones brought up to date (see
`recovery`), so that the rest of the engine need not know that shards can be lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..faults.policy import FailurePolicy, ShardsLost
from ..pools.protocol import Pool
from ..problem import RoundRequest
from ..programs.program import forget

NO_IDS = np.empty(0, np.int64)
NO_VALUES = np.empty(0)


class Crew:
    """Shards of a run.

    kept : work that left something in the shards, by name; new ones do it as well. ahead : heads whose
    pending changes a new shard knows already, by shard.
    """

    def __init__(self, pool: Pool, policy: FailurePolicy | None, bring_up_to_date: Callable[[int], set[int]]):
        """policy : what to do when shards are lost (None: none may be). bring_up_to_date : gives a new shard,
        which has its rows, the state that the others have; returns the heads whose pending changes it then
        knows.
        """
        self.pool, self.policy, self.bring_up_to_date = pool, policy or FailurePolicy(0), bring_up_to_date
        self.kept: dict[str, tuple[Callable, tuple]] = {}
        self.ahead: dict[int, set[int]] = {}
        self.recovering = threading.Lock()
        self.recovering_thread: int | None = None

    def dismiss(self) -> None:
        """The run is over: nobody knows any more what a new shard would have to be told."""
        self.bring_up_to_date = lambda shard: set()

    def told(self, h: int) -> None:
        """All shards know the changes of a head."""
        for known in self.ahead.values():
            known.discard(h)

    def load(self) -> None:
        """Have all shards read their rows (those of a local pool have them)."""
        while True:
            generation = self.pool.generation
            try:
                self.pool.load(list(range(len(self.pool.ranges))))
                self.policy.recovered(
                    time.time()
                )  # where an earlier coordinator was lost, all has been started anew
                return
            except ShardsLost as loss:
                self._recover(loss, generation)

    def ask(self, method: str, *arguments: Any) -> list:
        """Call a method of all shards that can be called twice; shards that are lost are replaced."""
        while True:
            generation = self.pool.generation
            try:
                return self.pool.call_all(method, *arguments)
            except ShardsLost as loss:
                self._recover(loss, generation)

    def ask_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """The same for calls (shard, method, arguments)."""
        while True:
            generation = self.pool.generation
            try:
                return self.pool.call_some(calls)
            except ShardsLost as loss:
                self._recover(loss, generation)

    def ask_owners(self, method: str, s: int, ids: np.ndarray, *arguments: np.ndarray) -> np.ndarray:
        """(q, ...) what shards make of the rows `ids` (q,), sorted, of ready-made matrices; every shard has
        its rows of them.
        """
        calls = []
        for shard, (first, last) in enumerate(self.pool.ranges):
            mine = ids[(ids >= first) & (ids < last)]
            if len(mine):
                calls.append((shard, method, (s, mine, ids, *arguments)))
        # Shards own contiguous ranges, so the parts come in order.
        parts = self.ask_some(calls)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def apply(self, work: Callable, *arguments: Any) -> list:
        """What work(shard, *arguments) returns for every shard, in their order.

        It may run twice where a shard is lost.
        """
        return self.ask("apply", work, *arguments)

    def keep(self, name: str, work: Callable, *arguments: Any) -> list:
        """The same for work that leaves something in the shards' `scratch`; shards that replace lost ones do
        it as well.
        """
        self.kept[name] = (work, arguments)
        return self.apply(work, *arguments)

    def release(self, name: str) -> None:
        """Forget what `keep` left under this name."""
        del self.kept[name]
        self.apply(forget, name)

    def advance(self, request: RoundRequest) -> list:
        """Replies of all shards to a round.

        Survivors of a loss answer again what they answered, new shards know the changes already.
        """
        while True:
            generation = self.pool.generation
            try:
                if not any(self.ahead.values()):
                    return self.pool.call_all("advance", request)
                known = [
                    without_changes(request, self.ahead.get(s, set())) for s in range(len(self.pool.ranges))
                ]
                return self.pool.call_some([(s, "advance", (part,)) for s, part in enumerate(known)])
            except ShardsLost as loss:
                self._recover(loss, generation)

    def _recover(self, loss: ShardsLost, generation: int) -> None:
        """Replace lost shards and bring the new ones up to date; shards that are lost meanwhile are counted
        and replaced as well.
        """
        if self.recovering_thread == threading.get_ident():
            raise loss  # met while a new shard is brought up to date: the recovery under way takes care of it
        with self.recovering:
            if self.pool.generation != generation:
                return  # another thread has done it
            self.recovering_thread = threading.get_ident()
            try:
                self._replace(loss)
            finally:
                self.recovering_thread = None

    def refresh(self, shard: int) -> None:
        """Make all state of a shard anew; shards that are lost meanwhile are replaced."""
        while True:
            generation = self.pool.generation
            try:
                self.bring_up_to_date(shard)
                return
            except ShardsLost as loss:
                self._recover(loss, generation)

    def move(self, shards: list[int]) -> None:
        """Planned replacements: new shards in the place of some that are alive. Nothing is lost by it."""
        with self.recovering:
            self.recovering_thread = threading.get_ident()
            try:
                self._replace(None, shards)
            finally:
                self.recovering_thread = None

    def _replace(self, loss: ShardsLost | None, moving: list[int] | None = None) -> None:
        """loss : what is to be replaced because it is gone.

        moving : shards that are to be replaced although they are alive.
        """
        behind: set[int] = set()  # shards that are new and do not know all yet
        lost: dict[int, str] = {} if loss is None else loss.lost
        moving = list(moving or ())
        while lost or moving or behind:
            if lost and loss is not None:
                self.policy.lose(loss, time.time())
            gone, moving = sorted({*lost, *moving}), []
            behind |= set(gone)
            try:
                if gone:
                    self.pool.replace(gone)
                    lost = {}
                for shard in sorted(behind):
                    self.ahead[shard] = self.bring_up_to_date(shard)
                    behind.discard(shard)
            except ShardsLost as again:
                loss, lost = again, again.lost
        self.policy.recovered(time.time())


def without_changes(request: RoundRequest, known: set[int]) -> RoundRequest:
    """A request for a shard that already knows the changes of some heads."""
    heads = [
        replace(part, columns=NO_IDS, slots=NO_IDS, delta=NO_VALUES, values=NO_VALUES, stretch=1.0)
        if part.head in known
        else part
        for part in request.heads
    ]
    return replace(request, heads=heads)
