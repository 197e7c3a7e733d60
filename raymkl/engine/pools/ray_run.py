"""A run on Ray: the same rounds over shard actors, driven by a coordinator that is a task of its own.

    driver       puts one Arrow block per shard into the object store, starts all actors at once, waits
    coordinator  runs the rounds
    shards       read their block without a copy

Nothing of a run outlives it, see `ray_shards`.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import ray

from ..faults.policy import FailurePolicy
from ..faults.recovery import state_of
from ..params import RayParams
from ..problem import Head, Problem
from ..programs.program import Program
from ..sizing import choose
from .placement import most_shards
from .ray_pool import LOSSES, RayPool, reason_of
from .ray_shards import Place, shard_actors

# A run that is watched reports this often.
REPORT_SECONDS = 1.0
# Without a checkpoint directory the driver still gets the state this often, in case that the coordinator is lost.
SNAPSHOT_SECONDS = 30.0
# A coordinator reports between rounds, unwatched every `timeout_s`; so many times that without a word mean that it is gone.
SILENCE = 10.0


@cache
def _coordinate_task() -> Any:
    return ray.remote(coordinate)


def coordinate(
    place: Place, params: RayParams, heads: list[Head] | Program, watched: bool, state: dict | None, failures: dict[int, int]
) -> Iterator[dict]:
    """The coordinator's rounds as a task. Yields {"rows": newest history}, {"state": of the run} now and then, {"outcome": ...} at last.

    When shards were lost, {"news": what happened, "failures": so far by shard} comes in between. failures : of earlier coordinators.
    The references in `place` are not resolved on the way: blocks travel to the shards and not through here. A task and not an actor:
    its process goes back to Ray's pool with all code loaded, and the next fit finds it there.
    """
    from ..rounds.coordinator import Coordinator
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
        raise CoordinatorLost(reason_of(error)) from None
    except ray.exceptions.RayTaskError as error:
        finished = True
        raise error.cause from None
    finally:
        # Only a task that is still at work: cancelling one that has ended has brought this very process down now and then.
        if not finished:
            ray.cancel(running, force=True)
