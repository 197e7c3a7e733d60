"""The Ray pool: the same shards as actors, driven by a coordinator that is a task of its own.

    driver       puts one Arrow block per shard into the object store, starts all actors at once, waits
    coordinator  runs the rounds
    shards       read their block without a copy

Nothing of a run outlives it: the driver kills its actors and removes the placement group whatever happens, and if the driver itself
is killed, Ray ends the actors that it owned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .messages import Head, Problem
from .params import RayParams
from .rows import split_bounds, take, to_table
from .shard import Shard

if TYPE_CHECKING:
    from .coordinator import HeadResult

# A shard with fewer rows than this is not worth an actor when the number of shards is left to us.
ROWS_PER_SHARD = 2_000
# A run that is watched reports this often.
REPORT_SECONDS = 1.0
# CPUs of an earlier fit are free again after about 50 ms.
LEAVING_SECONDS = 0.5


class ShardFailure(RuntimeError):
    """A shard died or did not answer in time."""


class RayPool:
    """Shard actors over contiguous ranges of rows; calls go to all of them and answers come back in their order."""

    def __init__(self, actors: list, blocks: list, bounds: list[tuple[int, int]], problem: Any, params: RayParams):
        """blocks, problem : references to one Arrow block per shard and to the problem."""
        self.actors, self.bounds, self.params = actors, bounds, params
        self.call_some([(s, "load", (blocks[s], first, problem)) for s, (first, _) in enumerate(bounds)])

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
        results = []
        for shard, reference in zip(shards, references, strict=True):
            try:
                results.append(ray.get(reference, timeout=self.params.timeout_s))
            except ray.exceptions.GetTimeoutError:
                raise ShardFailure(f"shard {shard} did not answer within timeout_s={self.params.timeout_s:g} seconds") from None
            except ray.exceptions.RayActorError as error:
                raise ShardFailure(f"shard {shard} was lost: {str(error).splitlines()[0]}") from None
        return results


def start_shards(num_shards: int, params: RayParams, group: Any) -> list:
    """Shard actors that load their code while their rows are still on the way."""
    threads = max(1, int(params.cpus_per_shard))
    actors = []
    for index in range(num_shards):
        options = {"num_cpus": params.cpus_per_shard, "max_restarts": 0, "max_task_retries": 0}
        if group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        actors.append(ray.remote(Shard).options(**options).remote(threads, True))
    return actors


def coordinate(
    actors: list, blocks: list, bounds: list, problem: list, params: RayParams, heads: list[Head], watched: bool
) -> Iterator[list[dict] | tuple[list[list[HeadResult]], list[dict]]]:
    """The coordinator's rounds as a task: yields the newest rows of the history now and then, and at last (results, history).

    blocks, problem : lists of references, so that the values travel to the shards and not through here. A task and not an actor: its process goes back to Ray's pool with all code loaded, and the next fit finds it there.
    """
    from .coordinator import Coordinator

    pool = RayPool(actors, blocks, bounds, problem[0], params)
    rounds = Coordinator(pool, ray.get(problem[0]), params.memory_per_shard)
    last = time.monotonic()
    for rows in rounds.rounds(heads):
        if watched and (rounds.round == 1 or time.monotonic() - last >= REPORT_SECONDS):
            last = time.monotonic()
            yield rows
    yield rounds.outcome(heads), rounds.history


@contextmanager
def shard_actors(rows: dict, problem: Problem, params: RayParams) -> Iterator[tuple[list, list, list, Any]]:
    """Shard actors with a place of their own: (actors, blocks, bounds, problem), the arguments of `RayPool`. They end with the block."""
    bounds = split_bounds(problem.n_rows, choose_shards(problem.n_rows, params))
    check_resources(len(bounds), params)
    _wait_for_cpus(len(bounds) * params.cpus_per_shard)
    group, own_group = _ask_for_place(len(bounds), params)
    actors: list = []
    try:
        # Processes start while the rows are packed.
        actors += start_shards(len(bounds), params, group)
        shared = ray.put(problem)
        blocks = [ray.put(to_table(take(rows, slice(first, last)), problem.views)) for first, last in bounds]
        if own_group:
            _wait_for_place(group, len(bounds), params)
        yield actors, blocks, bounds, shared
    finally:
        for actor in actors:
            ray.kill(actor)
        if own_group:
            remove_placement_group(group)


def train_on_ray(
    rows: dict, problem: Problem, heads: list[Head], params: RayParams, report: Callable[[dict], None] | None
) -> tuple[list[list[HeadResult]], list[dict]]:
    """Train all heads on shard actors; returns results and history."""
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    with shard_actors(rows, problem, params) as (actors, blocks, bounds, shared):
        # The coordinator needs no CPU of its own: shards wait while it works, and it waits while they do.
        task = ray.remote(coordinate).options(num_cpus=0, num_returns="streaming", max_retries=0, name="Coordinator.run")
        running = task.remote(actors, blocks, bounds, [shared], params, heads, report is not None)
        finished = False
        try:
            outcome = _watch(running, report)
            finished = True
            return outcome
        finally:
            if not finished:
                ray.cancel(running, force=True)


def _watch(running: Any, report: Callable[[dict], None] | None) -> tuple[list[list[HeadResult]], list[dict]]:
    """Wait for the run, passing on its history as it grows; errors come back as they were raised."""
    try:
        for reference in running:
            outcome = ray.get(reference)
            if isinstance(outcome, tuple):
                return outcome
            for row in outcome:
                report(row)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    raise ShardFailure("the coordinator ended without a result")


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


def _ask_for_place(num_shards: int, params: RayParams) -> tuple[Any, bool]:
    """A placement group for the shards and whether it is ours; inside somebody's group, shards live there and none is made."""
    if ray.util.get_current_placement_group() is not None:
        return None, False
    return placement_group([{"CPU": params.cpus_per_shard}] * num_shards, strategy="SPREAD"), True


def _wait_for_place(group: Any, num_shards: int, params: RayParams) -> None:
    """Raise ShardFailure when the shards find no place in time."""
    if not group.wait(timeout_seconds=params.timeout_s):
        free = ray.available_resources().get("CPU", 0.0)
        raise ShardFailure(
            f"{num_shards} shards of {params.cpus_per_shard:g} CPU found no place within timeout_s={params.timeout_s:g} seconds: "
            f"{free:g} CPUs are free now"
        )
