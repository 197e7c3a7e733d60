"""How much memory a run may use, and what that means for caches and working sets."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

# Share of the free memory that caches may take when no budget is given.
DEFAULT_SHARE = 0.4
WORKING_SET = 1024
SMALLEST_WORKING_SET = 64
# Ready-made matrices: all M entries of every pair of a working set travel to the coordinator, this many bytes at most.
STACK_BLOCK_BYTES = 64 * 2**20


def free_memory() -> int:
    """Bytes of memory that are available now."""
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


@dataclass(frozen=True)
class MemoryPlan:
    """capacity : columns cached per shard. working_set, new : rows per sub-problem, and how many may be new.

    bytes_per_column : of the largest shard. expected_peak : bytes of one shard's caches and gradients.
    """

    capacity: int
    working_set: int
    new: int
    bytes_per_column: int
    expected_peak: int


def plan(
    shard_rows: int, n_rows: int, n_statistics: int, item: int, rank: int, n_heads: int, depth: int, budget: int | None, n_shards: int
) -> MemoryPlan:
    """Plan for shards of at most `shard_rows` rows.

    n_statistics : cached statistics, `item` bytes each. rank : basis functions. depth : matrices in a ready-made stack (0: none).
    budget : bytes per shard, or None for a share of the free memory. Raises ValueError when not even one round fits.
    """
    size = WORKING_SET
    if depth:
        size = min(size, int(np.sqrt(STACK_BLOCK_BYTES / (8 * depth))))
    size = max(min(size, n_rows), min(SMALLEST_WORKING_SET, n_rows), 2)
    new = max(size // 2, 2) if size < n_rows else size
    per_column = max(shard_rows * n_statistics * item, 1)
    gradients = shard_rows * rank * n_heads * 8
    if n_statistics == 0:
        return MemoryPlan(n_rows, size, new, 0, gradients)
    if budget is None:
        budget = int(DEFAULT_SHARE * free_memory() / n_shards)
        capacity = min(n_rows, max((budget - gradients) // per_column, size * n_heads))
    else:
        # A round needs room for its columns and, while they are computed, for the new ones once more.
        smallest = min(SMALLEST_WORKING_SET, n_rows)
        least = gradients + per_column * (smallest + smallest // 2) * n_heads
        if budget < least:
            raise ValueError(
                f"memory_per_shard={budget} bytes cannot hold one round: shards of {shard_rows} rows need at least {least} bytes; "
                "give more memory per shard or use more shards"
            )
        room = (budget - gradients) // per_column
        while (size + new) * n_heads > room and size > smallest:
            size = max(size // 2, smallest)
            new = max(size // 2, 2)
        capacity = min(n_rows, room - new * n_heads)
    capacity = int(max(capacity, min(size * n_heads, n_rows)))
    return MemoryPlan(capacity, int(size), int(new), per_column, gradients + per_column * (capacity + new))
