"""The Ray pool: the same shards as actors, driven by a coordinator that is a task of its own.

    driver       puts one Arrow block per shard into the object store, starts all actors at once, waits
    coordinator  runs the rounds
    shards       read their block without a copy

Nothing of a run outlives it: the driver kills its actors and removes the placement group whatever happens, and if the driver itself
is killed, Ray ends the actors that it owned.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any

import ray
from ray.util.placement_group import remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from .failures import FailurePolicy, ShardsLost
from .messages import Head, Problem, RoundReply, RoundRequest
from .params import RayParams
from .pieces import PIECE, REQUEST_PIECES, cut, join, pieces_for, size_of
from .placement import ask_for_place, check_resources, most_shards, wait_for_cpus, wait_for_place
from .program import Program
from .recovery import state_of
from .rows import split_bounds, take, to_block
from .shard_actor import ShardActor
from .sizing import choose, usual_shards

# A run that is watched reports this often.
REPORT_SECONDS = 1.0
# Without a checkpoint directory the driver still gets the state this often, in case that the coordinator is lost.
SNAPSHOT_SECONDS = 30.0
# How long a replacement waits for the place of the shard that was lost.
PLACE_SECONDS = 20.0
# A coordinator reports between rounds, unwatched every `timeout_s`; so many times that without a word mean that it is gone.
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
        self.reply_pieces = 1  # values in which shards return their next reply, see `pieces`

    def load(self, shards: list[int]) -> None:
        """Have shards read their rows."""
        threads = max(1, int(self.params.cpus_per_shard))
        self.call_some([(s, "load", (self.place.blocks[s], self.bounds[s][0], self.place.problem, threads)) for s in shards])

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""
        # What is large goes into the object store once, not once per shard.
        values = _in_pieces(*arguments) if method == "advance" else [_in_one(argument) for argument in arguments]
        return self._call([(shard, method, values) for shard in range(len(self.actors))])

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments)."""
        return self._call([(s, method, _in_pieces(*given) if method == "advance" else list(given)) for s, method, given in calls])

    def _call(self, calls: list[tuple[int, str, list]]) -> list:
        """Results of calls (shard, method, values to pass)."""
        groups = []
        for shard, method, values in calls:
            actor, count = self.actors[shard], self.reply_pieces
            if method == "advance":
                found = actor.advance_in_pieces.options(num_returns=count).remote(count, *values)
                groups.append(found if count > 1 else [found])
            else:
                groups.append([getattr(actor, method).remote(*values)])
        results = self._collect(groups, [shard for shard, _, _ in calls])
        if not any(method == "advance" for _, method, _ in calls):
            return [values[0] for values in results]
        replies = [_whole(values) for values in results]
        self.reply_pieces = pieces_for(max(size for _, size in replies))
        return [reply for reply, _ in replies]

    def _collect(self, groups: list[list], shards: list[int]) -> list[list]:
        """The values of every call, given the references to them. shards : whom the calls went to."""
        try:
            # The usual case: one call for all answers.
            found = iter(ray.get([reference for group in groups for reference in group], timeout=self.params.timeout_s))
            for shard in shards:
                self.started[shard] = True
            return [list(islice(found, len(group))) for group in groups]
        except ray.exceptions.GetTimeoutError:
            patience = 0.0
        except LOSSES:
            patience = self.params.timeout_s
        lost = self._silent([group[0] for group in groups], shards, patience)
        results = []
        for shard, group in zip(shards, groups, strict=True):
            if shard in lost:
                continue
            try:
                results.append(ray.get(group, timeout=self.params.timeout_s))
                self.started[shard] = True
            except ray.exceptions.GetTimeoutError:
                lost[shard] = f"its answer did not arrive within timeout_s={self.params.timeout_s:g} seconds"
            except LOSSES as error:
                lost[shard] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        if lost:
            raise ShardsLost(lost)
        return results

    def _silent(self, references: list, shards: list[int], patience: float) -> dict[int, str]:
        """Wait until every call is answered or its shard is known to be silent; returns the silent ones with a reason.

        patience : seconds until the first ping.
        """
        waiting, silent = dict(zip(references, shards, strict=True)), {}
        limit = self.params.timeout_s
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=patience, fetch_local=False)
            patience = limit
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
        self.actors[s], self.started[s] = actor, False
        self.replacements.append(actor)

    def forget(self) -> None:
        """Let go of all references to actors and blocks."""
        self.place, self.actors, self.replacements = None, [], []

    def close(self) -> None:
        """End the actors that this pool has started itself."""
        for actor in self.replacements:
            ray.kill(actor)


def _in_pieces(request: RoundRequest) -> list:
    """What to pass for the request of a round: its pieces, or a reference to it."""
    return cut(request, REQUEST_PIECES)[0] or [ray.put(request)]


def _in_one(argument: Any) -> Any:
    """What to pass for an argument of any other call: itself when it is small, else a reference to it."""
    buffers: list = []
    head = ray.cloudpickle.dumps(argument, protocol=5, buffer_callback=buffers.append)  # kernels may hold functions of a notebook
    return argument if size_of(head, buffers) <= PIECE else ray.put(argument)


def _whole(values: list) -> tuple[RoundReply, int]:
    """A reply out of the values that a shard returned for it, and its size."""
    if not isinstance(values[0], bytes):
        return values[0]
    pieces = [piece for piece in values if piece is not None]
    return join(pieces), sum(map(len, pieces))


