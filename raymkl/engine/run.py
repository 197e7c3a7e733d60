"""The one way into the engine: rows, a problem and heads go in, results and a history come out."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from .faults.checkpoint import Checkpoints, identity_of
from .faults.policy import ShardFailure
from .faults.recovery import check_state, final_state, results_of, state_of
from .params import RayParams
from .pools.local import LocalPool
from .problem import Head, Problem
from .programs.program import Program
from .rounds.coordinator import Coordinator

ENGINES = ("auto", "local", "ray")
# With engine="auto", a running Ray cluster is used from this many rows on (actors take 0.6 s to start), and Ray is started (which takes
# some seconds) for a problem from this many rows on.
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

    report : called with new rows of the history and with messages; its `close`, if it has one, is called at the end.
    keep_checkpoint : leave what was learned in the checkpoint directory when the run is over, for a search of several runs.
    """
    try:
        return _train(rows, problem, heads, choose_engine(engine, problem.n_rows), params or RayParams(), report, keep_checkpoint)
    finally:
        if hasattr(report, "close"):
            report.close()


def _train(rows, problem, heads, engine, params, report, keep_checkpoint) -> Trained:
    checkpoints, state, keep = None, None, None
    if params.checkpoint_dir is not None:
        if isinstance(heads, Program):
            raise ValueError("checkpoint_dir must be None for this model: only runs over a fixed list of heads are checkpointed")
        checkpoints = Checkpoints(params.checkpoint_dir, identity_of(rows, problem, heads))
        keep = partial(_keep, checkpoints)
        state = checkpoints.read(lambda state: check_state(state, heads, problem.n_entries))
        if state is not None:
            if report is not None:
                report({"message": f"resumed from round {state['round']} of {params.checkpoint_dir}"})
            results = results_of(state, len(heads))
            if results is not None:  # one of several runs of a search, or killed in its very last moment
                if not keep_checkpoint:
                    checkpoints.remove()
                return Trained(results, state["history"], engine, 0, int(state["round"]))
    try:
        if engine == "ray":
            from .pools.ray_run import train_on_ray

            end = train_on_ray(rows, problem, heads, params, report, state, keep)
        else:
            end = _train_here(rows, problem, heads, params, report, state, keep)
    except ShardFailure as error:
        if checkpoints is None or not checkpoints.names():
            raise
        raise ShardFailure(f"{error}; the last checkpoint is {checkpoints.names()[0]}") from None
    if checkpoints is not None and keep_checkpoint:
        keep(final_state(end["outcome"], end["history"]))
    elif checkpoints is not None:
        checkpoints.remove()
    resumed = None if state is None else int(state["round"])
    return Trained(end["outcome"], end["history"], engine, end["failures"], resumed)


def _keep(checkpoints: Checkpoints, state: dict) -> None:
    """Write a checkpoint; a full disk is no reason to end a run."""
    try:
        checkpoints.write(state)
    except OSError as error:
        warnings.warn(f"no checkpoint could be written to {checkpoints.directory!r}: {error}", UserWarning, stacklevel=2)


def _train_here(rows, problem, heads, params, report, state, keep) -> dict:
    """The local engine: shards in threads of this process."""
    pool = LocalPool(rows, problem, params.num_shards)
    try:
        coordinator = Coordinator(pool, problem, params.memory_per_shard)
        saved = time.monotonic()
        try:
            for new in coordinator.rounds(heads, state):
                for row in new if report is not None else ():
                    report(row)
                if keep is not None and time.monotonic() - saved >= params.checkpoint_every_s:
                    saved = time.monotonic()
                    keep(state_of(coordinator))
        except KeyboardInterrupt:
            if keep is not None and coordinator.solvers:
                keep(state_of(coordinator))
            raise
        return {"outcome": coordinator.outcome(heads), "history": coordinator.history, "failures": 0}
    finally:
        pool.close()
