"""Choosing the rows whose dual variables move next.

`residual_i = linear_i - f_i` is the gradient of the dual objective. Rows whose variable may grow and rows
whose variable may shrink are optimal together when the largest residual of the first does not exceed the
smallest of the second. Where the dual has a kink, a row has two residuals, one for growing and one for
shrinking (see `losses.slopes`).
"""

from __future__ import annotations

import numpy as np


def violators(
    residual: np.ndarray | tuple[np.ndarray, np.ndarray],
    a: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Up to `count` rows of each side, worst first; ties go to the lower row number. All arguments (n,).

    residual : one for both sides, or a pair (of growing, of shrinking).
    """
    growing, shrinking = residual if isinstance(residual, tuple) else (residual, residual)
    grow = np.flatnonzero(a < upper)
    shrink = np.flatnonzero(a > lower)
    return grow[_smallest(-growing[grow], count)], shrink[_smallest(shrinking[shrink], count)]


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Positions of the `count` smallest values in order, equal values by position."""
    if len(values) > 2 * count:
        cut = np.partition(values, count - 1)[count - 1]
        near = np.flatnonzero(values <= cut)
    else:
        near = np.arange(len(values))
    return near[np.argsort(values[near], kind="stable")][:count]


def evenly_spaced(
    a: np.ndarray, lower: np.ndarray, upper: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both sides for a start at which all rows of a side are alike: spread over the data instead of
    its first rows.
    """
    sides = []
    for rows in (np.flatnonzero(a < upper), np.flatnonzero(a > lower)):
        take = min(count, len(rows))
        sides.append(rows[np.arange(take) * (len(rows) - 1) // max(take - 1, 1)])  # apart by 1 at least
    return sides[0], sides[1]


def merge(ids: list[np.ndarray], keys: list[np.ndarray], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` ids with the smallest keys over several shards, and these keys; equal keys by id."""
    all_ids, all_keys = np.concatenate(ids), np.concatenate(keys)
    order = np.lexsort((all_ids, all_keys))[:count]
    return all_ids[order], all_keys[order]


def choose(
    grow: np.ndarray,
    grow_residual: np.ndarray,
    shrink: np.ndarray,
    shrink_residual: np.ndarray,
    kept: np.ndarray,
    size: int,
    new: int,
) -> np.ndarray:
    """Working set: violating rows of both sides in turn (at most `new`), then rows `kept` from the last one,
    at most `size`.

    grow, shrink : ids, worst first, with their residuals. A row counts as violating while some partner on the
    other side makes a pair with it that can improve the objective.
    """
    grow, shrink = (
        grow[grow_residual > shrink_residual.min(initial=np.inf)],
        shrink[shrink_residual < grow_residual.max(initial=-np.inf)],
    )
    turns = np.empty(2 * max(len(grow), len(shrink)), dtype=np.int64)
    turns.fill(-1)
    turns[: 2 * len(grow) : 2] = grow
    turns[1 : 2 * len(shrink) + 1 : 2] = shrink
    entering = _first_unique(turns[turns >= 0])[:new]
    return np.sort(_first_unique(np.concatenate([entering, kept]))[:size])


def _first_unique(ids: np.ndarray) -> np.ndarray:
    _, first = np.unique(ids, return_index=True)
    return ids[np.sort(first)]
