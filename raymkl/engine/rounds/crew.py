"""What all heads share of a pool of shards: statistics, bases, caches, normalisation, and how shards are asked and replaced.

Every call goes through `_ask`, which replaces shards that were lost and brings the new ones up to date (see `recovery`), so that the
rest of the engine need not know that shards can be lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np

from ...data.rows import concatenate, take
from ...kernels.normalize import scales
from ...kernels.pairs.basis import Basis
from ...kernels.pairs.families import Family
from ..faults.policy import FailurePolicy, ShardsLost
from ..faults.recovery import bring_up_to_date, without_changes
from ..plan import MemoryPlan, plan_of
from ..pools.protocol import Pool
from ..problem import Head, Problem, RoundRequest
from ..programs.program import forget
from ..resources import memory_shares
from ..shard.proof import is_accurate, mask_sums
from .caches import ColumnCache, RowStore
from .head import HeadSolver
from .head_summary import Step
from .standing import CachesOfRows, Standing, new_serial

# Centre the rows of a view when their mean is this many times larger than their spread (both squared).
WORTH_CENTRING = 4.0
# Columns per call when sums over all pairs are wanted, and how many columns are enough for a mean over very many rows.
SUM_COLUMNS = 1024
MOST_SUM_COLUMNS = 8192


class OpenPool:
    """A pool of shards with its problem."""

    def __init__(
        self, pool: Pool, problem: Problem, budget: int | None, policy: FailurePolicy | None, standing: CachesOfRows | None = None
    ):
        """budget : bytes per shard, or None. policy : what to do when shards are lost (None: none may be).

        standing : caches over these rows that outlive a run, or None.
        """
        self.pool, self.problem, self.budget = pool, problem, budget
        self.standing = standing
        self.serial: int | None = None  # of the caches this run works with, if they are to stand
        self.columns_computed = 0
        self.policy = policy or FailurePolicy(0)
        self.statistics = list(dict.fromkeys(family.statistic for family in problem.families))
        self.compared = any(statistic.cacheable for statistic in self.statistics)  # else all pairs are ready-made
        self.cached = any(map(problem.is_cached, self.statistics))
        self.store = RowStore(problem.n_rows)
        self.centers: dict | None = None
        self.plan: MemoryPlan | None = None
        self.gates_changed = self.widened = False  # since the shards were given the problem
        self.kept: dict[str, tuple[Callable, tuple]] = {}
        self.round = 0
        # Heads at work, and their changes that the shards have not heard of yet.
        self.solvers: dict[int, HeadSolver] = {}
        self.steps: dict[int, Step] = {}
        # Heads whose pending changes a new shard knows already, by shard.
        self.ahead: dict[int, set[int]] = {}
        self.recovering = threading.Lock()
        self.recovering_thread: int | None = None

    # -- setting up -------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Centres, largest statistics and bases."""
        centers = {}
        moments = self._ask("moments")
        for view in moments[0]:
            n = sum(part[view][0] for part in moments)
            mean = np.sum([part[view][1] for part in moments], axis=0) / n
            spread = sum(part[view][2] for part in moments) / n - mean @ mean
            if mean @ mean > WORTH_CENTRING * max(spread, 0.0):
                centers[view] = mean
        self.centers = centers
        largest = np.max(self._ask("prepare", self.centers), axis=0)
        self.depth = sum(self.problem.depths.values())
        self.bounds = [statistic.bound(float(size)) for statistic, size in zip(self.statistics, largest, strict=True)]
        self.bases = [self._basis(family) for family in self.problem.families]
        # Whether the rounds' own sums are as good as a proof.
        self.accurate = all(is_accurate(self.problem, f.statistic, b) for f, b in zip(self.problem.families, self.bases, strict=True))
        rank = sum(basis.rank for basis in self.bases)
        self.spread = np.zeros((self.problem.n_entries, rank))
        at = 0
        for family, basis in zip(self.problem.families, self.bases, strict=True):
            self.spread[family.members, at : at + basis.rank] = basis.coefficients
            at += basis.rank

    def _basis(self, family: Family) -> Basis:
        problem, bound = self.problem, self.bounds[self.statistics.index(family.statistic)]
        return family.basis(bound, problem.exact, problem.dtype_of(family.statistic), problem.coarse)

    def _open(self, n_heads: int, together: int) -> MemoryPlan:
        self.rows_per_shard = max((last - first for first, last in self.pool.bounds), default=0)
        free = memory_shares(self._ask("resources")) if self.budget is None and self.cached else None
        chosen = plan_of(self.problem, self.pool.bounds, self.spread.shape[1], n_heads, together, self.budget, free)
        self._found_caches(chosen)
        return replace(chosen, capacity=self.cache.capacity) if self.cached else chosen

    def _found_caches(self, chosen: MemoryPlan) -> None:
        """Open the shards with caches that stand, if there are any of these statistics, else with empty ones."""
        standing, size = self.standing, chosen.capacity * chosen.bytes_per_column
        if standing is None or size == 0:
            self._ask("open", self.bases, chosen.capacity)
            self.cache = ColumnCache(chosen.capacity, self.problem.n_rows)
            return
        found = standing.take(self._caches_key, self.pool.members, chosen.budget)
        forget = standing.make_room(size if found is None else found.size, chosen.budget)
        if found is not None and all(self._ask("open", self.bases, found.columns.capacity, found.serial, forget)):
            self.serial, self.cache = found.serial, found.columns
            return
        self._ask("open", self.bases, chosen.capacity, None, forget)
        self.serial, self.cache = new_serial(), ColumnCache(chosen.capacity, self.problem.n_rows)

    @property
    def _caches_key(self) -> Hashable:
        """What caches depend on besides the rows."""
        statistics = [statistic for statistic in self.statistics if self.problem.is_cached(statistic)]
        return tuple((statistic, np.dtype(self.problem.cell_dtype(statistic)).str) for statistic in statistics), tuple(self.pool.bounds)

    def keep_caches(self) -> None:
        """At the end of a run that went well: have the caches ready for the next one over these rows."""
        if self.serial is None:
            return
        size, serial, self.serial = self.plan.capacity * self.plan.bytes_per_column, self.serial, None
        forget = self.standing.give_back(self._caches_key, Standing(serial, self.cache, self.pool.members, size))
        self._ask("keep_caches", serial, forget)

    def let_go_of_caches(self) -> None:
        """At the end of a run that failed: nobody knows what its caches hold."""
        if self.serial is not None:
            self.standing.let_go(self.serial)

    def _scales(self, heads: list[Head], masks: np.ndarray, diagonal: np.ndarray) -> list[np.ndarray]:
        """Normalisation factors (E,) of every head, from its unmasked rows. masks : (H, n). diagonal : (H, E) sums of k(i, i)."""
        if all(head.normalisation is not None for head in heads):
            return [head.normalisation for head in heads]
        kinds = {head.normalize for head in heads}
        ones = [np.ones(self.problem.n_entries) for _ in heads]
        if kinds <= {None, "spherical"}:
            return ones
        # Kernels are normalised before they are gated; gates 1 / sqrt(k(x, x)) are another kind of normalisation.
        diagonal = np.sum(self._ask("diagonals", masks, False), axis=0)
        sums = np.zeros_like(diagonal)
        if "multiplicative" in kinds:  # classes of one fold have the same rows
            distinct, which = np.unique(masks, axis=0, return_inverse=True)
            sums = self._matrix_sums(distinct)[which.ravel()]
        found = [
            scales(head.normalize, diagonal[h], sums[h], masks[h].sum()) if head.normalize in ("multiplicative", "trace") else ones[h]
            for h, head in enumerate(heads)
        ]
        return [scale if head.normalisation is None else head.normalisation for head, scale in zip(heads, found, strict=True)]

    def normalisation(self, head: Head, mask: np.ndarray) -> np.ndarray:
        """Normalisation factors (E,) of a head that is not trained yet; `open` comes first."""
        return self._scales([head], mask[None], np.zeros((1, self.problem.n_entries)))[0]

    def _matrix_sums(self, masks: np.ndarray) -> np.ndarray:
        """(H, E) sums over all pairs of rows of each mask; beyond 8,192 rows from evenly spaced columns."""
        n = self.problem.n_rows
        columns = np.unique(np.linspace(0, n - 1, min(n, MOST_SUM_COLUMNS)).astype(np.int64))
        weights = masks[:, columns]
        weights = weights * (masks.sum(axis=1) / np.maximum(weights.sum(axis=1), 1))[:, None]
        total = 0.0
        step = min(SUM_COLUMNS, self.cache.capacity)
        for start in range(0, len(columns), step):
            ids = columns[start : start + step]
            request, slots = self._entering(ids, None)
            rows = self.rows_of(ids) if self.compared else {}
            some = weights[:, start : start + step]
            total = total + np.sum(self._ask("apply", mask_sums, request, ids, slots, rows, self.bounds, masks, some), axis=0)
        return total

    def _entering(self, ids: np.ndarray, in_use: np.ndarray | None) -> tuple[RoundRequest, np.ndarray]:
        """A request that brings the given columns into the caches, and their slots."""
        none = np.empty(0, np.int64)
        if not self.cached:
            return RoundRequest(self.round, none, none, {}), ids
        entering = self.cache.place(ids, in_use)
        self.columns_computed += len(entering)
        rows = self.rows_of(entering) if len(entering) else {}
        return RoundRequest(self.round, entering, self.cache.slots(entering), rows), self.cache.slots(ids)

    def _fetch(self, ids: np.ndarray) -> dict:
        """Features of any rows, from the shards that own them."""
        calls, order = [], []
        for s, (first, last) in enumerate(self.pool.bounds):
            mine = np.flatnonzero((ids >= first) & (ids < last))
            if len(mine):
                calls.append((s, "fetch", (ids[mine],)))
                order.append(mine)
        joined = concatenate(self._ask_some(calls))
        back = np.empty(len(ids), np.int64)
        back[np.concatenate(order)] = np.arange(len(ids))
        return take(joined, back)

    def rows_of(self, ids: np.ndarray) -> dict:
        """Features of any rows."""
        missing = self.store.missing(ids)
        if len(missing):
            self.store.add(missing, self._fetch(missing))
        return self.store.rows(ids)

    def load(self) -> None:
        """Have all shards read their rows (those of a local pool have them)."""
        while True:
            generation = self.pool.generation
            try:
                self.pool.load(list(range(len(self.pool.bounds))))
                return
            except ShardsLost as loss:
                self._recover(loss, generation)

    # -- shards and their losses ----------------------------------------------------------------------------------------

    def _ask(self, method: str, *arguments: Any) -> list:
        """Call a method of all shards that can be called twice; shards that are lost are replaced."""
        while True:
            generation = self.pool.generation
            try:
                return self.pool.call_all(method, *arguments)
            except ShardsLost as loss:
                self._recover(loss, generation)

    def _ask_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """The same for calls (shard, method, arguments)."""
        while True:
            generation = self.pool.generation
            try:
                return self.pool.call_some(calls)
            except ShardsLost as loss:
                self._recover(loss, generation)

    def apply(self, work: Callable, *arguments: Any) -> list:
        """What work(shard, *arguments) returns for every shard, in their order. It may run twice where a shard is lost."""
        return self._ask("apply", work, *arguments)

    def keep(self, name: str, work: Callable, *arguments: Any) -> list:
        """The same for work that leaves something in the shards' `scratch`; shards that replace lost ones do it as well."""
        self.kept[name] = (work, arguments)
        return self.apply(work, *arguments)

    def release(self, name: str) -> None:
        """Forget what `keep` left under this name."""
        del self.kept[name]
        self.apply(forget, name)

    def _advance(self, request: RoundRequest) -> list:
        """Replies of all shards to a round. Survivors of a loss answer again what they answered, new shards know the changes already."""
        while True:
            generation = self.pool.generation
            try:
                if not any(self.ahead.values()):
                    return self.pool.call_all("advance", request)
                known = [without_changes(request, self.ahead.get(s, set())) for s in range(len(self.pool.bounds))]
                return self.pool.call_some([(s, "advance", (part,)) for s, part in enumerate(known)])
            except ShardsLost as loss:
                self._recover(loss, generation)

    def _recover(self, loss: ShardsLost, generation: int) -> None:
        """Replace lost shards and bring the new ones up to date; shards that are lost meanwhile are counted and replaced as well."""
        if self.recovering_thread == threading.get_ident():
            raise loss  # met while a new shard is brought up to date: the recovery under way takes care of it
        with self.recovering:
            if self.pool.generation != generation:
                return  # another thread has done it
            self.recovering_thread = threading.get_ident()
            try:
                self._replace(loss.lost)
            finally:
                self.recovering_thread = None

    def _bring_up_to_date(self, shard: int) -> None:
        """Make all state of a shard anew; shards that are lost meanwhile are replaced."""
        while True:
            generation = self.pool.generation
            try:
                return bring_up_to_date(self, shard)
            except ShardsLost as loss:
                self._recover(loss, generation)

    def _replace(self, lost: dict[int, str]) -> None:
        behind: set[int] = set()  # shards that are new and do not know all yet
        while lost or behind:
            if lost:
                self.policy.note(lost)
            behind |= set(lost)
            try:
                if lost:
                    self.pool.replace(sorted(lost))
                    lost = {}
                for shard in sorted(behind):
                    bring_up_to_date(self, shard)
                    self.ahead[shard] = {h for h, solver in self.solvers.items() if len(self.steps[h].ids) or solver.stretch != 1.0}
                    behind.discard(shard)
            except ShardsLost as again:
                lost = again.lost
