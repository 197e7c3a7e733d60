"""Threads that share a loop over rows.

Compiled loops and BLAS release the interpreter lock, so threads are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

# Below this many elementary steps (about half a millisecond) a second thread costs more than it saves.
WORTH_A_THREAD = 5_000_000


def side_by_side(executor: Executor, calls: Sequence[Callable[[], Any]]) -> list:
    """Results of all calls.

    The calling thread takes the first one itself: it is awake, and others take a while to be.
    """
    others = [executor.submit(call) for call in calls[1:]]
    try:
        results = [call() for call in calls[:1]]
    finally:
        wait(others)
    return results + [other.result() for other in others]


class RowThreads:
    """Runs `work(start, stop)` over ranges of rows, one range per thread."""

    def __init__(self, threads: int = 1):
        self.threads = threads
        self.executor = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def split(self, n: int, work: Callable[[int, int], None], cost: float = np.inf) -> None:
        """Share n rows; with less than `WORTH_A_THREAD` of cost (elementary steps) the calling thread does it
        all.
        """
        if self.executor is None or cost < WORTH_A_THREAD:
            work(0, n)
            return
        edges = np.linspace(0, n, self.threads + 1).astype(int).tolist()
        side_by_side(
            self.executor, [partial(work, start, stop) for start, stop in pairwise(edges) if stop > start]
        )

    def close(self) -> None:
        if self.executor is not None:
            self.executor.shutdown()
