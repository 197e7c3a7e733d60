"""Where shards find a place: what a Ray cluster has, whether a request can ever be met, and waiting for it.

Shards are whole: a node of 3 CPUs holds one shard of 2. A request that no waiting could meet is refused before any actor starts, with
what was asked for and what there is. Inside somebody's placement group (a Ray Tune trial, say) shards live there and no group is made.
"""

from __future__ import annotations

import time

import ray
from ray.util.placement_group import placement_group

from ..faults.policy import ShardFailure
from ..params import RayParams

# CPUs of an earlier fit are free again after about 50 ms.
LEAVING_SECONDS = 0.5
# How often a cluster that has lost a node is looked at while a run waits for another one.
LOOK_SECONDS = 0.5
# CPUs are counted in fractions.
ROUND_OFF = 1e-9


def rooms() -> list[float]:
    """CPUs of every place that a shard could live in: bundles of the current placement group, else nodes that are alive."""
    current = ray.util.get_current_placement_group()
    if current is not None:
        return [float(bundle.get("CPU", 0.0)) for bundle in current.bundle_specs]
    return [float(node["Resources"].get("CPU", 0.0)) for node in ray.nodes() if node["Alive"]]


def own_cpus() -> float:
    """CPUs that this very task or actor holds of the placement group it runs in."""
    if ray.util.get_current_placement_group() is None:
        return 0.0
    return float(ray.get_runtime_context().get_assigned_resources().get("CPU", 0.0))


def whole_shards(cpus: list[float], params: RayParams, taken: float = 0.0, inside: bool = False) -> int:
    """Shards of `cpus_per_shard` that the given nodes (or bundles) hold, `taken` CPUs being in use already.

    inside : somebody's placement group has its own placement, ours means nothing there.
    """
    per_room = [int((room + ROUND_OFF) / params.cpus_per_shard) for room in cpus]
    if params.placement == "STRICT_SPREAD" and not inside:
        return sum(count > 0 for count in per_room)
    if params.placement == "STRICT_PACK" and not inside:
        return max(per_room, default=0)
    return min(sum(per_room), int((sum(cpus) - taken + ROUND_OFF) / params.cpus_per_shard))


def most_shards(params: RayParams) -> int:
    """Shards that the cluster as it is now could hold, at least one."""
    return max(1, whole_shards(rooms(), params, own_cpus(), ray.util.get_current_placement_group() is not None))


def check_resources(num_shards: int, params: RayParams, patience: float = 0.0) -> None:
    """Raise ValueError when the shards could never find a place. patience : seconds to wait for nodes that may still join."""
    deadline = time.monotonic() + patience
    while True:
        trouble = trouble_with(num_shards, params, rooms(), own_cpus(), ray.util.get_current_placement_group() is not None)
        if trouble is None:
            break
        if time.monotonic() >= deadline:
            raise ValueError(trouble)
        time.sleep(LOOK_SECONDS)
    if params.memory_per_shard is not None:
        largest = max((node["Resources"].get("memory", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        if params.memory_per_shard > largest:
            raise ValueError(
                f"memory_per_shard={params.memory_per_shard} bytes is more than any node of the Ray cluster has: the largest one has "
                f"{int(largest)} bytes; ask for less memory per shard and use more shards"
            )


def trouble_with(num_shards: int, params: RayParams, cpus: list[float], taken: float = 0.0, inside: bool = False) -> str | None:
    """Why the shards can find no place in rooms of so many CPUs, or None. inside : the rooms are bundles of somebody's placement group."""
    each = params.cpus_per_shard
    where = "the placement group that this fit runs in" if inside else "the Ray cluster"
    kind = "bundle" if inside else "node"
    wanted, there = num_shards * each, sum(cpus) - taken
    asked = f"{num_shards} shard{'s' if num_shards > 1 else ''} of {each:g} CPU need {wanted:g} CPUs"
    if wanted > there + ROUND_OFF:
        used = f" ({sum(cpus):g}, of which this task holds {taken:g})" if taken else ""
        return f"{asked}, {where} has {there:g}{used}; ask for fewer shards or fewer CPUs per shard"
    if each > max(cpus, default=0.0) + ROUND_OFF:
        return f"{asked}, each on one {kind}, and the largest {kind} of {where} has {max(cpus, default=0.0):g}; use smaller shards"
    fit = whole_shards(cpus, params, taken, inside)
    if num_shards > fit:
        sizes = ", ".join(f"{room:g}" for room in sorted(cpus, reverse=True)[:8]) + (", ..." if len(cpus) > 8 else "")
        return (
            f"{asked}, and {where} has {kind}s of {sizes} CPUs, which hold {fit} whole shard{'s' if fit != 1 else ''}"
            f"{'' if inside else f' with placement={params.placement!r}'}; ask for fewer or smaller shards"
        )
    return None


def cpus_are_free(wanted: float) -> bool:
    """Whether so many CPUs are free at this moment; those of a placement group that we are in are not for others to take."""
    return ray.util.get_current_placement_group() is not None or ray.available_resources().get("CPU", 0.0) >= wanted


def wait_for_cpus(wanted: float) -> None:
    """Give the actors of a fit that just ended a moment to leave: a placement group that does not fit at once is tried again late."""
    deadline = time.monotonic() + LEAVING_SECONDS
    while not cpus_are_free(wanted) and time.monotonic() < deadline:
        time.sleep(0.005)


def spare_cpus(wanted: float) -> float:
    """What a coordinator asks for: a CPU, if one is free besides those that its shards want (they rest while it works), else none."""
    inside = ray.util.get_current_placement_group() is not None
    return 1.0 if not inside and ray.available_resources().get("CPU", 0.0) >= wanted + 1.0 else 0.0


def ask_for_place(num_shards: int, params: RayParams) -> tuple:
    """A placement group for the shards and whether it is ours; inside somebody's group, shards live there and none is made."""
    current = ray.util.get_current_placement_group()
    if current is not None:
        return current, False
    return placement_group([{"CPU": params.cpus_per_shard}] * num_shards, strategy=params.placement), True


def wait_for_place(group: tuple, actors: list, params: RayParams) -> None:
    """Raise ShardFailure when the shards find no place in time. group : (placement group, ours)."""
    limit, count = params.timeout_s, len(actors)
    if group[1]:
        placed = group[0].wait(timeout_seconds=limit)
        there = f"{ray.available_resources().get('CPU', 0.0):g} CPUs are free now"
    else:  # somebody's group is there, but others may fill it
        answers = [actor.ping.options(concurrency_group="watch").remote() for actor in actors]
        placed = len(ray.wait(answers, num_returns=count, timeout=limit)[0]) == count
        free = ray.available_resources().get(f"CPU_group_{group[0].id.hex()}", 0.0)
        there = f"{free:g} CPUs of the placement group that this fit runs in are free now"
    if not placed:
        raise ShardFailure(f"{count} shards of {params.cpus_per_shard:g} CPU found no place within timeout_s={limit:g} seconds: {there}")
