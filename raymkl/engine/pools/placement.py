"""Where shards find a place: what a Ray cluster has, whether a request can ever be met, and waiting for it.

A request that no waiting could meet is refused before any actor starts, with what was asked for and what
there is (see `demand`). Inside somebody's placement group (a Ray Tune trial, say) shards live there and no
group is made.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from math import ceil

import ray
from ray.util.placement_group import placement_group, placement_group_table

from ..faults.policy import ShardFailure
from ..params import RayParams
from .demand import Room, demand_of, matches, memory_to_reserve, trouble_with, whole_shards
from .growth import SAY_SECONDS, Growth, grow, growth_of_cluster, refusal

logger = logging.getLogger("raymkl")

# CPUs of an earlier fit are free again after about 50 ms.
LEAVING_SECONDS = 0.5
# How often a cluster that has lost a node is looked at while a run waits for another one.
LOOK_SECONDS = 0.5


def rooms(params: RayParams) -> list[Room]:
    """What every place that a shard could live in has: bundles of the current placement group, else nodes
    that are alive.
    """
    current = ray.util.get_current_placement_group()
    if current is not None:
        return [dict(bundle) for bundle in current.bundle_specs]
    return [
        node["Resources"]
        for node in ray.nodes()
        if node["Alive"] and matches(node.get("Labels") or {}, params.label_selector)
    ]


def dead_nodes() -> set[str]:
    """Nodes that Ray knows to be gone."""
    return {node["NodeID"] for node in ray.nodes() if not node["Alive"]}


def own_cpus() -> float:
    """CPUs that this very task or actor holds of the placement group it runs in."""
    if ray.util.get_current_placement_group() is None:
        return 0.0
    return float(ray.get_runtime_context().get_assigned_resources().get("CPU", 0.0))


def is_inside() -> bool:
    """Whether we are in somebody's placement group, where shards live then."""
    return ray.util.get_current_placement_group() is not None


def most_shards(params: RayParams) -> int:
    """Shards that the cluster as it is now could hold, at least one."""
    demand = demand_of(
        params, 0 if params.memory_per_shard is None or is_inside() else int(params.memory_per_shard)
    )
    return max(1, whole_shards(rooms(params), demand, params.placement, own_cpus(), is_inside()))


def places_for(group: tuple, params: RayParams) -> int:
    """Shards that would find a place now: those of ours that have one, and what is free beside them.

    group : (placement group, ours).
    """
    demand = demand_of(params, int(params.memory_per_shard or 0))
    free = ray._private.state.available_resources_per_node()  # the public function adds all nodes up
    homes = Counter(placement_group_table(group[0]).get("bundles_to_node_id", {}).values())
    found = []
    for node in ray.nodes():
        if node["Alive"] and matches(node.get("Labels") or {}, params.label_selector):
            name = node["NodeID"]
            found.append(
                {key: free.get(name, {}).get(key, 0.0) + homes[name] * each for key, each in demand.items()}
            )
    return whole_shards(found, demand, params.placement)


def check_resources(
    num_shards: int, params: RayParams, patience: float = 0.0, row_bytes: int = 0
) -> dict[str, float]:
    """What each shard asks for, once there are nodes for them. Raises ValueError when the shards could never
    find a place.

    A cluster that has an autoscaler is asked to grow, and waited for up to `timeout_s` (ShardFailure after
    that); for nodes that may join another one, `patience` seconds. row_bytes : what the rows of a shard take.
    """
    started = time.monotonic()
    while True:
        there, inside = rooms(params), is_inside()
        demand = demand_of(
            params,
            memory_to_reserve(
                num_shards, params, _with_free_memory(there, params, inside), row_bytes, inside
            ),
        )
        trouble = trouble_with(num_shards, demand, there, params.placement, own_cpus(), inside)
        if trouble is None:
            return demand
        growth, waited = (
            Growth() if inside else growth_of_cluster(params, num_shards),
            time.monotonic() - started,
        )
        if growth.able:
            # The memory of nodes to come is not known yet; what the user says is asked for.
            least = demand_of(params, int(params.memory_per_shard or 0))
            never = refusal(num_shards, least, growth, params.placement)
            if never is not None:
                raise ValueError(never)
            grow(num_shards, params, least, trouble, max(patience, params.timeout_s), started)
        elif waited >= patience:
            raise ValueError(trouble)
        time.sleep(LOOK_SECONDS)


