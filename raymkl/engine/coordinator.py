"""The coordinator: runs rounds over a pool of shards for any number of heads, until every head is certified.

    set up     statistics are prepared, bases built, normalisation constants learned, heads added
    round      one call to every shard: (rows entering, changes of every head, new weights) -> (violators, gradients,
               quadratic terms, losses); then certificate, working set, sub-problem and weight step of every head
    finish     dual variables, weights, intercept and certificate of every head

It knows pools only by `call_all` and `call_some`, so it runs the same in this process and inside an actor.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.families import NO_GATE
from ..kernels.normalize import scales
from ..kernels.statistics import Matrices
from ..optim.certificate import Certificate
from .caches import ColumnCache, RowStore
from .head_solver import HeadSolver, HeadSummary, Step, WorkingBlock
from .messages import Head, HeadRequest, Problem, RoundRequest
from .parallel import RowThreads
from .plan import MemoryPlan, plan
from .rows import concatenate, take

# Centre the rows of a view when their mean is this many times larger than their spread (both squared).
WORTH_CENTRING = 4.0
# Columns per call when sums over all pairs are wanted, and how many columns are enough for a mean over very many rows.
SUM_COLUMNS = 1024
MOST_SUM_COLUMNS = 8192
# Error of a kernel value, relative to the mean of its diagonal.
ROUND_OFF = {"float32": 1e-6, "float64": 1e-14}


@dataclass
class HeadResult:
    """What a head learned. a : (n,) signed dual variables. theta : (E,) weights. scale : (E,) normalisation factors."""

    a: np.ndarray
    theta: np.ndarray
    intercept: float
    scale: np.ndarray
    certificate: Certificate
    rounds: int
    converged: bool


class Coordinator:
    """Trains heads over a pool. `report` is called with each row of the history as it is made."""

    def __init__(
        self,
        pool: Any,
        problem: Problem,
        budget: int | None = None,
        report: Callable[[dict], None] | None = None,
    ):
        self.pool, self.problem, self.budget, self.report = pool, problem, budget, report
        self.statistics = list(dict.fromkeys(family.statistic for family in problem.families))
        self.store = RowStore(problem.n_rows)
        self.history: list[dict] = []
        self.results: list[HeadResult] = []
        self.blocks: dict[int, tuple] = {}
        self.hessian = np.empty(0)
        # Shards rest while the coordinator works, so it may use as many threads as there are cores.
        self.threads = RowThreads(os.cpu_count() or 1)
        self.round = 0

    # -- setting up -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Centres, largest statistics and bases."""
        self.centers = {}
        moments = self.pool.call_all("moments")
        for view in moments[0]:
            n = sum(part[view][0] for part in moments)
            mean = np.sum([part[view][1] for part in moments], axis=0) / n
            spread = sum(part[view][2] for part in moments) / n - mean @ mean
            if mean @ mean > WORTH_CENTRING * max(spread, 0.0):
                self.centers[view] = mean
        largest = np.max(self.pool.call_all("prepare", self.centers), axis=0)
        self.depth = sum(self.problem.depths.values())
        bounds = [statistic.bound(float(size)) for statistic, size in zip(self.statistics, largest, strict=True)]
        self.bases = [
            family.basis(
                bounds[self.statistics.index(family.statistic)], self.problem.exact, self.problem.depths.get(family.statistic.view, 0)
            )
            for family in self.problem.families
        ]
        rank = sum(basis.rank for basis in self.bases)
        self.spread = np.zeros((self.problem.n_entries, rank))
        at = 0
        for family, basis in zip(self.problem.families, self.bases, strict=True):
            self.spread[family.members, at : at + basis.rank] = basis.coefficients
            at += basis.rank

    def _open(self, n_heads: int) -> MemoryPlan:
        item = sum(np.dtype(self.problem.dtype_of(statistic)).itemsize for statistic in self.statistics if statistic.cacheable)
        rows = self.rows_per_shard = max((b - a for a, b in self.pool.bounds), default=0)
        chosen = plan(rows, self.problem.n_rows, item, self.spread.shape[1], n_heads, self.depth, self.budget, len(self.pool.bounds))
        self.pool.call_all("open", self.bases, chosen.capacity)
        self.cache = ColumnCache(chosen.capacity)
        return chosen

    def _scales(self, heads: list[Head], masks: np.ndarray, diagonal: np.ndarray) -> list[np.ndarray]:
        """Normalisation factors (E,) of every head, from its unmasked rows. masks : (H, n). diagonal : (H, E) sums of k(i, i)."""
        kinds = {head.normalize for head in heads}
        ones = [np.ones(self.problem.n_entries) for _ in heads]
        if kinds <= {None, "spherical"}:
            return ones
        sums = self._matrix_sums(masks) @ self.spread.T if "multiplicative" in kinds else np.zeros_like(diagonal)
        return [
            scales(head.normalize, diagonal[h], sums[h], masks[h].sum()) if head.normalize in ("multiplicative", "trace") else ones[h]
            for h, head in enumerate(heads)
        ]

    def _matrix_sums(self, masks: np.ndarray) -> np.ndarray:
        """(H, R) sums over all pairs of rows of each mask; beyond 8,192 rows from evenly spaced columns."""
        n = self.problem.n_rows
        columns = np.unique(np.linspace(0, n - 1, min(n, MOST_SUM_COLUMNS)).astype(np.int64))
        weights = masks[:, columns]
        weights = weights * (masks.sum(axis=1) / np.maximum(weights.sum(axis=1), 1))[:, None]
        total = 0.0
        step = min(SUM_COLUMNS, self.cache.capacity)
        for start in range(0, len(columns), step):
            ids = columns[start : start + step]
            request, slots = self._entering(ids, None)
            total = total + np.sum(self.pool.call_all("matrix_sums", request, ids, slots, masks, weights[:, start : start + step]), axis=0)
        return total

    def _entering(self, ids: np.ndarray, in_use: np.ndarray | None) -> tuple[RoundRequest, np.ndarray]:
        """A request that brings the given columns into the caches, and their slots."""
        none = np.empty(0, np.int64)
        if not any(statistic.cacheable for statistic in self.statistics):
            return RoundRequest(self.round, none, none, {}), ids
        entering = self.cache.place(ids, in_use)
        missing = self.store.missing(entering)
        if len(missing):
            self.store.add(missing, self._fetch(missing))
        rows = self.store.rows(entering) if len(entering) else {}
        return RoundRequest(self.round, entering, self.cache.slots(entering), rows), self.cache.slots(ids)

    def _fetch(self, ids: np.ndarray) -> dict:
        """Features of any rows, from the shards that own them."""
        calls, order = [], []
        for s, (first, last) in enumerate(self.pool.bounds):
            mine = np.flatnonzero((ids >= first) & (ids < last))
            if len(mine):
                calls.append((s, "fetch", (ids[mine],)))
                order.append(mine)
        joined = concatenate(self.pool.call_some(calls))
        back = np.empty(len(ids), np.int64)
        back[np.concatenate(order)] = np.arange(len(ids))
        return take(joined, back)

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, heads: list[Head]) -> list[HeadResult]:
        """Train all heads; returns one result per head, in their order."""
        for rows in self.rounds(heads):
            if self.report is not None:
                for row in rows:
                    self.report(row)
        return self.results

    def rounds(self, heads: list[Head]) -> Iterator[list[dict]]:
        """Train all heads, yielding the new rows of the history after every round; `results` holds what was learned."""
        try:
            yield from self._rounds(heads)
        finally:
            self.threads.close()

    def _rounds(self, heads: list[Head]) -> Iterator[list[dict]]:
        self.started = time.perf_counter()
        self._prepare()
        self.plan = self._open(len(heads))
        masks = np.stack([(head.bounds > 0).astype(float) for head in heads])
        diagonal = np.sum(self.pool.call_all("diagonals", masks), axis=0)
        factors = self._scales(heads, masks, diagonal)
        # Entries of a kernel matrix are as wrong as the dtype of the statistics (and, in float32, the tables) make them.
        error = np.abs(diagonal) / np.maximum(masks.sum(axis=1), 1)[:, None]
        for family in self.problem.families:
            error[:, family.members] *= ROUND_OFF[np.dtype(self.problem.dtype_of(family.statistic)).name]
        self.pool.call_all("add_heads", heads)
        self.solvers = [
            HeadSolver(head, self.spread * factor[:, None], self.plan.working_set, self.plan.new, factor * error[h])
            for h, (head, factor) in enumerate(zip(heads, factors, strict=True))
        ]
        steps = self._starting_steps()
        while True:
            active = [h for h, solver in enumerate(self.solvers) if not solver.done]
            if not active:
                break
            summaries = self._round(active, steps)
            for h, summary in zip(active, summaries, strict=True):
                self.solvers[h].absorb(summary)
            yield self._record(active)
            steps = self._steps([h for h in active if not self.solvers[h].done])
        self.results = [self._result(solver, factor) for solver, factor in zip(self.solvers, factors, strict=True)]

    def _starting_steps(self) -> dict[int, Step]:
        """No change for a fresh head; the given dual variables, brought into the new box, for a warm one."""
        steps = {}
        for h, solver in enumerate(self.solvers):
            steps[h] = Step()
            if solver.head.start is not None:
                a = feasible(solver.head.start[0], solver.lower, solver.upper)
                ids = np.flatnonzero(a)
                solver.a = a
                steps[h] = Step(ids, a[ids], a[ids])
        return steps

    def _round(self, active: list[int], steps: dict[int, Step]) -> list[HeadSummary]:
        """One call to every shard (several when a warm start brings more columns than the cache holds)."""
        for h in active:
            # All columns of a round must be cached at once; a long warm start goes in portions.
            while len(steps[h].ids) > self.plan.working_set:
                portion, steps[h] = steps[h][: self.plan.working_set], steps[h][self.plan.working_set :]
                self._call([h], {h: portion})
        return self._call(active, steps)

    def _call(self, active: list[int], steps: dict[int, Step]) -> list[HeadSummary]:
        self.round += 1
        touched = np.unique(np.concatenate([steps[h].ids for h in active])).astype(np.int64)
        request, _ = self._entering(touched, np.any([solver.a != 0 for solver in self.solvers], axis=0))
        cached = any(statistic.cacheable for statistic in self.statistics)
        for h in active:
            solver, step = self.solvers[h], steps[h]
            slots = self.cache.slots(step.ids) if cached else step.ids
            request.heads.append(
                HeadRequest(
                    head=h,
                    columns=step.ids,
                    slots=slots,
                    delta=step.delta,
                    values=step.values,
                    combination=solver.combination,
                    intercepts=solver.intercepts,
                    watch=solver.working_set,
                    count=self._violators_wanted(solver),
                    spaced=solver.rounds == 0 and solver.head.start is None,
                )
            )
        called = time.perf_counter()
        replies = self.pool.call_all("advance", request)
        self.shard_seconds = time.perf_counter() - called
        for reply in replies:
            self.store.add(reply.new_ids, reply.new_rows)
        return [HeadSummary.of([reply.heads[k] for reply in replies], request.heads[k].count) for k in range(len(active))]

    def _violators_wanted(self, solver: HeadSolver) -> int:
        """Rows per side that shards report: enough for a whole working set at the start, for its new part later."""
        if self.plan.working_set >= self.problem.n_rows:
            return self.problem.n_rows
        return max((self.plan.working_set if solver.rounds == 0 else self.plan.new) // 2, 1)

    def _steps(self, active: list[int]) -> dict[int, Step]:
        steps = {}
        for h in active:
            ids = self.solvers[h].next_working_set()
            steps[h] = self.solvers[h].step(ids, self._block(h, ids)) if len(ids) else Step()
        return steps

    def _block(self, h: int, ids: np.ndarray) -> WorkingBlock:
        """Statistics among the rows of a working set, from the features the coordinator has seen."""
        blocks: dict[int, np.ndarray] = {}
        previous = self.blocks.get(h)
        rows = self.store.rows(ids) if any(s.cacheable for s in self.statistics) else {}
        for s, statistic in enumerate(self.statistics):
            if isinstance(statistic, Matrices):
                blocks[s] = self._stack_block(s, ids)
            else:
                blocks[s] = self._pair_block(
                    statistic, statistic.prepare(rows, self.problem.dtype_of(statistic), self.centers), ids, previous, s
                )
        self.blocks[h] = (ids, blocks)
        parts = []
        for family, basis in zip(self.problem.families, self.bases, strict=True):
            gate = None if family.gate == NO_GATE else self.problem.gates[ids, family.gate]
            parts.append((basis, blocks[self.statistics.index(family.statistic)], gate))
        # One piece of memory for all Hessians: fresh pages would cost more than filling them.
        if self.hessian.size < len(ids) ** 2:
            self.hessian = np.empty(len(ids) ** 2)
        return WorkingBlock(parts, self.threads, self.hessian[: len(ids) ** 2].reshape(len(ids), len(ids)))

    def _pair_block(self, statistic: Any, prepared: Any, ids: np.ndarray, previous: tuple | None, s: int) -> np.ndarray:
        """(q, q) statistics of a working set; pairs that were in the previous working set are copied from there."""
        from ..kernels.compiled import copy_pairs, mirror

        if previous is None:
            stat = statistic.pairs(prepared, prepared)
        else:
            _, here, there = np.intersect1d(ids, previous[0], assume_unique=True, return_indices=True)
            new = np.setdiff1d(np.arange(len(ids)), here, assume_unique=True)
            stat = np.empty((len(ids), len(ids)), previous[1][s].dtype)

            def compute(start: int, stop: int) -> None:
                statistic.fill(prepared.take(new[start:stop]), prepared, stat, new[start:stop])

            def copy(start: int, stop: int) -> None:
                copy_pairs(previous[1][s], there[start:stop], there, stat, here[start:stop], here)
                mirror(stat, here[start:stop], new)

            self.threads.split(len(new), compute, cost=float(len(new)) * len(ids) * 100)
            self.threads.split(len(here), copy, cost=float(len(here)) * len(ids))
        np.fill_diagonal(stat, statistic.diagonal(prepared))
        return stat

    def _stack_block(self, s: int, ids: np.ndarray) -> np.ndarray:
        """(q, q, M) entries of ready-made matrices: these rows live in the shards only and are asked for there."""
        calls = []
        for shard, (first, last) in enumerate(self.pool.bounds):
            mine = ids[(ids >= first) & (ids < last)]
            if len(mine):
                calls.append((shard, "stack_rows", (s, mine, ids)))
        # Ids are sorted and shards own contiguous ranges, so the parts come in order.
        return np.concatenate(self.pool.call_some(calls))

    # -- records ------------------------------------------------------------------------------------------------------

    def _record(self, active: list[int]) -> list[dict]:
        """One row of the history per head that took part in the round."""
        seconds = time.perf_counter() - self.started
        rows = [
            {
                "round": self.round,
                "seconds": seconds,
                "shard_seconds": self.shard_seconds,
                "head": h,
                "primal": solver.certificate.primal,
                "dual": solver.certificate.dual,
                "gap": solver.certificate.gap,
                "violation": solver.violation,
                "support_vectors": int(np.count_nonzero(solver.a)),
                "cached_columns": len(self.cache.slot),
                "cache_capacity": self.cache.capacity,
                "rows_per_shard": self.rows_per_shard,
                "expected_peak_bytes": self.plan.expected_peak,
            }
            for h, solver in ((h, self.solvers[h]) for h in active)
        ]
        self.history += rows
        return rows

    @staticmethod
    def _result(solver: HeadSolver, factor: np.ndarray) -> HeadResult:
        certificate, a, theta = solver.best
        if solver.certificate.gap <= solver.head.tol:  # polished beyond the tolerance: the last point is the better one
            certificate, a, theta = solver.certificate, solver.a, solver.theta
        return HeadResult(a, theta, certificate.intercept, factor, certificate, solver.rounds, certificate.gap <= solver.head.tol)


def feasible(a: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The point a brought into the box and onto sum(a) = 0 by shrinking the heavier side."""
    a = np.clip(a, lower, upper)
    positive, negative = a[a > 0].sum(), -a[a < 0].sum()
    if positive > negative:
        a = np.where(a > 0, a * (negative / positive), a)
    elif negative > positive:
        a = np.where(a < 0, a * (positive / negative), a)
    return a
