"""The Ray pool: the same shards as actors, called over direct connections where there are any, else through Ray."""

from __future__ import annotations

import pickle
import threading
import time
from typing import Any

import ray

from ..faults.policy import ShardsLost
from ..params import RayParams
from . import direct
from .ray_shards import Place, start_shard

# How long a replacement waits for the place of the shard that was lost.
PLACE_SECONDS = 20.0
# What goes to several shards at once is better off in the object store from here on, which sends it once to every node.
MOST_DIRECT_BYTES = 64 * 2**20
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
    """Shard actors over contiguous ranges of rows; calls go to all of them and answers come back in their order.

    A call raises `ShardsLost` for actors that died or answer neither the call nor a ping in `timeout_s` seconds. Answers of an actor
    that was replaced are never looked at again. Calls go over direct connections if there are any, see `direct`.
    """

    def __init__(self, place: Place, params: RayParams):
        self.place, self.params = place, params
        self.actors, self.bounds = list(place.actors), place.bounds
        self.generation = 0
        self.replacements: list = []
        self.started = [False] * len(self.actors)
        self.key = direct.wanted()
        self.connections: list[direct.Connection | None] = [None] * len(self.actors)
        self.talking = threading.Lock()
        self.calls = 0  # over connections; answers carry the number of their call

    def load(self, shards: list[int]) -> None:
        """Have shards read their rows, and connect to them."""
        threads = max(1, int(self.params.cpus_per_shard))
        given = [(self.place.blocks[s], self.bounds[s][0], self.place.problem, threads, self.key) for s in shards]
        references = [self.actors[s].load.remote(*values) for s, values in zip(shards, given, strict=True)]
        for s, address in zip(shards, self._fetched(references, shards), strict=True):
            self.connections[s] = None if address is None or self.key is None else direct.connect(address, self.key)
            if self.connections[s] is None:
                self.key = None  # what one shard cannot do is not tried again with the others

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""
        shards = list(range(len(self.actors)))
        if self._connected(shards):
            with self.talking:
                frame = self._frame(method, arguments)
                if frame.size * len(shards) <= MOST_DIRECT_BYTES or len(shards) == 1:
                    return self._directly(shards, [frame] * len(shards))
        # What is large goes into the object store once, not once per shard.
        values = [_stored(argument) for argument in arguments]
        return self._fetched([self.actors[s].call.remote(method, *values) for s in shards], shards)

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments), at most one per shard."""
        shards = [s for s, _, _ in calls]
        if self._connected(shards):
            with self.talking:
                return self._directly(shards, [self._frame(method, given) for _, method, given in calls])
        return self._fetched([self.actors[s].call.remote(method, *given) for s, method, given in calls], shards)

    def _connected(self, shards: list[int]) -> bool:
        return all(self.connections[s] is not None for s in shards)

    def _frame(self, method: str, arguments: tuple) -> direct.Frame:
        # Rounds are plain data; all else may hold functions of a notebook.
        return direct.Frame((self.calls + 1, method, arguments), pickle.dumps if method == "advance" else ray.cloudpickle.dumps)

    def _directly(self, shards: list[int], frames: list[direct.Frame]) -> list:
        """Answers of shards over their connections."""
        self.calls += 1
        broken: dict[int, OSError] = {}
        answers, lost = {}, {}
        for s, frame in zip(shards, frames, strict=True):
            try:
                lost |= self._send(s, frame)
            except OSError as error:
                broken[s] = error
        while waiting := [s for s in shards if s not in answers and s not in broken and s not in lost]:
            deadline = time.monotonic() + self.params.timeout_s
            for s in waiting:
                try:
                    answers[s] = self._answer(s, deadline)
                except TimeoutError:
                    continue
                except OSError as error:
                    broken[s] = error
            lost |= self._silent([s for s in waiting if s not in answers and s not in broken])
        lost |= self._silent(list(broken))
        for s, error in broken.items():
            if s not in lost:  # it is alive, but connections do not last here: the next one is called through Ray
                lost[s], self.key = f"its connection ended: {error}", None
        for s in lost:
            self._disconnect(s)
        if lost:
            raise ShardsLost(lost)
        for fine, result in answers.values():
            if not fine:
                raise result
        return [answers[s][1] for s in shards]

    def _send(self, s: int, frame: direct.Frame) -> dict[int, str]:
        """Send a call to a shard; returns the shard with a reason when it is silent."""
        while True:
            try:
                self.connections[s].send(frame, self.params.timeout_s)
                return {}
            except TimeoutError:  # it may still be at work on a call that was given up
                silent = self._silent([s])
                if silent:
                    return silent

    def _answer(self, s: int, deadline: float) -> tuple[bool, Any]:
        """(fine, result) of the last call of a shard; answers to calls that were given up are passed over."""
        while True:
            number, fine, result = self.connections[s].receive(max(deadline - time.monotonic(), 0.001))
            if number in (self.calls, None):
                return fine, result

    def _fetched(self, references: list, shards: list[int]) -> list:
        """The values of calls through Ray. shards : whom they went to."""
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
        # Pings are answered next to the work.
        pings = {s: self.actors[s].ping.options(concurrency_group="watch").remote() for s in shards}
        limit, silent = self.params.timeout_s, {}
        answered = ray.wait(list(pings.values()), num_returns=len(pings), timeout=limit)[0] if pings else []
        for s, ping in pings.items():
            if ping not in answered:
                silent[s] = f"{'answered no ping' if self.started[s] else 'did not start'} within timeout_s={limit:g} seconds"
                continue
            try:
                ray.get(ping)
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
            ray.kill(self.actors[s])
            self._begin(s, start_shard(s, self.params, self.place.group))
        pings = {self.actors[s].ping.options(concurrency_group="watch").remote(): s for s in shards}
        answered, _ = ray.wait(list(pings), num_returns=len(pings), timeout=min(PLACE_SECONDS, self.params.timeout_s))
        for s in (s for ping, s in pings.items() if ping not in answered):
            ray.kill(self.actors[s])
            self._begin(s, start_shard(s, self.params, None, crowded=True))
        self.load(shards)

    def _begin(self, s: int, actor: Any) -> None:
        self._disconnect(s)
        self.actors[s], self.started[s] = actor, False
        self.replacements.append(actor)

    def _disconnect(self, s: int) -> None:
        connection, self.connections[s] = self.connections[s], None
        if connection is not None:
            connection.close()

    def forget(self) -> None:
        """Let go of all references to actors and blocks."""
        self.place, self.actors, self.replacements = None, [], []

    def close(self) -> None:
        """End the connections, and the actors that this pool has started itself."""
        for s in range(len(self.connections)):
            self._disconnect(s)
        for actor in self.replacements:
            ray.kill(actor)


def reason_of(error: Exception) -> str:
    """In one line what Ray says about a loss."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _stored(argument: Any) -> Any:
    """What to pass for an argument of a call through Ray: itself when it is small, else a reference to it."""
    # Kernels may hold functions of a notebook.
    return argument if direct.Frame(argument, ray.cloudpickle.dumps).size <= PASSED_BYTES else ray.put(argument)
