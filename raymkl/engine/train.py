"""The one way into the engine: rows, a problem and heads go in, results and a history come out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .checkpoint import Checkpoints, identity_of
from .coordinator import Coordinator
from .failures import ShardFailure
from .messages import Head, Problem
from .params import RayParams
from .pools import LocalPool
from .program import Program
from .recovery import state_of

ENGINES = ("auto", "local", "ray")
# With engine="auto", a running Ray cluster is used from this many rows on (starting actors takes seconds), and Ray is
# started for a problem from this many rows on.
WORTH_ACTORS = 5_000
WORTH_A_CLUSTER = 200_000


@dataclass
class Trained:
    """Result of a training run.

    results : per head one result for each stage of its path (or what a program hands back). history : of the rounds. engine : which ran.
    failures : shards and coordinators that were lost and replaced. resumed_from : round of the checkpoint that the run began with.
    """

    results: Any
    history: list[dict]
    engine: str
    failures: int = 0
    resumed_from: int | None = None


def choose_engine(engine: str, n_rows: int) -> str:
    """Resolve "auto"."""
    if engine != "auto":
        return engine
    ray = sys.modules.get("ray")
    running = ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized()
    return "ray" if (running and n_rows >= WORTH_ACTORS) or n_rows >= WORTH_A_CLUSTER else "local"


def train(
    rows: dict,
    problem: Problem,
    heads: list[Head] | Program,
    engine: str = "auto",
    params: RayParams | None = None,
    report: Callable[[dict], None] | None = None,
    keep_checkpoint: bool = False,
) -> Trained:
    """Train all heads over the rows (dict view key -> array).

    keep_checkpoint : leave the last checkpoint of a finished run in its directory, for a search of several runs.
    """
    params = params or RayParams()
    engine = choose_engine(engine, problem.n_rows)
    checkpoints, state = None, None
    if params.checkpoint_dir is not None:
        if isinstance(heads, Program):
            raise ValueError("checkpoint_dir must be None for localized models: their runs are not checkpointed")
        checkpoints = Checkpoints(params.checkpoint_dir, identity_of(rows, problem, heads))
        state = checkpoints.read()
        if state is not None and report is not None:
            report({"message": f"resumed from round {state['round']} of {params.checkpoint_dir}"})
    try:
        if engine == "ray":
            from .ray_pool import train_on_ray

            end = train_on_ray(rows, problem, heads, params, report, state, None if checkpoints is None else checkpoints.write)
        else:
            end = _train_here(rows, problem, heads, params, report, state, checkpoints)
    except ShardFailure as error:
        if checkpoints is None or not checkpoints.names():
            raise
        raise ShardFailure(f"{error}; the last checkpoint is {checkpoints.names()[0]}") from None
    if checkpoints is not None and not keep_checkpoint:
        checkpoints.remove()
    resumed = None if state is None else int(state["round"])
    return Trained(end["outcome"], end["history"], engine, end["failures"], resumed)


def _train_here(rows, problem, heads, params, report, state, checkpoints) -> dict:
    """The local engine: shards in threads of this process."""
    pool = LocalPool(rows, problem, params.num_shards)
    try:
        coordinator = Coordinator(pool, problem, params.memory_per_shard)
        saved = time.monotonic()
        try:
            for new in coordinator.rounds(heads, state):
                for row in new if report is not None else ():
                    report(row)
                if checkpoints is not None and time.monotonic() - saved >= params.checkpoint_every_s:
                    saved = time.monotonic()
                    checkpoints.write(state_of(coordinator))
        except KeyboardInterrupt:
            if checkpoints is not None and coordinator.plan is not None:
                checkpoints.write(state_of(coordinator))
            raise
        return {"outcome": coordinator.outcome(heads), "history": coordinator.history, "failures": 0}
    finally:
        pool.close()
