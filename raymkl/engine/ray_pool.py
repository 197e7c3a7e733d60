"""The Ray pool: the same shards as actors, driven by a coordinator that is a task of its own.

    driver       puts one Arrow block per shard into the object store, starts all actors at once, waits
    coordinator  runs the rounds
    shards       read their block without a copy

Nothing of a run outlives it: the driver kills its actors and removes the placement group whatever happens, and if the driver itself
is killed, Ray ends the actors that it owned.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .failures import FailurePolicy, ShardFailure, ShardsLost
from .messages import Head, Problem
from .params import RayParams
from .program import Program
from .recovery import state_of
from .rows import split_bounds, take, to_table
from .shard import Shard

# A shard with fewer rows than this is not worth an actor when the number of shards is left to us.
ROWS_PER_SHARD = 2_000
# A run that is watched reports this often.
REPORT_SECONDS = 1.0
# CPUs of an earlier fit are free again after about 50 ms.
LEAVING_SECONDS = 0.5
# Without a checkpoint directory the driver still gets the state this often, in case that the coordinator is lost.
SNAPSHOT_SECONDS = 30.0
# A coordinator reports between rounds; so many times `timeout_s` without a word mean that it is gone.
SILENCE = 10.0
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
    that was replaced are never looked at again.
    """

    def __init__(self, place: Place, params: RayParams):
        self.place, self.params = place, params
        self.actors, self.bounds = list(place.actors), place.bounds
        self.generation = 0
        self.replacements: list = []
        self.started = [False] * len(self.actors)

    def load(self, shards: list[int]) -> None:
        """Have shards read their rows."""
        self.call_some([(s, "load", (self.place.blocks[s], self.bounds[s][0], self.place.problem)) for s in shards])

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""
        # Arguments go into the object store once, not once per shard.
        shared = [ray.put(argument) for argument in arguments]
        return self._collect([getattr(actor, method).remote(*shared) for actor in self.actors], range(len(self.actors)))

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments)."""
        references = [getattr(self.actors[shard], method).remote(*arguments) for shard, method, arguments in calls]
        return self._collect(references, [shard for shard, _, _ in calls])

    def _collect(self, references: list, shards: Any) -> list:
        shards = list(shards)
        lost = self._silent(references, shards)
        results = []
        for shard, reference in zip(shards, references, strict=True):
            if shard in lost:
                continue
            try:
                results.append(ray.get(reference))
                self.started[shard] = True
            except LOSSES as error:
                lost[shard] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        if lost:
            raise ShardsLost(lost)
        return results

    def _silent(self, references: list, shards: list[int]) -> dict[int, str]:
        """Wait until every call is answered or its shard is known to be silent; returns the silent ones with a reason."""
        waiting, silent = dict(zip(references, shards, strict=True)), {}
        limit = self.params.timeout_s
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=limit, fetch_local=False)
            for reference in done:
                del waiting[reference]
            if not waiting:
                break
            # A long round is no reason to give up a shard, silence is. Pings are answered next to the work.
            pings = {self.actors[s].ping.options(concurrency_group="watch").remote(): s for s in set(waiting.values())}
            answered, _ = ray.wait(list(pings), num_returns=len(pings), timeout=limit)
            quiet = {s for ping, s in pings.items() if ping not in answered}
            for s in quiet:
                what = "answered no ping" if self.started[s] else "did not start"
                silent[s] = f"{what} within timeout_s={limit:g} seconds"
            waiting = {reference: s for reference, s in waiting.items() if s not in quiet}
        return silent

    def replace(self, shards: list[int]) -> None:
        """Start new actors in the place of lost ones and give them their rows."""
        self.generation += 1
        for s in shards:
            ray.kill(self.actors[s])
            self.actors[s] = start_shard(s, self.params, self.place.group)
            self.started[s] = False
            self.replacements.append(self.actors[s])
        self.load(shards)

    def close(self) -> None:
        """End the actors that this pool has started itself."""
        for actor in self.replacements:
            ray.kill(actor)


def start_shard(index: int, params: RayParams, group: Any) -> Any:
    """A shard actor that loads its code while its rows are still on the way."""
    # Ray's own restarts would answer with an empty state.
    options = {"num_cpus": params.cpus_per_shard, "max_restarts": 0, "max_task_retries": 0}
    if group is not None:
        bundle = index if group[1] else -1
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group[0], placement_group_bundle_index=bundle)
    # Pings have a thread of their own, so that they are answered during a round.
    return ray.remote(concurrency_groups={"watch": 1})(Shard).options(**options).remote(max(1, int(params.cpus_per_shard)), True)


@dataclass
class Place:
    """Where shards live. blocks, problem : references to one Arrow block per shard and to the problem. group : (placement group, ours)."""

    actors: list
    blocks: list
    bounds: list
    problem: Any
    group: tuple | None


@contextmanager
def shard_actors(rows: dict, problem: Problem, params: RayParams) -> Iterator[Place]:
    """Shard actors with a place of their own. They end with the block."""
    bounds = split_bounds(problem.n_rows, choose_shards(problem.n_rows, params))
    check_resources(len(bounds), params)
    _wait_for_cpus(len(bounds) * params.cpus_per_shard)
    group = _ask_for_place(len(bounds), params)
    actors: list = []
    try:
        # Processes start while the rows are packed.
        actors += [start_shard(index, params, group) for index in range(len(bounds))]
        shared = ray.put(problem)
        blocks = [ray.put(to_table(take(rows, slice(first, last)), problem.views)) for first, last in bounds]
        if group is not None and group[1]:
            _wait_for_place(group[0], len(bounds), params)
        yield Place(actors, blocks, bounds, shared, group)
    finally:
        for actor in actors:
            ray.kill(actor)
        if group is not None and group[1]:
            remove_placement_group(group[0])


def coordinate(
    place: Place, params: RayParams, heads: list[Head] | Program, watched: bool, state: dict | None, failures: int
) -> Iterator[dict]:
    """The coordinator's rounds as a task. Yields {"rows": newest history}, {"state": of the run} now and then, {"outcome": ...} at last.

    The references in `place` are not resolved on the way: blocks travel to the shards and not through here. A task and not an actor:
    its process goes back to Ray's pool with all code loaded, and the next fit finds it there.
    """
    from .coordinator import Coordinator
    from .metrics import RunMetrics

    pool = RayPool(place, params)
    policy = FailurePolicy(params.max_shard_failures, Counter({-1: failures} if failures else {}))
    metrics = RunMetrics()
    try:
        rounds = Coordinator(pool, ray.get(place.problem), params.memory_per_shard, policy=policy)
        rounds.load()
        told = saved = time.monotonic()
        every = params.checkpoint_every_s if params.checkpoint_dir is not None else SNAPSHOT_SECONDS
        for rows in rounds.rounds(heads, state):
            now = time.monotonic()
            metrics.record(rows, policy.total)
            if not isinstance(heads, Program) and now - saved >= every:
                saved = now
                yield {"state": state_of(rounds)}
            if (watched and rounds.round == 1) or now - told >= REPORT_SECONDS:
                told = now
                yield {"rows": rows}
        yield {"outcome": rounds.outcome(heads), "history": rounds.history, "failures": policy.total}
    finally:
        metrics.close()
        pool.close()


def train_on_ray(
    rows: dict,
    problem: Problem,
    heads: list[Head] | Program,
    params: RayParams,
    report: Callable[[dict], None] | None,
    state: dict | None = None,
    keep: Callable[[dict], None] | None = None,
) -> dict:
    """Train all heads on shard actors; returns the last message of `coordinate`.

    state : of an earlier run to go on from. keep : called with the state of the run now and then.
    """
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    policy = FailurePolicy(params.max_shard_failures)
    while True:
        try:
            with shard_actors(rows, problem, params) as place:
                for message in _messages(place, params, heads, report, state, policy.total):
                    if "outcome" in message:
                        return message
                    if "state" in message:
                        state = message["state"]
                        policy.failures = Counter({-1: state["failures"]} if state["failures"] else {})
                        if keep is not None:
                            keep(state)
        except CoordinatorLost as error:
            # Its last state is here; another coordinator with new shards goes on from there.
            policy.note({-1: str(error)})


class CoordinatorLost(Exception):
    """The coordinator's process or node is gone, or it has been silent for too long."""


