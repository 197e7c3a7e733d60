"""What a shard tells of the classes of a joint problem: losses and violations of rows over all classes (see
`optim.losses.joint`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...optim.losses import joint_losses, joint_violations
from ..problem import HeadReply, HeadRequest

if TYPE_CHECKING:
    from .head_rows import HeadRows
    from .shard import Shard

NO_ROWS, NO_VALUES = np.empty(0, np.int64), np.empty(0)


def joint_groups(parts: list[HeadRequest], heads: dict[int, HeadRows]) -> dict[int, list[HeadRequest]]:
    """Requests of classes by the joint problem that they belong to."""
    groups: dict[int, list[HeadRequest]] = {}
    for part in parts:
        head = heads[part.head].head
        if head.loss.is_joint:
            groups.setdefault(head.group, []).append(part)
    return groups


def joint_reply(shard: Shard, parts: list[HeadRequest]) -> dict[int, HeadReply]:
    """Answers for the classes of one joint problem, by head. The first one has the losses and the violators
    of all.

    Violators come in turns as rows that grow and rows that shrink, with half their violation on each side of
    zero: what both sides differ by is a violation, and the middle is no intercept.
    """
    states = [shard.heads[part.head] for part in parts]
    group = states[0].head.group
    sums = [shard.sums(state, part.combination) for state, part in zip(states, parts, strict=True)]
    terms, count = states[0].terms, 2 * parts[0].count
    chosen, losses, violation = NO_ROWS, 0.0, NO_VALUES
    if len(parts) == sum(
        state.head.group == group for state in shard.heads.values()
    ):  # else it is a portion of a start
        F, A = np.stack([f for f, _ in sums], axis=1), np.stack([state.a for state in states], axis=1)
        losses = float(terms.bounds @ joint_losses(F, terms.targets))
        violation = joint_violations(F, A, terms.targets, terms.bounds)
        chosen = (
            _spaced(violation, -(-count * shard.own.n // shard.problem.n_rows))
            if parts[0].spaced
            else _worst(violation, count)
        )
    local = shard.own.distinct(chosen, shard.own.numbers(parts[0].watch))
    replies = {}
    for k, (part, state) in enumerate(zip(parts, states, strict=True)):
        grow, shrink = (chosen[::2], chosen[1::2]) if k == 0 else (NO_ROWS, NO_ROWS)
        replies[part.head] = HeadReply(
            part.head,
            grow + shard.own.first,
            violation[grow] / 2,
            shrink + shard.own.first,
            -violation[shrink] / 2,
            local + shard.own.first,
            shard.gradients(state, local),
            sums[k][1],
            np.array([losses if k == 0 else 0.0]),
            None if state.offset is None else state.offset[local],
        )
    return replies


def _worst(violation: np.ndarray, count: int) -> np.ndarray:
    """Up to `count` rows with the largest violation, worst first; equal ones by number."""
    rows = np.flatnonzero(violation > 0)
    if len(rows) > 2 * count:
        rows = rows[violation[rows] >= np.partition(violation[rows], len(rows) - count)[len(rows) - count]]
    return rows[np.argsort(-violation[rows], kind="stable")][:count]


def _spaced(violation: np.ndarray, count: int) -> np.ndarray:
    """`count` violating rows that are spread over the data: at the start all are alike."""
    rows = np.flatnonzero(violation > 0)
    take = min(count, len(rows))
    return rows[np.arange(take) * len(rows) // max(take, 1)]
