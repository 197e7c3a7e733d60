"""The one way to open a run: shards that have their rows, and a coordinator over them; both are gone at the
end of the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .faults.policy import FailurePolicy
from .pools.protocol import Pool
from .problem import Problem
from .rounds.caches import CachesOfRows
from .rounds.coordinator import Coordinator


@contextmanager
def opened(
    pool: Pool,
    problem: Problem,
    budget: int | None = None,
    policy: FailurePolicy | None = None,
    threads: int | None = None,
    standing: CachesOfRows | None = None,
) -> Iterator[Coordinator]:
    """A coordinator whose shards have read their rows.

    budget, policy, threads, standing : see `Coordinator`.
    """
    try:
        coordinator = Coordinator(pool, problem, budget, threads, policy, standing)
        try:
            coordinator.crew.load()
            yield coordinator
        finally:
            coordinator.close()
    finally:
        pool.close()