def _messages(place: Place, params: RayParams, heads: Any, report: Callable | None, state: dict | None, failures: int) -> Iterator[dict]:
    """Messages of a coordinator task; errors come back as they were raised. The task ends with this generator."""
    # It needs no CPU of its own: shards wait while it works, and it waits while they do.
    task = ray.remote(coordinate).options(num_cpus=0, num_returns="streaming", max_retries=0, name="Coordinator.run")
    running = task.remote(place, params, heads, report is not None, state, failures)
    finished = False
    try:
        while True:
            ready, _ = ray.wait([running], timeout=SILENCE * params.timeout_s)
            if not ready:
                raise CoordinatorLost(f"the coordinator was silent for {SILENCE * params.timeout_s:g} seconds")
            try:
                message = ray.get(next(running))
            except StopIteration:
                raise CoordinatorLost("the coordinator ended without a result") from None
            finished = "outcome" in message
            if "rows" in message and report is not None:
                for row in message["rows"]:
                    report(row)
            yield message
            if finished:
                return
    except LOSSES as error:
        raise CoordinatorLost(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    finally:
        if not finished:
            ray.cancel(running, force=True)


def choose_shards(n_rows: int, params: RayParams) -> int:
    """Shards to use: as asked, else one per share of the cluster's CPUs that has enough rows to do."""
    if params.num_shards is not None:
        return params.num_shards
    cpus = ray.cluster_resources().get("CPU", 1.0)
    return max(1, min(int(cpus / params.cpus_per_shard), n_rows // ROWS_PER_SHARD))


def check_resources(num_shards: int, params: RayParams) -> None:
    """Raise ValueError when the cluster could never hold the shards, however long one waits."""
    wanted, there = num_shards * params.cpus_per_shard, ray.cluster_resources().get("CPU", 0.0)
    if wanted > there + 1e-9:
        raise ValueError(
            f"{num_shards} shards of {params.cpus_per_shard:g} CPU need {wanted:g} CPUs, the Ray cluster has {there:g}; "
            "ask for fewer shards or fewer CPUs per shard"
        )


def _wait_for_cpus(wanted: float) -> None:
    """Give the actors of a fit that just ended a moment to leave: a placement group that does not fit at once is tried again late."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while ray.available_resources().get("CPU", 0.0) < wanted and time.monotonic() < deadline:
        time.sleep(0.01)


def _ask_for_place(num_shards: int, params: RayParams) -> tuple | None:
    """A placement group for the shards and whether it is ours; inside somebody's group, shards live there and none is made."""
    current = ray.util.get_current_placement_group()
    if current is not None:
        return current, False
    return placement_group([{"CPU": params.cpus_per_shard}] * num_shards, strategy=params.placement), True


def _wait_for_place(group: Any, num_shards: int, params: RayParams) -> None:
    """Raise ShardFailure when the shards find no place in time."""
    if not group.wait(timeout_seconds=params.timeout_s):
        free = ray.available_resources().get("CPU", 0.0)
        raise ShardFailure(
            f"{num_shards} shards of {params.cpus_per_shard:g} CPU found no place within timeout_s={params.timeout_s:g} seconds: "
            f"{free:g} CPUs are free now"
        )
