"""The coordinator's threads: all of them work on the sub-problem of one head, or each on that of another
head.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..shard.blas_threads import one_blas_thread
from ..shard.threads import RowThreads


class SubproblemThreads:
    """Threads, and memory that stays with each of them.

    for_rows : share the rows of one piece of work. for_heads : take a head each, which then has one thread
    alone.
    """

    def __init__(self, threads: int):
        self.for_rows, self.one = RowThreads(threads), RowThreads(1)
        self.for_heads = ThreadPoolExecutor(threads)
        self.buffers: dict[int, np.ndarray] = {}
        self.blas_limits: Any = None

    def solve(self, heads: list[int], work: Callable[[int, RowThreads], None], in_turn: bool) -> None:
        """Do work(h, threads) for every head, side by side; one head, or heads that are to come `in_turn`,
        have all threads.
        """
        if len(heads) == 1 or in_turn:
            for h in heads:
                work(h, self.for_rows)
        else:
            list(self.for_heads.map(lambda h: work(h, self.one), heads))

    def buffer(self, q: int) -> np.ndarray:
        """(q, q) memory for a Hessian, one piece per thread: fresh pages would cost more than filling
        them.
        """
        worker = threading.get_ident()
        if self.buffers.get(worker, np.empty(0)).size < q * q:
            self.buffers[worker] = np.empty(q * q)
        return self.buffers[worker][: q * q].reshape(q, q)

    def one_blas_thread(self) -> None:
        """Let BLAS work with one thread until the end of the run."""
        if self.blas_limits is None:
            self.blas_limits = one_blas_thread()

    def close(self) -> None:
        """End the threads."""
        self.for_rows.close()
        self.for_heads.shutdown()
        if self.blas_limits is not None:
            self.blas_limits.restore_original_limits()
