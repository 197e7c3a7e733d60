"""The local pool: shards in this process, one thread each.

The Ray pool in `ray_pool` has the same methods.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ...data.rows import split_ranges, take
from ..problem import Problem
from ..resources import usable_cpus
from ..shard.blas_threads import one_blas_thread
from ..shard.shard import Shard
from ..shard.threads import side_by_side

# A shard with fewer rows than this is not worth a thread; one of light statistics has less to do.
ROWS_PER_THREAD = 1_000
LIGHT_ROWS_PER_THREAD = 2_000


class LocalPool:
    """Shards over contiguous ranges of rows; every call goes to all of them and answers come back in their
    order.
    """

    generation = 0  # threads of this process are never replaced
    members = ()

    def __init__(
        self, rows: dict, problem: Problem, num_shards: int | None = None, kept: dict[int, dict] | None = None
    ):
        """kept : caches over these rows that stand between runs, by shard (see `rounds.caches`)."""
        n = problem.n_rows
        if num_shards is None:
            # Every pair of rows of ready-made matrices takes M numbers.
            worth = LIGHT_ROWS_PER_THREAD if problem.light else ROWS_PER_THREAD
            num_shards = max(1, min(usable_cpus(), n * (1 + sum(problem.depths.values())) // worth, n))
        self.ranges = split_ranges(n, num_shards)
        self.shards = [
            Shard(standing=None if kept is None else kept.setdefault(s, {})) for s in range(len(self.ranges))
        ]
        for shard, (first, last) in zip(self.shards, self.ranges, strict=True):
            shard.load(take(rows, slice(first, last)), first, problem)
        self.executor = ThreadPoolExecutor(num_shards - 1) if num_shards > 1 else None
        # Several threads calling BLAS at once would otherwise start threads of their own, and threads of BLAS
        # wait for each other longer than they work on the blocks that are multiplied here.
        self.limits = one_blas_thread()

    def load(self, shards: list[int]) -> None:
        """Nothing to do: the rows are here."""

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""
        return self.call_some([(shard, method, arguments) for shard in range(len(self.shards))])

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments)."""
        wanted = [
            partial(getattr(self.shards[shard], method), *arguments) for shard, method, arguments in calls
        ]
        return [call() for call in wanted] if self.executor is None else side_by_side(self.executor, wanted)

    def replace(self, shards: list[int]) -> None:
        """Never asked for."""

    def close(self) -> None:
        """End the threads and give BLAS its threads back."""
        if self.executor is not None:
            self.executor.shutdown()
        self.limits.restore_original_limits()
