"""The Ray pool: shards in actors, called through Ray."""

from __future__ import annotations

import time
import uuid
from typing import Any

import ray

from ..faults.policy import START_SECONDS, ShardsLost
from ..params import RayParams
from .placement import LOOK_SECONDS, dead_nodes, is_placed, places_for
from .ray_shards import PLACE_SECONDS, Placement, ShardActors, ping

# Ray takes arguments up to 100 KiB along with a call.
PASSED_BYTES = 95_000
# What Ray raises for a call to a process or node that is gone.
LOSSES = (
    ray.exceptions.RayActorError,
    ray.exceptions.ActorUnavailableError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.TaskCancelledError,
)


class RayPool:
    """One run on the shard actors of a session; calls go to all of them and answers come back in their order.

    A call raises `ShardsLost` for actors that died or answer neither the call nor a ping in `timeout_s`
    seconds; those that are being started have `START_SECONDS`. Answers of an actor that was replaced are
    never looked at again. waits_for : what is being started.
    """

    def __init__(self, shards: ShardActors, placement: Placement, params: RayParams, run: str | None = None):
        self.shards, self.placement, self.params = shards, placement, params
        self.run = run or uuid.uuid4().hex
        self.ranges = placement.ranges
        self.actors = shards.actors[: len(self.ranges)]
        self.generation = 0
        self.begun = [time.monotonic()] * len(self.actors)
        self.waits_for: str | None = None
        self.lost_at_start = self._replace_dead()

    @property
    def members(self) -> tuple:
        return tuple(actor._actor_id.hex() for actor in self.actors)

    def _replace_dead(self) -> ShardsLost | None:
        """Replace actors that are gone already.

        Those that were lost since the last run are no loss of this one; the first run has all.
        """
        lost: dict[int, Exception] = {}
        pings = [ping(actor) for actor in self.actors]
        ray.wait(pings, num_returns=len(pings), timeout=self.params.timeout_s)
        for s, answer in enumerate(pings):
            try:
                self._has_answered(s, ray.get(answer, timeout=0))
            except ray.exceptions.GetTimeoutError:
                continue  # still starting, or silent: the first call tells
            except LOSSES as error:
                lost[s] = error
                self._begin(s)
        first, self.shards.used = not self.shards.used, True
        if not lost or not first:
            return None
        preempted = any(getattr(error, "preempted", False) for error in lost.values())
        return ShardsLost(
            {s: reason_of(error) for s, error in lost.items()}, preempted, unstarted=lost, dead=dead_nodes()
        )

    def load(self, shards: list[int]) -> None:
        """Have shards read their rows."""
        threads = max(1, int(self.params.cpus_per_shard))
        placement = self.placement
        references = [
            self.actors[s].load.remote(
                self.run, placement.blocks[s], self.ranges[s][0], placement.problem, threads
            )
            for s in shards
        ]
        self._fetched(references, shards)

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""
        # What is large goes into the object store once, not once per shard.
        values = [_stored(argument) for argument in arguments] if len(self.actors) > 1 else arguments
        return self._fetched(
            [actor.call.remote(self.run, method, *values) for actor in self.actors],
            list(range(len(self.actors))),
        )

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments), at most one per shard."""
        references = [self.actors[s].call.remote(self.run, method, *given) for s, method, given in calls]
        return self._fetched(references, [s for s, _, _ in calls])

    def _fetched(self, references: list, shards: list[int]) -> list:
        """The values of calls. shards : whom they went to."""
        try:
            # The usual case: one call for all answers.
            results = ray.get(references, timeout=self.params.timeout_s)
            for s in shards:
                self._has_answered(s)
            return results
        except ray.exceptions.GetTimeoutError:
            patience = 0.0
        except LOSSES:
            patience = self.params.timeout_s
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        lost = self._unanswered(references, shards, patience)
        results = []
        for shard, reference in zip(shards, references, strict=True):
            if shard in lost:
                continue
            try:
                results.append(ray.get(reference, timeout=self.params.timeout_s))
                self._has_answered(shard)
            except ray.exceptions.GetTimeoutError:
                lost[shard] = TimeoutError(
                    f"its answer did not arrive within timeout_s={self.params.timeout_s:g} seconds"
                )
            except LOSSES as error:
                lost[shard] = error
        if lost:
            lost |= self._dead()
            # When one shard goes, others may be missed for other reasons as it seems; a preempted node
            # explains them all.
            preempted = any(getattr(error, "preempted", False) for error in lost.values())
            nodes = {shard: self.shards.started.get(self.actors[shard]._actor_id.hex()) for shard in lost}
            # What its own code raised at the start it would raise again.
            unstarted = [
                s
                for s, error in lost.items()
                if not (self._has_started(s) or getattr(error, "actor_init_failed", False))
            ]
            raise ShardsLost(
                {s: reason_of(error) for s, error in lost.items()}, preempted, nodes, unstarted, dead_nodes()
            )
        return results

    def _unanswered(self, references: list, shards: list[int], patience: float) -> dict[int, Exception]:
        """Wait until every call is answered or its shard is known to be silent; returns the silent ones with
        what says so.

        patience : seconds until the first ping.
        """
        waiting, lost = dict(zip(references, shards, strict=True)), {}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=patience, fetch_local=False)
            patience = self.params.timeout_s
            for reference in done:
                del waiting[reference]
            lost |= self._silent(list(waiting.values()))
            waiting = {reference: s for reference, s in waiting.items() if s not in lost}
        self.waits_for = None
        return lost

    def _silent(self, shards: list[int]) -> dict[int, Exception]:
        """Those of the shards that answer no ping, with what says so.

        A long round is no reason to give up a shard, nor is a slow start; silence is.
        """
        pings = {s: ping(self.actors[s]) for s in shards}
        limit, silent = self.params.timeout_s, {}
        answered = ray.wait(list(pings.values()), num_returns=len(pings), timeout=limit)[0] if pings else []
        starting = []
        for s, answer in pings.items():
            if answer in answered:
                try:
                    self._has_answered(s, ray.get(answer))
                except LOSSES as error:
                    silent[s] = error
            elif self._has_started(s):
                silent[s] = TimeoutError(f"answered no ping within timeout_s={limit:g} seconds")
            elif time.monotonic() - self.begun[s] < max(START_SECONDS, limit):
                starting.append(s)
            else:
                silent[s] = TimeoutError(f"did not start within {max(START_SECONDS, limit):g} seconds")
        self._say_what_starts(starting)
        return silent

    def _dead(self) -> dict[int, Exception]:
        """Shards that Ray knows to be gone, and why.

        Asked at a loss: all that a node takes along is one event, and Ray knows best why.
        """
        pings = {s: ping(actor) for s, actor in enumerate(self.actors)}
        dead: dict[int, Exception] = {}
        answered, _ = ray.wait(list(pings.values()), num_returns=len(pings), timeout=LOOK_SECONDS)
        for s in (s for s, answer in pings.items() if answer in answered):
            try:
                ray.get(pings[s])
            except LOSSES as error:
                dead[s] = error
        return dead

    def _has_started(self, s: int) -> bool:
        return self.actors[s]._actor_id.hex() in self.shards.started

    def _has_answered(self, s: int, node: str | None = None) -> None:
        name = self.actors[s]._actor_id.hex()
        self.shards.started[name] = node or self.shards.started.get(name)

    def _say_what_starts(self, shards: list[int], what: str = "to start") -> None:
        since = time.monotonic() - min((self.begun[s] for s in shards), default=0.0)
        names = (
            f"shard{'s' if len(shards) > 1 else ''} "
            f"{', '.join(map(str, shards[:8]))}{', ...' if len(shards) > 8 else ''}"
        )
        self.waits_for = f"{names} {what}, for {since:.0f} s" if shards else None

    def replace(self, shards: list[int]) -> None:
        """Start new actors in the place of lost ones and give them their rows.

        The place of a shard on a lost node comes back when another node joins. A run does not wait long for
        that: the shard then moves in with others, on a node that is alive, without a CPU of its own.
        """
        self.generation += 1
        for s in shards:
            self._begin(s)
        for s in self._without_place(shards):
            self._begin(s, crowded=True)
        self.waits_for = None
        self.load(shards)

    def _without_place(self, shards: list[int]) -> list[int]:
        """Those of the shards that found no place in time.

        One that has a place may take longer to start, which is another matter.
        """
        pings = {ping(self.actors[s]): s for s in shards}
        deadline = time.monotonic() + PLACE_SECONDS
        while pings and time.monotonic() < deadline:
            for answer in ray.wait(list(pings), num_returns=len(pings), timeout=LOOK_SECONDS)[0]:
                s = pings.pop(answer)
                try:
                    self._has_answered(s, ray.get(answer))
                except LOSSES:
                    # Ray may not know yet that a node is gone, and start another actor on it: that is part of
                    # the same loss.
                    self._begin(s)
                    pings[ping(self.actors[s])] = s
            self._say_what_starts(sorted(pings.values()), "to find a place and start")
        return [] if not pings or is_placed(self.shards.group) else sorted(pings.values())

    # -- places ------------------------------------------------------------------------------------

    def places(self) -> int:
        """Shards that would find a place now; in somebody's placement group as many as there are."""
        group = self.shards.group
        return places_for(group, self.params) if group[1] else len(self.actors)

    def may_move_out(self) -> list[int]:
        """Shards that live with others and whose own places are back."""
        crowded = sorted(s for s in self.shards.crowded if s < len(self.actors))
        return crowded if crowded and self.shards.group[1] and is_placed(self.shards.group) else []

    def _begin(self, s: int, crowded: bool = False) -> None:
        self.actors[s], self.begun[s] = self.shards.replaced(s, self.actors[s], crowded), time.monotonic()

    def close(self) -> None:
        """Let shards forget this run."""
        for actor in self.actors:
            actor.end.remote(self.run)


def reason_of(error: Exception) -> str:
    """In one line what is known about a loss."""
    if isinstance(error, TimeoutError) and not isinstance(error, ray.exceptions.RayError):
        return str(error)  # our own words
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    # Ray begins with the same words for all losses and says further down why.
    why = next((line for line in lines[1:] if line.startswith("The actor is dead because")), lines[0])
    return f"{type(error).__name__}: {why}"


def _stored(argument: Any) -> Any:
    """What to pass for an argument that several shards are given: itself when it is small, else a reference
    to it.
    """
    if argument is None or isinstance(argument, int | float | str):
        return argument
    buffers: list = []  # arrays are measured, not copied; kernels may hold functions of a notebook
    size = len(ray.cloudpickle.dumps(argument, protocol=5, buffer_callback=buffers.append))
    return (
        argument
        if size + sum(buffer.raw().nbytes for buffer in buffers) <= PASSED_BYTES
        else ray.put(argument)
    )
