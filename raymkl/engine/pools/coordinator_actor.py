"""The coordinator as a Ray actor: it runs the rounds of all fits of a session over the same shard actors."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import ray

from ..events import Event, Losses, Outcome, Rounds, State
from ..faults.places import LOOK_EVERY_SECONDS, Lookout, Resplit
from ..faults.policy import FailurePolicy
from ..faults.recovery import state_of
from ..opening import opened
from ..params import RayParams
from ..problem import Head
from ..programs.program import Program
from ..resources import shared_cpus, this_node
from ..rounds.caches import StandingCaches
from .metrics import RunMetrics
from .ray_pool import LOSSES, RayPool
from .ray_shards import Place, Placement, ShardActors

# A run that is watched reports this often.
REPORT_SECONDS = 1.0
# Without a checkpoint directory the driver still gets the state this often, in case that the coordinator is
# lost.
SNAPSHOT_SECONDS = 30.0


@dataclass(frozen=True)
class RunRequest:
    """One fit. run : its name. state : of an earlier run to go on from. policy : with what earlier
    coordinators lost. watched : whether
    somebody reads the rows of the history, every_round : whether those of every round. The references in
    `placement` are not resolved on the way: blocks travel to the shards and not through here.
    """

    run: str
    placement: Placement
    heads: list[Head] | Program
    params: RayParams
    state: dict | None
    policy: FailurePolicy
    watched: bool
    every_round: bool = False


class GivenUp(Exception):
    """Nobody waits for the result of a run any more."""


class CoordinatorActor:
    """Runs of a session, each in a thread of its own. look_every : seconds between two looks for places."""

    look_every = LOOK_EVERY_SECONDS

    def __init__(self, place: Place):
        self.shards = ShardActors(place)
        self.standing = StandingCaches()
        self.stopped: set[str] = set()
        self.ending: set[str] = set()  # runs that are to end with what they have
        self.pools: dict[str, RayPool] = {}  # of the runs under way

    def rounds(self, request: RunRequest) -> Iterator[Event]:
        """Train; yields what happens, and an `Outcome` at last."""
        yield Rounds([])  # from here on a loss of this process is a loss of this run
        params, name = request.params, request.placement.rows
        standing = None if name is None else self.standing.of(name)
        policy = request.policy
        pool = self.pools[request.run] = RayPool(self.shards, request.placement, params, request.run)
        metrics = RunMetrics()
        try:
            if pool.lost_at_start is not None:
                policy.lose(pool.lost_at_start, time.time())
            problem, threads = ray.get(request.placement.problem), self._threads(pool)
            with opened(pool, problem, params.memory_per_shard, policy, threads, standing) as coordinator:
                yield from self._watched(request, coordinator, policy, metrics)
                last = Outcome(coordinator.outcome(request.heads), coordinator.journal.history, policy.total)
        finally:
            metrics.close()
            self.stopped.discard(request.run)
            self.ending.discard(request.run)
            del self.pools[request.run]
            coordinator = pool = None
            # what stands in reference cycles must not keep blocks in the object store until then
            gc.collect()
        yield last

    def _watched(
        self, request: RunRequest, coordinator: Any, policy: FailurePolicy, metrics: RunMetrics
    ) -> Iterator[Event]:
        params, heads = request.params, request.heads
        told = saved = time.monotonic()
        every = params.checkpoint_every_s if params.checkpoint_dir is not None else SNAPSHOT_SECONDS
        word_every = REPORT_SECONDS if request.watched else max(REPORT_SECONDS, params.timeout_s)
        lookout = Lookout(params.bounds, self.look_every)
        for rows in coordinator.rounds(heads, request.state):
            now = time.monotonic()
            metrics.record(rows, policy.total)
            if policy.news:
                yield Losses(policy.take_news(), policy)
            if now - saved >= every:
                saved, state = now, state_of(coordinator, heads)
                if state is not None:
                    yield State(state)
            if request.run in self.ending and not coordinator.winding_up:
                coordinator.wind_up()
            if request.every_round and rows:
                yield Rounds(rows)
            elif (request.watched and coordinator.journal.round == 1) or now - told >= word_every:
                told = now
                yield Rounds(rows)
            if request.run in self.stopped:
                raise GivenUp("the driver has given this fit up")
            if len(self.pools) == 1:  # shards of other runs stay where they are
                yield from self._look_for_places(request, coordinator, lookout)

    def _look_for_places(self, request: RunRequest, coordinator: Any, lookout: Lookout) -> Iterator[Event]:
        """Let shards move back to places of their own.

        Yields the state of a run that is to go on with other shards.
        """
        pool = coordinator.crew.pool
        try:
            lookout.look(
                pool, coordinator.crew, len(pool.shards.actors)
            )  # there may be fewer rows than shards
        except Resplit:
            state = state_of(coordinator, request.heads)
            if state is None:
                return  # a program that keeps no state goes on with the shards it has
            yield State(state)
            raise

    def _threads(self, pool: RayPool) -> int:
        """As many as may run on this node while the shards rest."""
        reports = [actor.resources.remote() for actor in pool.actors]
        ready, _ = ray.wait(reports, num_returns=len(reports), timeout=pool.params.timeout_s)
        try:
            return shared_cpus(ray.get(ready))
        except LOSSES:  # the first round tells, and takes care of it
            return shared_cpus([])

    def stop(self, run: str) -> None:
        """Give a run up after its round."""
        self.stopped.add(run)

    def wind_up(self, run: str) -> None:
        """Let a run end with the best points it has."""
        if run in self.pools:
            self.ending.add(run)

    def forget(self, rows: str) -> None:
        """Let go of all caches over rows that were put."""
        serials = self.standing.drop(rows)
        for actor in self.shards.actors:
            actor.forget.remote(serials)

    def waits_for(self, run: str) -> str | None:
        """What a run waits for that is being started, in words; None when it works."""
        pool = self.pools.get(run)
        return None if pool is None else pool.waits_for

    def ping(self) -> str:
        """Where this process is alive."""
        return this_node()


@cache
def coordinator_class(runs_at_once: int) -> Any:
    """The actor class, made once: Ray pickles it again for every new one."""
    return ray.remote(concurrency_groups={"watch": 1}, max_concurrency=runs_at_once, max_restarts=0)(
        CoordinatorActor
    )
