"""One set of kernel blocks behind a tuned search, with the coordinator of the heads over it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from ..engine.faults.policy import FailurePolicy
from ..engine.opening import opened
from ..engine.params import RayParams
from ..engine.pools.local import LocalPool
from ..models.description.problem import wide_statistics
from .folds import Folds


class Room:
    """One set of kernel blocks with its coordinator."""

    def __init__(self, folds: Folds, trial_heads: list, threads: int, place: Any = None):
        """place : of the shard actors of a session, or None."""
        self.folds, self.groups, self.place = folds, 0, place
        with ExitStack() as stack:  # nothing is left when something fails here
            self._begin(stack, trial_heads, threads)
            self.stack = stack.pop_all()

    def _begin(self, stack: ExitStack, trial_heads: list, threads: int) -> None:
        folds, template = self.folds, self.folds.estimator
        problem, rows = folds.problem(trial_heads)
        params = template.ray_params
        budget = None if params is None else params.memory_per_shard
        if template.engine == "ray" or self.place is not None:
            pool: Any = self._pool_on_ray(stack, rows, problem, params or RayParams())
        else:
            pool = LocalPool(rows, problem, threads)
        self.problem = problem
        policy = (
            FailurePolicy(0)
            if params is None
            else FailurePolicy(params.max_shard_failures, params.max_preemptions)
        )
        self.coordinator = stack.enter_context(opened(pool, problem, budget, policy, threads))
        self.coordinator.begin(max(64, len(trial_heads)), max(len(trial_heads), 1))

    def _pool_on_ray(self, stack: ExitStack, rows: dict, problem: Any, params: RayParams) -> Any:
        """Shard actors: those of a session, or of this room alone."""
        import ray

        from ..engine.pools.ray_pool import RayPool
        from ..engine.pools.ray_shards import ShardActors, choose_shards, placed, shard_actors

        place = self.place
        if place is None:
            left = int((ray.cluster_resources().get("CPU", 1.0) - 0.5) / params.cpus_per_shard)
            count = params.shards_where(left)
            if count is None:  # something is left to the trials
                count = max(1, min(left, choose_shards(problem.n_rows, params)))
            place = stack.enter_context(shard_actors(count, params))
        shards = ShardActors(place)
        stack.callback(shards.close)
        return RayPool(shards, placed(rows, problem, len(place.actors)), params)

    def serves(self, heads: list) -> bool:
        """Whether the statistics are precise enough for heads of these bounds (a large C may ask for float64,
        see models.description.problem).
        """
        template, problem = self.folds.estimator, self.problem
        if template.dtype != "auto" or problem.dtype == np.float64 or template.normalize == "spherical":
            return True
        return wide_statistics(self.folds.rows, problem.families, heads) <= problem.wide

    def add(self, heads: list) -> list[int]:
        """Heads of one model, which share their weights or do not; they join the next round.

        Returns their numbers.
        """
        first = self.groups
        for head in heads:
            if head.group is not None:
                head.group += first
                self.groups = max(self.groups, 1 + head.group)
        return self.coordinator.add(heads)

    def forget(self, heads: list[int]) -> None:
        """Drop heads, trained or not, with all that is known about them."""
        self.coordinator.drop(heads)
        self.coordinator.peek.wanted.difference_update(heads)
        for h in heads:
            self.coordinator.journal.results.pop(h, None)
