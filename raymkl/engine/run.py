"""The one way into the engine: rows, a problem and heads go in, results and a history come out."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .events import Outcome, Watch
from .faults.checkpoint import Checkpoints, identity_of
from .faults.policy import ShardFailure
from .faults.recovery import check_state, final_state, results_of, state_of
from .opening import opened
from .params import PLACE, RayParams
from .placed import PlacedRows
from .pools.local import LocalPool
from .problem import Head, Problem
from .programs.program import Program
from .resources import usable_cpus
from .session import Session, session_of
from .sizing import choose, row_bytes

# With engine="auto", a running Ray cluster is used from this many rows on (actors take 0.6 s to start), and
# Ray is started (which takes some seconds) for a problem from this many rows on.
WORTH_ACTORS = 5_000
WORTH_A_CLUSTER = 200_000


@dataclass
class Trained:
    """Result of a training run.

    results : per head one result for each stage of its path (or what a program hands back). history : of the
    rounds. engine : which ran.
    failures : shards and coordinators that were lost and replaced. resumed_from : round of the checkpoint
    that the run began with.
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
    engine: str | Session = "auto",
    params: RayParams | None = None,
    report: Callable[[dict], None] | None = None,
    keep_checkpoint: bool = False,
    on_round: Callable[[list[dict]], bool] | None = None,
) -> Trained:
    """Train all heads over the rows (dict view key -> array).

    engine : "auto", "local", "ray", or a session; rows that were put bring theirs along.
    report : called with new rows of the history and with messages; its `close`, if it has one, is called at
    the end.
    keep_checkpoint : leave what was learned in the checkpoint directory when the run is over, for a search of
    several runs.
    on_round : called once per round with its rows of the history; when it returns True the run ends, with the
    best points so far.
    """
    try:
        session = session_of(engine, rows)
        kind = choose_engine(engine, problem.n_rows) if session is None else session.kind
        return _train(
            rows,
            problem,
            heads,
            kind,
            session,
            _params(params, session),
            Watch(report, on_round),
            keep_checkpoint,
        )
    finally:
        if hasattr(report, "close"):
            report.close()


def _params(params: RayParams | None, session: Session | None) -> RayParams:
    """What a fit goes by: where shards live is the session's, the rest is the estimator's if it says
    something.
    """
    if session is None or params is None:
        return params or (RayParams() if session is None else session.params)
    place = session.params
    return replace(params, **{name: getattr(place, name) for name in PLACE})


def _train(rows, problem, heads, engine, session, params, watch, keep_checkpoint) -> Trained:
    checkpoints, state, keep = None, None, None
    named = params.checkpoint_dir is None and not (isinstance(heads, Program) and not heads.checkpointed)
    if named:  # a run with a name has its checkpoints there
        params = replace(params, checkpoint_dir=params.checkpoint_place)
    if params.checkpoint_dir is not None:
        if isinstance(heads, Program) and not heads.checkpointed:
            raise ValueError("checkpoint_dir must be None for this model: its runs are not checkpointed")
        checkpoints = Checkpoints(params.checkpoint_dir, identity_of(rows, problem, heads))
        keep = partial(_keep, checkpoints)
        state = checkpoints.read(lambda state: check_state(state, heads, problem.n_entries))
        if state is not None:
            watch.message(f"resumed from round {state['round']} of {params.checkpoint_dir}")
            results = None if isinstance(heads, Program) else results_of(state, len(heads))
            if results is not None:  # one of several runs of a search, or killed in its very last moment
                if not keep_checkpoint:
                    checkpoints.remove(folder_too=named)
                return Trained(results, state["history"], engine, 0, int(state["round"]))
    try:
        if engine == "ray":
            end = _train_on_ray(rows, problem, heads, session, params, watch, state, keep)
        else:
            end = _train_here(rows, problem, heads, params, watch, state, keep)
    except ShardFailure as error:
        if checkpoints is None or not checkpoints.names():
            raise
        raise ShardFailure(f"{error}; the last checkpoint is {checkpoints.names()[0]}") from None
    if checkpoints is not None and keep_checkpoint and not isinstance(heads, Program):
        keep(final_state(end.results, end.history))
    elif checkpoints is not None:
        checkpoints.remove(folder_too=named)
    resumed = None if state is None else int(state["round"])
    return Trained(end.results, end.history, engine, end.failures, resumed)


def _keep(checkpoints: Checkpoints, state: dict) -> None:
    """Write a checkpoint; a full disk is no reason to end a run."""
    try:
        checkpoints.write(state)
    except OSError as error:
        warnings.warn(
            f"no checkpoint could be written to {checkpoints.directory!r}: {error}", UserWarning, stacklevel=2
        )


def _keep_state(keep: Callable[[dict], None], coordinator: Any, heads: list[Head] | Program) -> None:
    state = state_of(coordinator, heads)
    if state is not None:
        keep(state)


def _train_on_ray(rows, problem, heads, session, params, watch, state, keep) -> Outcome:
    """Shard actors: those of a session, or of one that is there for this fit alone."""
    if session is not None:
        return session.actors().train(rows, problem, heads, params, watch, state, keep)
    # Loads Ray, which local fits go without.
    from .pools.placement import most_shards
    from .pools.ray_session import ensure_ray
    from .pools.ray_shards import choose_shards

    ensure_ray()
    if isinstance(heads, Program):
        count = choose_shards(problem.n_rows, params)
    else:
        count = choose(rows, problem, heads, params.num_shards, most_shards(params), params.memory_per_shard)
    # Where the number of shards may change, the fewest have the most rows.
    shards, fewest = (params.bounds, params.bounds[0]) if params.bounds else (count, count)
    with Session("ray", replace(params, num_shards=shards), row_bytes(rows, fewest)) as own:
        return own.actors().train(rows, problem, heads, own.params, watch, state, keep)


def _train_here(rows, problem, heads, params, watch, state, keep) -> Outcome:
    """The local engine: shards in threads of this process."""
    kept, standing = rows.home.session.local_caches(rows) if isinstance(rows, PlacedRows) else (None, None)
    pool = LocalPool(rows, problem, params.shards_where(usable_cpus()), kept)
    with opened(pool, problem, params.memory_per_shard, standing=standing) as coordinator:
        saved = time.monotonic()
        try:
            for new in coordinator.rounds(heads, state):
                if watch.take(new):
                    coordinator.wind_up()
                if keep is not None and time.monotonic() - saved >= params.checkpoint_every_s:
                    saved = time.monotonic()
                    _keep_state(keep, coordinator, heads)
        except KeyboardInterrupt:
            if keep is not None and (coordinator.solvers or isinstance(heads, Program)):
                _keep_state(keep, coordinator, heads)
            raise
        return Outcome(coordinator.outcome(heads), coordinator.journal.history)
