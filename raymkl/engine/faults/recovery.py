"""Bringing the place of a lost shard up to date, and taking and restoring the state of a run.

The state of a shard is derived: rows are loaded again, columns computed again, gradients rebuilt from the
dual variables that the coordinator holds. The state of a run is what the coordinator knows of its heads:
`(a, theta, stage)` of those at work, and the results of those that are done.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...optim.certificate import Certificate
from ..heads.result import HeadResult
from ..problem import Head, RoundRequest
from ..programs.program import Program
from ..rounds.proving import proof_request
from ..rounds.shared import State
from ..shard.proof import prove

if TYPE_CHECKING:
    from ..rounds.coordinator import Coordinator
    from ..rounds.journal import Journal

# Columns that are computed again at a time.
COLUMNS_AT_ONCE = 512
NO_IDS = np.empty(0, np.int64)


def bring_up_to_date(coordinator: Coordinator, shard: int) -> set[int]:
    """Give a new shard, which has its rows, the state that the other shards have, or will have once told of
    pending changes.

    Returns the heads whose pending changes it then knows.
    """
    shared, crew = coordinator.shared, coordinator.crew

    def ask(method: str, *arguments: Any) -> Any:
        return crew.pool.call_some([(shard, method, arguments)])[0]

    if shared.state is State.LOADED:
        for work, arguments in crew.kept.values():  # of programs that need no more than the rows
            ask("apply", work, *arguments)
        return set()
    if "dtype" in shared.changed:
        ask("set_problem", shared.problem)
    ask("prepare", shared.found.centers)
    if shared.state is State.PREPARED:
        return set()
    ask("take_bases", shared.found.bases, shared.plan.capacity)
    if "gates" in shared.changed:
        ask("set_gates", shared.problem.gates)
    for work, arguments in crew.kept.values():
        ask("apply", work, *arguments)
    at_work = coordinator.roster.at_work
    solvers = coordinator.solvers
    ask("add_heads", {h: solver.head for h, solver in solvers.items()})
    ask("resume", {h: (solver.bounds_factor, solver.told) for h, solver in solvers.items()})
    ask("hold_heads", [h for h, solver in solvers.items() if solver.held])
    # Gradients first: the columns they need are gone again before the caches fill, so that the new shard
    # keeps its memory plan.
    at_once = min(COLUMNS_AT_ONCE, shared.plan.capacity)
    if solvers:
        used = np.flatnonzero(np.any([solver.told != 0 for solver in solvers.values()], axis=0))
        for start in range(0, len(used), at_once):
            ids = used[start : start + at_once]
            values = {h: solver.told[ids] for h, solver in solvers.items() if np.any(solver.told[ids])}
            ask("rebuild", ids, shared.rows_of(ids) if shared.compared else {}, values)
        corrected = {h: head for h, head in at_work.items() if head.solver.corrected}
        if corrected and not shared.accurate:  # what a proof had shown is gone with the lost shard
            ask("apply", prove, proof_request(shared, corrected))
            for head in corrected.values():
                head.solver.correction.stale = True
    cached = shared.cache.columns if shared.cached else NO_IDS
    for start in range(0, len(cached), at_once):
        ids = cached[start : start + at_once]
        ask("enter", RoundRequest(0, ids, shared.cache.slots(ids), shared.rows_of(ids)))
    return {h for h, head in at_work.items() if len(head.step.ids) or head.solver.stretch != 1.0}


def state_of(coordinator: Coordinator, heads: list[Head] | Program | None = None) -> dict | None:
    """The state of a run between two rounds, as nested dicts of arrays and numbers; None where there is
    nothing to go on from.
    """
    if isinstance(heads, Program):
        return heads.state() if heads.checkpointed else None
    journal = coordinator.journal
    return {
        "round": journal.round,
        "seconds": journal.seconds,
        "history": journal.history,
        "results": {
            str(h): [_pack_result(stage) for stage in stages]
            for h, stages in journal.results.items()
            if stages
        },
        "finished": sorted(journal.finished),
        "heads": {
            str(h): {"a": solver.a, "theta": solver.theta, "stage": solver.stage, "rounds": solver.rounds}
            for h, solver in coordinator.solvers.items()
        },
    }


def final_state(results: list[list[HeadResult]], history: list[dict]) -> dict:
    """The state of a run that is over."""
    return {
        "round": history[-1]["round"] if history else 0,
        "seconds": history[-1]["seconds"] if history else 0.0,
        "history": history,
        "results": {str(h): [_pack_result(stage) for stage in stages] for h, stages in enumerate(results)},
        "finished": list(range(len(results))),
        "heads": {},
    }


def results_of(state: dict, n_heads: int) -> list[list[HeadResult]] | None:
    """The results of a run that is over, or None when it is not."""
    if len(state["finished"]) < n_heads:
        return None
    return [[_unpack_result(stage) for stage in state["results"][str(h)]] for h in range(n_heads)]


def check_state(state: dict, heads: list[Head] | Program, n_entries: int) -> None:
    """Raise ValueError for something that cannot be the state of a run of these heads."""
    if isinstance(heads, Program):
        heads.check_state(state)
        return
    n, numbers = len(heads[0].targets), {str(h) for h in range(len(heads))}
    stages = [stage for stages in state["results"].values() for stage in stages]
    dual = [(part["a"], part["theta"]) for part in [*state["heads"].values(), *stages]]
    fine = (
        isinstance(state["round"], int)
        and isinstance(state["seconds"], float | int)
        and all(isinstance(row, dict) for row in state["history"])
        and {*state["heads"], *state["results"], *map(str, state["finished"])} <= numbers
        and all(0 <= part["stage"] < len(heads[int(h)].path) for h, part in state["heads"].items())
        and all(len(state["results"][str(h)]) == len(heads[h].path) for h in state["finished"])
        and all(a.shape == (n,) and theta.shape == (n_entries,) for a, theta in dual)
        and all(np.isfinite(a).all() and np.isfinite(theta).all() for a, theta in dual)
    )
    if not fine:
        raise ValueError("it is not the state of a run of these problems")
    for stage in stages:
        _unpack_result(stage)


def restore(journal: Journal, heads: list[Head], state: dict) -> None:
    """Let a journal, and the heads that are not finished, go on where a state left them."""
    journal.round, journal.seconds_before = state["round"], state["seconds"]
    journal.history, journal.finished = list(state["history"]), set(state["finished"])
    journal.results = {
        int(h): [_unpack_result(stage) for stage in stages] for h, stages in state["results"].items()
    }
    for h, found in state["heads"].items():
        head = heads[int(h)]
        head.start, head.stage, head.after = (
            (np.array(found["a"]), np.array(found["theta"])),
            int(found["stage"]),
            None,
        )
        # A run may have been interrupted between keeping the result of a stage and beginning the next one.
        journal.results[int(h)] = journal.results.get(int(h), [])[: head.stage]


def _pack_result(result: HeadResult) -> dict:
    return {
        **{k: v for k, v in vars(result).items() if k != "certificate"},
        "certificate": asdict(result.certificate),
    }


def _unpack_result(stored: dict) -> HeadResult:
    return HeadResult(**{**stored, "certificate": Certificate(**stored["certificate"])})
