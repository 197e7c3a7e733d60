"""How many shards a run has, and whether one round fits their memory: settled in the driver, before any actor
starts.
"""

from __future__ import annotations

import numpy as np

from ..data.lazy_rows import SourceView
from ..data.rows import split_ranges
from ..kernels.pairs.families import MAX_POWER
from .opening import opened
from .plan import plan_of
from .pools.local import LocalPool
from .problem import Head, Problem, together

# A shard with fewer rows than this is not worth an actor when the number of shards is left to us.
ROWS_PER_SHARD = 2_000


def usual_shards(n_rows: int, most: int) -> int:
    """One shard per place that has enough rows to do."""
    return max(1, min(most, n_rows // ROWS_PER_SHARD))


def choose(
    rows: dict,
    problem: Problem,
    heads: list[Head],
    asked: int | tuple[int, int] | None,
    most: int,
    budget: int | None,
) -> int:
    """Number of shards: as asked, else the usual number, or as many more (up to `most`) as a small memory
    budget needs.

    asked : may be a pair (least, most): as many of these as find a place, and the fewest must fit the budget,
    too.

    Raises the memory plan's ValueError when not even one round fits the budget.
    """
    if isinstance(asked, tuple):
        choose(rows, problem, heads, asked[0], most, budget)
        return max(asked[0], min(asked[1], most))
    count = asked or usual_shards(problem.n_rows, most)
    if budget is None:
        return count
    # At most so many functions; when they fit, nothing has to be computed.
    most_functions = sum(len(family.kernels) + MAX_POWER + 1 for family in problem.families)
    if _fits(problem, heads, count, budget, most_functions):
        return count
    if any(isinstance(array, SourceView) for array in rows.values()):
        return count  # the rows are elsewhere; the coordinator makes its plan once the shards have read them
    rank = _rank(rows, problem)
    if asked is None:
        count = next(
            (n for n in range(count, most + 1) if _fits(problem, heads, n, budget, rank)), max(most, count)
        )
    plan_of(problem, split_ranges(problem.n_rows, count), rank, len(heads), together(heads), budget)
    return count


def row_bytes(rows: dict, count: int) -> int:
    """Bytes that the rows of one of so many shards take; what is read elsewhere or are strings is not known
    here and counts nothing.
    """
    parts = [
        part
        for array in rows.values()
        for part in (array, *(getattr(array, name, None) for name in ("data", "indices", "indptr")))
    ]
    arrays = {id(part): part for part in parts if isinstance(part, np.ndarray)}
    return -(-sum(part.nbytes for part in arrays.values()) // count)


def _fits(problem: Problem, heads: list[Head], count: int, budget: int, rank: int) -> bool:
    try:
        plan_of(problem, split_ranges(problem.n_rows, count), rank, len(heads), together(heads), budget)
    except ValueError:
        return False
    return True


def _rank(rows: dict, problem: Problem) -> int:
    """Functions over which gradients are kept, the very number that the coordinator will find."""
    with opened(LocalPool(rows, problem, 1), problem, threads=1) as coordinator:
        coordinator.shared.prepare()
        return coordinator.shared.found.coefficients.shape[1]