@cache
def _shard_class() -> Any:
    """The actor class, made once: Ray pickles it again for every new one."""
    return ray.remote(concurrency_groups={"watch": 1})(ShardActor)


@cache
def _coordinate_task() -> Any:
    return ray.remote(coordinate)


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
    wait_for_cpus(len(bounds) * params.cpus_per_shard)
    group: tuple = (None, False)
    actors: list = []
    try:
        group = ask_for_place(len(bounds), params)
        # Processes start while the rows are packed.
        actors += [start_shard(index, params, group) for index in range(len(bounds))]
        shared = ray.put(problem)
        blocks = [ray.put(to_block(take(rows, slice(first, last)), problem.views)) for first, last in bounds]
        wait_for_place(group, actors, params)
        yield Place(actors, blocks, bounds, shared, group)
    finally:
        for actor in actors:
            ray.kill(actor)
        if group[1]:
            remove_placement_group(group[0])


def coordinate(
    place: Place, params: RayParams, heads: list[Head] | Program, watched: bool, state: dict | None, failures: dict[int, int]
) -> Iterator[dict]:
    """The coordinator's rounds as a task. Yields {"rows": newest history}, {"state": of the run} now and then, {"outcome": ...} at last.

    When shards were lost, {"news": what happened, "failures": so far by shard} comes in between. failures : of earlier coordinators.
    The references in `place` are not resolved on the way: blocks travel to the shards and not through here. A task and not an actor:
    its process goes back to Ray's pool with all code loaded, and the next fit finds it there.
    """
    from .coordinator import Coordinator
    from .metrics import RunMetrics

    gc.freeze()  # loaded code need not be looked through at the end
    pool = RayPool(place, params)
    policy = FailurePolicy(params.max_shard_failures, Counter(failures))
    metrics = RunMetrics()
    try:
        rounds = Coordinator(pool, ray.get(place.problem), params.memory_per_shard, policy=policy)
        rounds.load()
        told = saved = time.monotonic()
        every = params.checkpoint_every_s if params.checkpoint_dir is not None else SNAPSHOT_SECONDS
        word_every = REPORT_SECONDS if watched else max(REPORT_SECONDS, params.timeout_s)
        for rows in rounds.rounds(heads, state):
            now = time.monotonic()
            metrics.record(rows, policy.total)
            if policy.news:
                yield {"news": policy.take_news(), "failures": dict(policy.failures)}
            if not isinstance(heads, Program) and now - saved >= every:
                saved = now
                yield {"state": state_of(rounds)}
            if (watched and rounds.round == 1) or now - told >= word_every:
                told = now
                yield {"rows": rows}
        last = {"outcome": rounds.outcome(heads), "history": rounds.history, "failures": policy.total}
    finally:
        metrics.close()
        pool.close()
        # The process lives on in Ray's pool; what stands in reference cycles must not keep blocks in the object store until then.
        pool.forget()
        rounds = None
        gc.collect()
        gc.unfreeze()
    # The task ends with its last word: a fit that follows at once must find this process idle, or Ray starts another one.
    yield last


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
    policy, patience = FailurePolicy(params.max_shard_failures), 0.0
    if not isinstance(heads, Program):
        shards = choose(rows, problem, heads, params.num_shards, most_shards(params), params.memory_per_shard)
        params = replace(params, num_shards=shards)
    while True:
        try:
            with shard_actors(rows, problem, params, patience) as place:
                for message in _messages(place, params, heads, report, state, dict(policy.failures)):
                    if "outcome" in message:
                        return message
                    if "failures" in message:
                        policy.failures = Counter(message["failures"])
                    if "state" in message:
                        state = message["state"]
                        if keep is not None:
                            keep(state)
        except CoordinatorLost as error:
            # Its last state is here; another coordinator with new shards goes on from there, once they find a place.
            policy.note({-1: str(error)})
            patience = params.timeout_s
            for line in policy.take_news() if report is not None else ():
                report({"message": line})


class CoordinatorLost(Exception):
    """The coordinator's process or node is gone, or it has been silent for too long."""


def _messages(place: Place, params: RayParams, heads: Any, report: Callable | None, state: dict | None, failures: dict) -> Iterator[dict]:
    """Messages of a coordinator task; errors come back as they were raised. The task ends with this generator."""
    # It needs no CPU of its own: shards wait while it works, and it waits while they do.
    task = _coordinate_task().options(num_cpus=0, num_returns="streaming", max_retries=0, name="Coordinator.run")
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
                finished = True
                raise CoordinatorLost("the coordinator ended without a result") from None
            finished = "outcome" in message
            if report is not None:
                for row in [*({"message": line} for line in message.get("news", ())), *message.get("rows", ())]:
                    report(row)
            yield message
            if finished:
                return
    except LOSSES as error:
        finished = True
        raise CoordinatorLost(f"{type(error).__name__}: {str(error).strip().splitlines()[0]}") from None
    except ray.exceptions.RayTaskError as error:
        finished = True
        raise error.cause from None
    finally:
        # Only a task that is still at work: cancelling one that has ended has brought this very process down now and then.
        if not finished:
            ray.cancel(running, force=True)


def choose_shards(n_rows: int, params: RayParams) -> int:
    """Shards to use: as asked, else one per share of the cluster's CPUs that has enough rows to do."""
    return params.num_shards or usual_shards(n_rows, most_shards(params))
