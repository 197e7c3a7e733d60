"""The Ray pool: shards in actors, called through Ray."""

from __future__ import annotations

import uuid
from typing import Any

import ray

from ..faults.policy import ShardsLost
from ..params import RayParams
from .ray_shards import Placement, ShardActors, ping

# How long a replacement waits for the place of the shard that was lost.
PLACE_SECONDS = 20.0
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

    A call raises `ShardsLost` for actors that died or answer neither the call nor a ping in `timeout_s` seconds. Answers of an actor
    that was replaced are never looked at again.
    """

    def __init__(self, shards: ShardActors, placement: Placement, params: RayParams, run: str | None = None):
        self.shards, self.placement, self.params = shards, placement, params
        self.run = run or uuid.uuid4().hex
        self.ranges = placement.ranges
        self.actors = shards.actors[: len(self.ranges)]
        self.generation = 0
        self.started = [False] * len(self.actors)
        self._replace_dead()

    @property
    def members(self) -> tuple:
        return tuple(actor._actor_id.hex() for actor in self.actors)

    def _replace_dead(self) -> None:
        """Actors that were lost since the last run are no loss of this one."""
        pings = [ping(actor) for actor in self.actors]
        ray.wait(pings, num_returns=len(pings), timeout=self.params.timeout_s)
        for s, answer in enumerate(pings):
            try:
                ray.get(answer, timeout=0)
            except ray.exceptions.GetTimeoutError:
                continue  # still starting, or silent: the first call tells
            except LOSSES:
                self._begin(s)

    def load(self, shards: list[int]) -> None:
        """Have shards read their rows."""
        threads = max(1, int(self.params.cpus_per_shard))
        placement = self.placement
        references = [
            self.actors[s].load.remote(self.run, placement.blocks[s], self.ranges[s][0], placement.problem, threads) for s in shards
        ]
        self._fetched(references, shards)

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""
        # What is large goes into the object store once, not once per shard.
        values = [_stored(argument) for argument in arguments] if len(self.actors) > 1 else arguments
        return self._fetched([actor.call.remote(self.run, method, *values) for actor in self.actors], list(range(len(self.actors))))

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments), at most one per shard."""
        references = [self.actors[s].call.remote(self.run, method, *given) for s, method, given in calls]
        return self._fetched(references, [s for s, _, _ in calls])

    def _fetched(self, references: list, shards: list[int]) -> list:
        """The values of calls. shards : whom they went to."""
        try:
            # The usual case: one call for all answers.
            results = ray.get(references, timeout=self.params.timeout_s)
            for shard in shards:
                self.started[shard] = True
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
                self.started[shard] = True
            except ray.exceptions.GetTimeoutError:
                lost[shard] = f"its answer did not arrive within timeout_s={self.params.timeout_s:g} seconds"
            except LOSSES as error:
                lost[shard] = reason_of(error)
        if lost:
            raise ShardsLost(lost)
        return results

    def _unanswered(self, references: list, shards: list[int], patience: float) -> dict[int, str]:
        """Wait until every call is answered or its shard is known to be silent; returns the silent ones with a reason.

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
        return lost

    def _silent(self, shards: list[int]) -> dict[int, str]:
        """Those of the shards that answer no ping, with a reason. A long round is no reason to give up a shard, silence is."""
        pings = {s: ping(self.actors[s]) for s in shards}
        limit, silent = self.params.timeout_s, {}
        answered = ray.wait(list(pings.values()), num_returns=len(pings), timeout=limit)[0] if pings else []
        for s, answer in pings.items():
            if answer not in answered:
                silent[s] = f"{'answered no ping' if self.started[s] else 'did not start'} within timeout_s={limit:g} seconds"
                continue
            try:
                ray.get(answer)
            except LOSSES as error:
                silent[s] = reason_of(error)
        return silent

    def replace(self, shards: list[int]) -> None:
        """Start new actors in the place of lost ones and give them their rows.

        The place of a shard on a lost node comes back when another node joins. A run does not wait long for that: the shard then
        moves in with others, on a node that is alive, without a CPU of its own.
        """
        self.generation += 1
        for s in shards:
            self._begin(s)
        pings = {ping(self.actors[s]): s for s in shards}
        answered, _ = ray.wait(list(pings), num_returns=len(pings), timeout=min(PLACE_SECONDS, self.params.timeout_s))
        for s in (s for answer, s in pings.items() if answer not in answered):
            self._begin(s, crowded=True)
        self.load(shards)

    def _begin(self, s: int, crowded: bool = False) -> None:
        self.actors[s], self.started[s] = self.shards.replaced(s, self.actors[s], crowded), False

    def close(self) -> None:
        """Let shards forget this run."""
        for actor in self.actors:
            actor.end.remote(self.run)


def reason_of(error: Exception) -> str:
    """In one line what Ray says about a loss."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _stored(argument: Any) -> Any:
    """What to pass for an argument that several shards are given: itself when it is small, else a reference to it."""
    if argument is None or isinstance(argument, int | float | str):
        return argument
    buffers: list = []  # arrays are measured, not copied; kernels may hold functions of a notebook
    size = len(ray.cloudpickle.dumps(argument, protocol=5, buffer_callback=buffers.append))
    return argument if size + sum(buffer.raw().nbytes for buffer in buffers) <= PASSED_BYTES else ray.put(argument)
