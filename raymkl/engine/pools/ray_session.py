"""A session on Ray, as the driver sees it: a coordinator actor and shard actors that outlive a fit.

    driver       puts one Arrow block per shard into the object store, starts all actors at once, waits
    coordinator  runs the rounds
    shards       read their blocks without a copy

The coordinator and the shards are the driver's actors and end with it. When the coordinator is lost, all of
them are started anew, and runs go on from their last state.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil
from typing import Any

import ray

from ..events import Event, Losses, Outcome, Rounds, State, Waiting, Watch
from ..faults.places import Resplit
from ..faults.policy import START_SECONDS, FailurePolicy, ShardFailure, ShardsLost
from ..params import RayParams
from ..placed import CLOSED, PlacedRows
from ..problem import Head, Problem
from ..programs.program import Program
from .coordinator_actor import RunRequest, coordinator_class
from .placement import LOOK_SECONDS, dead_nodes, most_shards, places_for, spare_cpus, wait_for_place
from .ray_pool import LOSSES, reason_of
from .ray_shards import (
    PLACE_SECONDS,
    RUNS_AT_ONCE,
    Place,
    Placement,
    end_shards,
    placed,
    start_again,
    start_shards,
)

logger = logging.getLogger("raymkl")

# A coordinator reports between rounds, unwatched every `timeout_s`; so many times that without a word mean
# that it is gone, unless it says that something is being started.
SILENCE = 10.0
# How often a run that waits says for what.
WAITING_SECONDS = 10.0


def ensure_ray() -> None:
    """Connect to a running cluster, or start one here: as Ray is set up by the user (RAY_ADDRESS and the
    like), nothing else is set.
    """
    if not ray.is_initialized():
        context = ray.init()
        where, page = (
            getattr(context, "address_info", {}).get("gcs_address", "a server of it"),
            getattr(context, "dashboard_url", None),
        )
        logger.info("Ray was not connected yet; now at %s%s", where, f", dashboard at {page}" if page else "")


def say(report: Callable[[dict], None] | None, line: str) -> None:
    """Tell those who watch a run what happens, and the log: as a warning where nobody watches."""
    if report is not None:
        report({"message": line})
    logger.log(logging.WARNING if report is None else logging.INFO, line)


class CoordinatorLost(Exception):
    """The coordinator's process or node is gone, or it has been silent for too long.

    begun : whether it had begun with the run. preempted : whether Ray says that its node was taken back. node
    : where it lived, if known.
    """

    def __init__(self, reason: str, begun: bool, preempted: bool = False, node: str | None = None):
        super().__init__(reason)
        self.begun, self.preempted, self.node = begun, preempted, node

    def as_loss(self) -> ShardsLost:
        """The same as the failure policy counts it."""
        return ShardsLost(
            {-1: str(self)}, self.preempted, {-1: self.node}, () if self.begun else (-1,), dead_nodes()
        )


class RaySession:
    """Actors of a session.

    count : of shards. row_bytes : what the rows of a shard will take, where it is known.
    """

    def __init__(self, count: int, params: RayParams, patience: float = 0.0, row_bytes: int = 0):
        self.count, self.params, self.row_bytes = count, params, row_bytes
        self.lock, self.closed, self.used = threading.Lock(), False, False
        self.generation = 0
        self.place: Place | None = None
        self.coordinator: Any = None
        self._start(patience)

    def _start(self, patience: float, lost: Place | None = None) -> None:
        """lost : where shards lived of which nothing is left; their number is the same."""
        cpus = spare_cpus(self.count * self.params.cpus_per_shard)
        if lost is None:
            self.place = start_shards(self.count, self.params, patience, self.row_bytes)
        else:
            self.place = start_again(lost, patience, self.row_bytes)
        try:
            more = {"runtime_env": dict(self.params.runtime_env)} if self.params.runtime_env else {}
            self.coordinator = (
                coordinator_class(RUNS_AT_ONCE).options(num_cpus=cpus, **more).remote(self.place)
            )
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self.coordinator is not None and ray.is_initialized():
            ray.kill(self.coordinator)
        if self.place is not None and ray.is_initialized():
            end_shards(self.place)
        self.coordinator = self.place = None

    def close(self) -> None:
        """End all actors; fits that are under way end with an error."""
        with self.lock:
            self.closed = True
            self._end()

    def _restart(self, generation: int, patience: float, count: int | None = None) -> None:
        """All actors anew, unless another fit has done so already. count : another number of shards."""
        with self.lock:
            if self.closed:
                raise RuntimeError(CLOSED)
            if self.generation == generation:
                lost = None if self.params.bounds else self.place
                self._end()
                if self.params.bounds:
                    self.count = count or self.params.shards_where(most_shards(self.params)) or self.count
                self._start(patience, lost)
                self.generation += 1

    # -- rows --------------------------------------------------------------------------------------

    def _placement(self, rows: dict, problem: Problem) -> Placement:
        """Rows in the object store; those that were put are there already, after the first fit."""
        home = rows.home if isinstance(rows, PlacedRows) else None
        if home is None:
            return placed(rows, problem, self.count)
        found = home.placement(rows, self.count, lambda: placed(rows, problem, self.count))
        return replace(found, problem=ray.put(problem), rows=home.name_of(rows))

    def forget(self, names: list[str]) -> None:
        """Let go of caches over rows that were put."""
        if self.coordinator is not None and ray.is_initialized():
            for name in names:
                self.coordinator.forget.remote(name)

    # -- fits --------------------------------------------------------------------------------------

    def train(
        self,
        rows: dict,
        problem: Problem,
        heads: list[Head] | Program,
        params: RayParams,
        watch: Watch,
        state: dict | None = None,
        keep: Callable[[dict], None] | None = None,
    ) -> Outcome:
        """Train all heads; the coordinator's last word.

        state : of an earlier run to go on from. keep : called with the state of the run now and then.
        """
        policy = FailurePolicy(params.max_shard_failures, params.max_preemptions)
        first, self.used = not self.used, True
        placement, split = self._placement(rows, problem), self.count
        ending = False  # whether somebody who watches has had enough; another coordinator is told so again
        while True:
            generation = self.generation
            if split != self.count:
                placement, split = self._placement(rows, problem), self.count
            told = watch.at_all, watch.on_round is not None
            request = RunRequest(uuid.uuid4().hex, placement, heads, params, state, policy, *told)
            try:
                for event in self._events(request):
                    if isinstance(event, Outcome):
                        return event
                    if isinstance(event, Losses):
                        policy = event.policy
                    if isinstance(event, State):
                        state = event.state
                        if keep is not None:
                            keep(state)
                    for line in _lines_of(event):
                        say(watch.report, line)
                    if isinstance(event, Rounds) and (watch.take(event.rows) or ending):
                        ending = True
                        self.coordinator.wind_up.options(concurrency_group="watch").remote(request.run)
            except Resplit as other:
                say(
                    watch.report,
                    f"going on with {other.count} shards instead of {self.count}: so many find a place",
                )
                self._restart(generation, params.timeout_s, other.count)
            except CoordinatorLost as error:
                # Its last state is here; another coordinator with new shards goes on from there, once they
                # find a place.
                if error.begun or policy.event.shards or first:
                    policy.lose(error.as_loss(), time.time())
                else:  # it was gone before this fit came, since the last one
                    policy.forgive(error.as_loss(), time.time())
                for line in policy.take_news():
                    say(watch.report, line)
                if not error.begun:
                    time.sleep(
                        LOOK_SECONDS
                    )  # Ray may not know yet that a node is gone, and put the next one there as well
                self._restart(generation, params.timeout_s)

    def _events(self, request: RunRequest) -> Iterator[Event]:
        """Events of a run; errors come back as they were raised. The run ends with this generator."""
        with self.lock:  # another fit may be starting it anew
            coordinator, place, begun = self.coordinator, self.place, False
        if coordinator is None:
            raise RuntimeError(CLOSED)
        self._wait_for_place(place)
        where = coordinator.ping.options(concurrency_group="watch").remote()
        running = coordinator.rounds.options(num_returns="streaming").remote(request)
        over = False
        try:
            while True:
                yield from self._until_ready(running, coordinator, request, begun)
                try:
                    event = ray.get(next(running))
                except StopIteration:
                    raise CoordinatorLost("the coordinator ended without a result", begun) from None
                begun, over = True, isinstance(event, Outcome)
                yield event
                if over:
                    return
        except LOSSES as error:
            over = True
            # What its own code raised at the start it would raise again: that is no slow start.
            begun = begun or getattr(error, "actor_init_failed", False)
            raise CoordinatorLost(
                reason_of(error), begun, getattr(error, "preempted", False), _known(where)
            ) from None
        except ray.exceptions.RayTaskError as error:
            over = True
            raise error.cause if isinstance(error.cause, Exception) else ShardFailure(str(error)) from None
        finally:
            if not over:
                coordinator.stop.options(concurrency_group="watch").remote(request.run)

    def _wait_for_place(self, place: Place) -> None:
        """Raise ShardFailure when the shards find no place in time, and Resplit when fewer shards would find
        one.
        """
        if place.crowded:
            return
        soon = max(1, ceil(min(PLACE_SECONDS, self.params.timeout_s)))  # Ray cuts it to whole seconds
        # While a group is being placed, what it takes is neither free nor its own yet; those who wait for
        # long wait for a node.
        if (
            self.params.bounds is not None
            and place.group[1]
            and not place.group[0].wait(timeout_seconds=soon)
        ):
            fewer = self.params.shards_where(places_for(place.group, self.params))
            if fewer is not None and fewer < self.count:
                raise Resplit(fewer)
        wait_for_place(place.group, place.actors, self.params)

    def _until_ready(
        self, running: Any, coordinator: Any, request: RunRequest, begun: bool
    ) -> Iterator[Event]:
        """Wait for the next word of a run, and say what it waits for.

        Raises CoordinatorLost when there is none for too long.
        """
        limit = (
            SILENCE * request.params.timeout_s
            if begun
            else max(SILENCE * request.params.timeout_s, START_SECONDS)
        )
        heard = started = time.monotonic()
        while not ray.wait([running], timeout=min(WAITING_SECONDS, limit))[0]:
            asked = coordinator.waits_for.options(concurrency_group="watch").remote(request.run)
            words = None
            if ray.wait([asked], timeout=min(WAITING_SECONDS, limit))[0]:
                words = ray.get(asked)
            elif not begun:
                words = f"the coordinator to start, for {time.monotonic() - started:.0f} s"
            if words is not None:
                yield Waiting(words)
                heard = time.monotonic() if begun else heard
            if time.monotonic() - heard >= limit:
                raise CoordinatorLost(f"the coordinator was silent for {limit:g} seconds", begun)


def _known(answer: Any) -> str | None:
    """What somebody who is gone has answered before, None if he has not."""
    try:
        return ray.get(answer, timeout=0)
    except (ray.exceptions.GetTimeoutError, *LOSSES):
        return None


def _lines_of(event: Event) -> list[str]:
    """What there is to say about an event."""
    if isinstance(event, Waiting):
        return [f"waiting for {event.words}"]
    return event.news if isinstance(event, Losses) else []