def _with_free_memory(there: list[Room], params: RayParams, inside: bool) -> list[Room]:
    """Rooms with the memory that nobody has reserved yet: without a budget, a shard takes its share of that
    and waits for no more.
    """
    if inside or params.memory_per_shard is not None:
        return there
    free = ray._private.state.available_resources_per_node()  # the public function adds all nodes up
    nodes = [
        node
        for node in ray.nodes()
        if node["Alive"] and matches(node.get("Labels") or {}, params.label_selector)
    ]
    return [
        {**node["Resources"], "memory": free.get(node["NodeID"], {}).get("memory", 0.0)} for node in nodes
    ]


def cpus_are_free(wanted: float) -> bool:
    """Whether so many CPUs are free at this moment; those of a placement group that we are in are not for
    others to take.
    """
    return (
        ray.util.get_current_placement_group() is not None
        or ray.available_resources().get("CPU", 0.0) >= wanted
    )


def wait_for_cpus(wanted: float) -> None:
    """Give the actors of a fit that just ended a moment to leave: a placement group that does not fit at once
    is tried again late.
    """
    deadline = time.monotonic() + LEAVING_SECONDS
    while not cpus_are_free(wanted) and time.monotonic() < deadline:
        time.sleep(0.005)


def spare_cpus(wanted: float) -> float:
    """What a coordinator asks for: a CPU, if one is free besides those that its shards want (they rest while
    it works), else none.
    """
    inside = ray.util.get_current_placement_group() is not None
    return 1.0 if not inside and ray.available_resources().get("CPU", 0.0) >= wanted + 1.0 else 0.0


def ask_for_place(num_shards: int, params: RayParams, demand: dict[str, float]) -> tuple:
    """A placement group for the shards and whether it is ours; inside somebody's group, shards live there and
    none is made.
    """
    current = ray.util.get_current_placement_group()
    if current is not None:
        return current, False
    labels = None if not params.label_selector else [dict(params.label_selector)] * num_shards
    return placement_group(
        [dict(demand)] * num_shards, strategy=params.placement, bundle_label_selector=labels
    ), True


def wait_for_place(group: tuple, actors: list, params: RayParams) -> None:
    """Wait until the shards have a place, and say so.

    Raises ShardFailure when that is not in time. group : (placement group, ours).
    """
    limit, count, started = params.timeout_s, len(actors), time.monotonic()
    # Somebody's group is there, but others may fill it.
    answers = [] if group[1] else [actor.ping.options(concurrency_group="watch").remote() for actor in actors]

    def have_place(seconds: float) -> bool:
        if group[1]:
            return group[0].wait(timeout_seconds=max(1, ceil(seconds)))  # Ray cuts it to whole seconds
        return len(ray.wait(answers, num_returns=count, timeout=seconds)[0]) == count

    who = f"{count} shard{'s' if count > 1 else ''} of {params.cpus_per_shard:g} CPU"
    while not have_place(min(SAY_SECONDS, max(limit - (time.monotonic() - started), 0.0))):
        free, waited = ray.available_resources(), time.monotonic() - started
        there = (
            f"{free.get('CPU', 0.0):g} CPUs and {free.get('memory', 0.0):.0f} bytes of memory are free now"
        )
        if not group[1]:
            there = (
                f"{free.get(f'CPU_group_{group[0].id.hex()}', 0.0):g} CPUs of the placement group that "
                "this fit runs in are free now"
            )
        if waited >= limit:
            raise ShardFailure(f"{who} found no place within timeout_s={limit:g} seconds: {there}")
        logger.warning("%s wait for a place, for %.0f s: %s", who, waited, there)


def is_placed(group: tuple) -> bool:
    """Whether all bundles of a group have a node. group : (placement group, ours)."""
    return placement_group_table(group[0]).get("state") == "CREATED"
