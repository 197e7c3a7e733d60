"""Shards as Ray actors: started all at once, with a place of their own, and gone when the run is over.

The driver kills its actors and removes the placement group whatever happens, and if the driver itself is killed, Ray ends the actors
that it owned.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ...data.rows import split_bounds, take, to_block
from ..params import RayParams
from ..problem import Problem
from ..sizing import usual_shards
from .actors import ShardActor
from .placement import ask_for_place, check_resources, cpus_are_free, most_shards, wait_for_cpus, wait_for_place


@cache
def _shard_class() -> Any:
    """The actor class, made once: Ray pickles it again for every new one."""
    return ray.remote(concurrency_groups={"watch": 1})(ShardActor)


def start_shard(index: int, params: RayParams, group: Any, crowded: bool = False) -> Any:
    """A shard actor that loads its code while its rows are still on the way. crowded : on any node with CPUs, free or not."""
    # Ray's own restarts would answer with an empty state.
    options = {"num_cpus": params.cpus_per_shard, "max_restarts": 0, "max_task_retries": 0}
    if group is not None:
        bundle = index if group[1] else -1
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(group[0], placement_group_bundle_index=bundle)
    if crowded:
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
        options["num_cpus"] = 0
        if nodes:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(nodes[index % len(nodes)], soft=True)
    # Pings have a thread of their own, so that they are answered during a round.
    return _shard_class().options(**options).remote()


@dataclass
class Place:
    """Where shards live. blocks, problem : references to one Arrow block per shard and to the problem. group : (placement group, ours)."""

    actors: list
    blocks: list
    bounds: list
    problem: Any
    group: tuple | None


@contextmanager
def shard_actors(rows: dict, problem: Problem, params: RayParams, patience: float = 0.0) -> Iterator[Place]:
    """Shard actors with a place of their own. They end with the block. patience : seconds to wait for nodes that may still join."""
    bounds = split_bounds(problem.n_rows, choose_shards(problem.n_rows, params))
    check_resources(len(bounds), params, patience)

    def stored() -> tuple[Any, list]:
        return ray.put(problem), [ray.put(to_block(take(rows, slice(first, last)), problem.views)) for first, last in bounds]

    # Rows are packed while processes start, or while those of an earlier fit leave.
    wanted = len(bounds) * params.cpus_per_shard
    packed = None if cpus_are_free(wanted) else stored()
    wait_for_cpus(wanted)
    group: tuple = (None, False)
    actors: list = []
    try:
        group = ask_for_place(len(bounds), params)
        actors += [start_shard(index, params, group) for index in range(len(bounds))]
        shared, blocks = packed or stored()
        wait_for_place(group, actors, params)
        yield Place(actors, blocks, bounds, shared, group)
    finally:
        for actor in actors:
            ray.kill(actor)
        if group[1]:
            remove_placement_group(group[0])


def choose_shards(n_rows: int, params: RayParams) -> int:
    """Shards to use: as asked, else one per share of the cluster's CPUs that has enough rows to do."""
    return params.num_shards or usual_shards(n_rows, most_shards(params))
