"""Statistics of strings among the rows of a working set.

Pairs that were in the previous working set are copied from its block, others are computed, and all of it by
threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.loops.match_counts import reuse_pairs
from ...kernels.pairs.match_counts import RunBlock
from ..shard.threads import RowThreads


def sequence_block(
    statistic: Any,
    prepared: Any,
    ids: np.ndarray,
    previous: tuple[np.ndarray, Any] | None,
    dtype: Any,
    threads: RowThreads,
) -> Any:
    """The block of the rows `ids` (q,), which are `prepared`.

    previous : ids and block of the last working set. dtype : of cells.
    """
    if previous is not None and np.array_equal(previous[0], ids):
        return previous[1]
    q = len(ids)
    block = statistic.empty_block(q, q, dtype)
    if isinstance(block, RunBlock):
        block = RunBlock.among(prepared, block.cells)
    here = there = np.empty(0, np.int64)
    if previous is not None:
        _, here, there = np.intersect1d(ids, previous[0], assume_unique=True, return_indices=True)
    new = np.setdiff1d(np.arange(q), here, assume_unique=True)

    def compute(start: int, stop: int) -> None:
        statistic.fill(prepared.take(new[start:stop]), prepared, block, new[start:stop])

    def copy(start: int, stop: int) -> None:
        reuse_pairs(_cells(previous[1]), there[start:stop], there, _cells(block), here[start:stop], here, new)

    threads.split(len(new), compute, cost=float(len(new)) * q * 100)
    if len(here):
        threads.split(len(here), copy, cost=float(len(here)) * q * 10)
    return block


def _cells(block: Any) -> np.ndarray:
    """(q, depth, q) numbers of a block."""
    cells = block.cells if isinstance(block, RunBlock) else block
    return cells[:, None, :] if cells.ndim == 2 else cells
