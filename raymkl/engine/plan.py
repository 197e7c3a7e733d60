"""How much memory a run may use, and what that means for caches and working sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..kernels.pairs.statistics import PORTION_BYTES
from .problem import Problem
from .resources import free_memory

# Share of the free memory that caches may take when no budget is given. More of it seldom pays: columns that
# are wanted again stay.
DEFAULT_SHARE = 0.25
WORKING_SET = 1536
# Large problems: a round costs much more in the shards than in the coordinator, so that fewer, larger rounds
# pay.
LARGE_PROBLEM = 16_000
LARGE_WORKING_SET = 2048
# Light statistics: rounds cost little, so that a working set need not hold more than a part of the rows.
SMALLEST_LIGHT = 512
USUAL_LIGHT = 768
# Strings: most rows become support vectors and hold each other back, so that few large rounds take half the
# time of many small ones.
STRING_WORKING_SET = 3072
SMALLEST_WORKING_SET = 64
# Blocks of working sets of all heads together.
HEAD_BLOCK_BYTES = 512 * 2**20


@dataclass(frozen=True)
class MemoryPlan:
    """capacity : columns cached per shard. working_set, new : rows per sub-problem, and how many may be new.

    bytes_per_column : of the largest shard. expected_peak : bytes of one shard's caches and gradients. heads
    : how many at a time.
    together : how many must be. budget : bytes that the caches of one shard may take.
    """

    capacity: int
    working_set: int
    new: int
    bytes_per_column: int
    expected_peak: int
    heads: int = 1
    budget: int = 0
    together: int = 1


def plan(
    shard_rows: int,
    n_rows: int,
    item: int,
    rank: int,
    n_heads: int,
    budget: int | None,
    n_shards: int,
    together: int = 1,
    strings: bool = False,
    light: bool = False,
    free: int | None = None,
) -> MemoryPlan:
    """Plan for shards of at most `shard_rows` rows.

    item : bytes of the cached statistics of one pair (0: nothing is cached). rank : numbers kept per row and
    head, one for every basis function. budget : bytes per shard, or None for a share of the free memory.
    together : heads that must be trained at the same time; others may wait for room. strings : whether
    kernels of strings are among them. light : whether all statistics are light. free : bytes for each shard;
    None takes those of this process, shared by `n_shards`. Raises ValueError when not even one round fits.
    """
    size = STRING_WORKING_SET if strings else WORKING_SET if n_rows < LARGE_PROBLEM else LARGE_WORKING_SET
    if light and n_rows > WORKING_SET:
        size = min(size, max(min(n_rows // 6, USUAL_LIGHT), n_rows // 8, SMALLEST_LIGHT))
    smallest = max(min(SMALLEST_WORKING_SET, n_rows), 2)
    size = max(min(size, n_rows), smallest)
    per_column = shard_rows * item
    portion = min(2 * PORTION_BYTES, per_column * size)
    # A head needs its gradients and, in a round, the columns of its working set; new columns are computed in
    # portions next to them.
    per_head = shard_rows * rank * 8 + per_column * smallest
    if budget is None and free is None:
        free = free_memory() // n_shards
    total = int(DEFAULT_SHARE * free) if budget is None else budget
    if budget is not None and budget < portion + per_head * together:
        raise ValueError(
            f"memory_per_shard={budget} bytes cannot hold one round: shards of {shard_rows} rows need at "
            "least "
            f"{portion + per_head * together} bytes; give more memory per shard or use more shards"
        )
    # Half of the memory may go to heads; the more columns are cached, the less is computed twice.
    heads = int(min(n_heads, max(together, (total // 2 - portion) // max(per_head, 1))))
    gradients = shard_rows * rank * heads * 8
    if heads > 1:
        # The coordinator keeps a block of statistics per head.
        size = max(min(size, int(np.sqrt(HEAD_BLOCK_BYTES / (heads * max(item, 4))))), smallest)
    if per_column == 0:
        return MemoryPlan(n_rows, size, _new(size, n_rows), 0, gradients, heads, total, together)
    fixed = gradients + portion
    capacity = int(min(n_rows, max((total - fixed) // per_column, smallest * heads)))
    if capacity < n_rows:
        size = int(min(size, max(capacity // heads, smallest)))
    return MemoryPlan(
        capacity,
        size,
        _new(size, n_rows),
        per_column,
        int(fixed + per_column * capacity),
        heads,
        total,
        together,
    )


def plan_of(
    problem: Problem,
    bounds: list[tuple[int, int]],
    rank: int,
    n_heads: int,
    together: int,
    budget: int | None,
    free: Sequence[int] | None = None,
) -> MemoryPlan:
    """The plan of a problem whose rows are split at `bounds`; the rest is as in `plan`.

    free : bytes for every shard, that is what its node has left divided by the shards there (see
    `resources.memory_shares`). All shards cache the same columns, so that the smallest of them decides. None:
    all shards are in this process.
    """
    statistics = problem.statistics
    item = sum(problem.pair_bytes(statistic) for statistic in statistics if problem.is_cached(statistic))
    rows = max((last - first for first, last in bounds), default=0)
    strings = any(statistic.reads_strings for statistic in statistics)
    if problem.depths:
        rank *= (
            2  # what a step changes in ready-made matrices is kept beside the gradients until they follow it
        )
    light = all(statistic in problem.light for statistic in statistics)
    least = None if free is None else min(free)
    return plan(
        rows, problem.n_rows, item, rank, n_heads, budget, len(bounds), together, strings, light, least
    )


def _new(size: int, n_rows: int) -> int:
    """Rows of a working set that may be new: half of them keep company with those that were there before."""
    return size if size >= n_rows else max(size // 2, 2)
