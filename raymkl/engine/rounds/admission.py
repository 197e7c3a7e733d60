"""How heads that have waited come to work: normalisation, the round-off of their kernels, a first point
(their own, or that of the head that they come after), a leader for those that share weights.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

import numpy as np

from ..heads.head import HeadSolver
from ..heads.joint import JointLeader
from ..heads.leader import Leader
from ..heads.result import HeadResult
from ..heads.roster import HeadAtWork
from ..heads.state import NARROW_PATIENCE, PATIENCE
from ..problem import Head
from .shared import Shared


def following(shared: Shared, head: Head, results: Mapping[int, list[HeadResult]]) -> Head:
    """A head with the point that it begins from, if it comes after another one whose first result is there.

    A working set of all rows finds the dual variables at once, and sooner from nothing than from a point that
    lost some of its rows: then the weights alone are taken over.
    """
    found = results.get(head.after) if head.after is not None and head.start is None else None
    if not found:
        return head
    whole = np.count_nonzero(head.bounds) <= shared.plan.working_set
    return replace(head, start=(np.zeros_like(found[0].a) if whole else found[0].a, found[0].theta))


def admit(
    shared: Shared, chosen: list[tuple[int, Head]], observed: Container[int] = ()
) -> dict[int, HeadAtWork]:
    """Add heads to the shards; returns them as they begin.

    observed : those whose f somebody looks at between the rounds.
    """
    chosen = [
        (h, replace(head, shrinks=_may_shrink(shared, head) and h not in observed)) for h, head in chosen
    ]
    heads = [head for _, head in chosen]
    masks = np.stack([(head.bounds > 0).astype(float) for head in heads])
    diagonal = np.sum(shared.crew.ask("diagonals", masks), axis=0)
    # An entry that is left out is one whose kernel is zero: it has no part in f and, by its rule, no weight.
    factors = [
        factor if head.entries is None else np.where(head.entries, factor, 0.0)
        for head, factor in zip(heads, shared.normalisations(heads, masks, diagonal), strict=True)
    ]
    diagonal = np.abs(diagonal) / np.maximum(masks.sum(axis=1), 1)[:, None]
    shared.crew.ask("add_heads", dict(chosen))
    admitted = {h: _begun(shared, head, factors[k], diagonal[k]) for k, (h, head) in enumerate(chosen)}
    groups: dict[int, list[HeadAtWork]] = {}
    for h, head in chosen:
        if head.group is not None:
            groups.setdefault(head.group, []).append(admitted[h])
    for members in groups.values():
        solvers = [member.solver for member in members]
        leader = JointLeader(solvers) if solvers[0].head.loss.is_joint else Leader(solvers)
        for member in members:
            member.leader = leader
        if isinstance(leader, JointLeader):
            for member, step in zip(members, leader.starting_steps(), strict=True):
                member.step = step
    return admitted


def _begun(shared: Shared, head: Head, factors: np.ndarray, diagonal: np.ndarray) -> HeadAtWork:
    """A head at its first point. factors : (E,) normalisation. diagonal : (E,) mean of k(i, i)."""
    plan = shared.plan
    # Held weights may stand still for long between two steps.
    steady = shared.problem.may_widen and head.solver == "chunking" and head.theta_step != "cutting_plane"
    patience = NARROW_PATIENCE if steady else PATIENCE
    coefficients, round_off = (
        shared.found.coefficients * factors[:, None],
        factors * shared.round_off(diagonal),
    )
    begun = HeadAtWork(
        HeadSolver(head, coefficients, plan.working_set, plan.new, round_off, patience), factors, diagonal
    )
    begun.step = begun.solver.starting_step()
    return begun


def _may_shrink(shared: Shared, head: Head) -> bool:
    """Whether a head can do with sums for the rows near the margin: light statistics only, more rows than one
    working set, nobody who looks at other rows between the rounds.
    """
    light = all(statistic in shared.problem.light for statistic in shared.problem.statistics)
    alone = head.group is None and not head.every_row
    return light and alone and not shared.accurate and shared.problem.n_rows > shared.plan.working_set
