"""The Ray pool: the same shards as actors, driven by a coordinator that is an actor itself.

    driver       puts one Arrow block per shard into the object store, starts all actors at once, waits
    coordinator  runs the rounds
    shards       read their block without a copy

Nothing of a run outlives it: the driver kills its actors and removes the placement group whatever happens, and if the driver itself
is killed, Ray ends the actors that it owned.
"""

from __future__ import annotations

from collections.abc import Callable
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
POLL_SECONDS = 1.0


class ShardFailure(RuntimeError):
    """A shard died or did not answer in time."""


class RayPool:
    """Shard actors over contiguous ranges of rows; calls go to all of them and answers come back in their order."""

    def __init__(self, actors: list, bounds: list[tuple[int, int]], params: RayParams):
        self.actors, self.bounds, self.params = actors, bounds, params

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


def start_shards(blocks: list, bounds: list[tuple[int, int]], problem: Any, params: RayParams, group: Any) -> list:
    """One actor per block. `problem` is a reference, so that it travels once per node."""
    threads = max(1, int(params.cpus_per_shard))
    actors = []
    for index, (block, (first, _)) in enumerate(zip(blocks, bounds, strict=True)):
        options = {"num_cpus": params.cpus_per_shard, "max_restarts": 0, "max_task_retries": 0}
        if group is not None:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
        actors.append(ray.remote(Shard).options(**options).remote(block, first, problem, threads, True))
    return actors


class Coordinator:
    """The actor around `coordinator.Coordinator`; its rounds can be watched while it runs."""

    def __init__(self) -> None:
        # While the shards still wait for their place.
        from ..kernels.compiled import warm_up
        from . import coordinator

        warm_up()
        self.kind = coordinator.Coordinator
        self.rounds = None

    def run(
        self, actors: list, bounds: list, problem: Problem, params: RayParams, heads: list[Head]
    ) -> tuple[list[HeadResult], list[dict]]:
        self.rounds = self.kind(RayPool(actors, bounds, params), problem, params.memory_per_shard)
        return self.rounds.run(heads), self.rounds.history

    def rows_since(self, count: int) -> list[dict]:
        """History rows after the first `count`."""
        return [] if self.rounds is None else self.rounds.history[count:]


def train_on_ray(
    rows: dict, problem: Problem, heads: list[Head], params: RayParams, report: Callable[[dict], None] | None
) -> tuple[list[HeadResult], list[dict]]:
    """Train all heads on shard actors; returns results and history."""
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False)
    bounds = split_bounds(problem.n_rows, choose_shards(problem.n_rows, params))
    check_resources(len(bounds), params)
    # The coordinator needs no CPU of its own: shards wait while it works, and it waits while they do.
    coordinator = ray.remote(Coordinator).options(num_cpus=0, max_concurrency=2, max_restarts=0).remote()
    actors, group, own_group = [coordinator], None, False
    try:
        group, own_group = _place(len(bounds), params)
        blocks = [ray.put(to_table(take(rows, slice(first, last)), problem.views)) for first, last in bounds]
        shared = ray.put(problem)
        shards = start_shards(blocks, bounds, shared, params, group)
        actors += shards
        return _watch(coordinator, coordinator.run.remote(shards, bounds, shared, params, heads), report)
    finally:
        for actor in actors:
            ray.kill(actor)
        if own_group:
            remove_placement_group(group)


def _watch(coordinator: Any, running: Any, report: Callable[[dict], None] | None) -> tuple[list[HeadResult], list[dict]]:
    """Wait for the run, passing on its history as it grows; errors come back as they were raised."""
    seen = 0
    while True:
        done, _ = ray.wait([running], timeout=POLL_SECONDS if report else None)
        if done:
            break
        new = ray.get(coordinator.rows_since.remote(seen))
        seen += len(new)
        for row in new[-1:]:
            report(row)
    try:
        return ray.get(running)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


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


def _place(num_shards: int, params: RayParams) -> tuple[Any, bool]:
    """A placement group for the shards and whether it is ours; inside somebody's group, shards live there and none is made."""
    if ray.util.get_current_placement_group() is not None:
        return None, False
    group = placement_group([{"CPU": params.cpus_per_shard}] * num_shards, strategy="SPREAD")
    if not group.wait(timeout_seconds=params.timeout_s):
        remove_placement_group(group)
        free = ray.available_resources().get("CPU", 0.0)
        raise ShardFailure(
            f"{num_shards} shards of {params.cpus_per_shard:g} CPU found no place within timeout_s={params.timeout_s:g} seconds: "
            f"{free:g} CPUs are free now"
        )
    return group, True
