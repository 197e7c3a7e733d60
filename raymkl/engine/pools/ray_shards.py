"""Shard actors: started all at once, with a place of their own, shared by the runs of a session, and gone
when it is over.

Who starts them kills them and removes the placement group whatever happens, and if that process itself is
killed, Ray ends the actors that it owned.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ...data.rows import split_ranges, take, to_block
from ..params import RayParams
from ..problem import Problem
from ..sizing import usual_shards
from .actors import ShardActor
from .demand import demand_of, matches
from .placement import ask_for_place, check_resources, most_shards, wait_for_cpus, wait_for_place

# Runs that a shard works on at once; more wait.
RUNS_AT_ONCE = 16
# How long a replacement waits for the place of the shard that was lost.
PLACE_SECONDS = 20.0


@cache
def _shard_class() -> Any:
    """The actor class, made once: Ray pickles it again for every new one."""
    # Pings have a thread of their own, so that they are answered during a round.
    return ray.remote(concurrency_groups={"watch": 1}, max_concurrency=RUNS_AT_ONCE)(ShardActor)


def start_shard(index: int, place: Place, crowded: bool = False) -> Any:
    """A shard actor. crowded : on any node that could hold it, were it free."""
    params, (group, ours) = place.params, place.group
    # Ray's own restarts would answer with an empty state.
    options: dict[str, Any] = {"max_restarts": 0, "max_task_retries": 0}
    if params.runtime_env:
        options["runtime_env"] = dict(params.runtime_env)
    if crowded:
        nodes = _possible_nodes(params)
        options["num_cpus"] = 0
        if nodes:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                nodes[index % len(nodes)], soft=True
            )
    else:
        options["num_cpus"], options["memory"] = place.demand["CPU"], place.demand.get("memory", 0)
        options["resources"] = dict(params.resources or {})
        options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=index if ours else -1
        )
    return _shard_class().options(**options).remote()


def _possible_nodes(params: RayParams) -> list[str]:
    """Nodes that have what a shard asks for, whoever uses it."""
    alive = [
        node
        for node in ray.nodes()
        if node["Alive"] and matches(node.get("Labels") or {}, params.label_selector)
    ]
    asked = demand_of(params)
    return [node["NodeID"] for node in alive if all(node["Resources"].get(name, 0.0) > 0 for name in asked)]


def ping(actor: Any) -> Any:
    """A reference to the answer of an actor that is alive, also while it works."""
    return actor.ping.options(concurrency_group="watch").remote()


@dataclass
class Place:
    """Where shards live. actors : in the order of the shards. group : (placement group, ours). params : what
    they were started with.

    demand : what each of them reserves, by resource. crowded : all of them live with others, the group has no
    place yet.
    """

    actors: list
    group: tuple
    params: RayParams
    demand: dict[str, float] = field(default_factory=dict)
    crowded: bool = False


@contextmanager
def shard_actors(count: int, params: RayParams, patience: float = 0.0) -> Iterator[Place]:
    """So many shard actors with a place of their own.

    They end with the block. patience : seconds to wait for nodes that may still join.
    """
    place = start_shards(count, params, patience)
    try:
        wait_for_place(place.group, place.actors, params)
        yield place
    finally:
        end_shards(place)


def start_shards(count: int, params: RayParams, patience: float = 0.0, row_bytes: int = 0) -> Place:
    """Have shard actors started; they are on their way when this returns.

    row_bytes : what the rows of a shard take, where it is known.
    """
    demand = check_resources(count, params, patience, row_bytes)
    wait_for_cpus(count * params.cpus_per_shard)
    place = Place([], ask_for_place(count, params, demand), params, demand)
    try:
        place.actors += [start_shard(index, place) for index in range(count)]
    except BaseException:
        end_shards(place)
        raise
    return place


def start_again(lost: Place, patience: float = 0.0, row_bytes: int = 0) -> Place:
    """Shard actors in the place of others of which nothing is left; without a place within a while they move
    in with others.

    Where no node could hold one of them, nodes are waited for: see `start_shards`.
    """
    count, params = len(lost.actors), lost.params
    if not lost.group[1]:
        return start_shards(count, params, patience, row_bytes)
    wait_for_cpus(count * params.cpus_per_shard)
    place = Place([], ask_for_place(count, params, lost.demand), params, lost.demand)
    try:
        place.crowded = not place.group[0].wait(timeout_seconds=PLACE_SECONDS)
        if place.crowded and not _possible_nodes(params):
            end_shards(place)
            return start_shards(count, params, patience, row_bytes)
        place.actors += [start_shard(index, place, place.crowded) for index in range(count)]
    except BaseException:
        end_shards(place)
        raise
    return place


def end_shards(place: Place) -> None:
    """Kill shard actors and give their place back."""
    for actor in place.actors:
        ray.kill(actor)
    if place.group[1]:
        remove_placement_group(place.group[0])


class ShardActors:
    """The shard actors of a session, as its coordinator sees them: one of them may be another one
    tomorrow.
    """

    def __init__(self, place: Place):
        self.actors, self.group, self.place = list(place.actors), place.group, place
        self.lock = threading.Lock()
        self.used = False  # by a run
        self.replacements: list = []
        self.crowded = (
            set(range(len(place.actors))) if place.crowded else set()
        )  # shards that live with others
        self.started: dict[
            str, str | None
        ] = {}  # actors that have answered, by their names, and their nodes as far as they are known

    def replaced(self, s: int, lost: Any, crowded: bool = False) -> Any:
        """Another actor in the place of one that was lost, started now unless another run has done so.

        crowded : see `start_shard`.
        """
        with self.lock:
            if self.actors[s] is lost:
                ray.kill(lost)
                self.actors[s] = start_shard(s, self.place, crowded)
                self.replacements.append(self.actors[s])
                (self.crowded.add if crowded else self.crowded.discard)(s)
            return self.actors[s]

    def close(self) -> None:
        """End the actors that were started here."""
        for actor in self.replacements:
            ray.kill(actor)


@dataclass(frozen=True)
class Placement:
    """Rows in the object store.

    blocks, problem : references to one Arrow block per shard and to the problem. rows : name of put rows.
    """

    blocks: list
    ranges: list[tuple[int, int]]
    problem: Any
    rows: str | None = None


def placed(rows: dict, problem: Problem, count: int) -> Placement:
    """Put rows into the object store, in so many blocks, or fewer where there are fewer rows."""
    ranges = split_ranges(problem.n_rows, max(1, min(count, problem.n_rows)))
    blocks = [ray.put(to_block(take(rows, slice(first, last)), problem.views)) for first, last in ranges]
    return Placement(blocks, ranges, ray.put(problem))


def choose_shards(n_rows: int, params: RayParams) -> int:
    """Shards to use: as asked, else one per share of the cluster's CPUs that has enough rows to do."""
    there = most_shards(params)
    return params.shards_where(there) or usual_shards(n_rows, there)
