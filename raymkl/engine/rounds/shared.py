"""What all heads of a run share: the problem, its statistics and bases, the memory plan, caches of columns,
rows that were seen.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from ...data.rows import concatenate, take
from ...kernels.normalize import scales
from ...kernels.pairs.basis import Basis
from ...kernels.pairs.tables import WideTableBasis
from ..plan import MemoryPlan, plan_of
from ..problem import Head, Problem, RoundRequest
from ..resources import memory_shares
from ..shard.proof import is_accurate, mask_sums
from .caches import CachesOfRows, ColumnCache, RowStore, Standing, new_serial
from .crew import Crew

# Error of a kernel value, relative to the mean of its diagonal.
ROUND_OFF = {"float32": 1e-6, "tables": 1e-10, "float64": 1e-14}
# Centre the rows of a view when their mean is this many times larger than their deviation (both squared).
WORTH_CENTRING = 4.0
# Columns per call when sums over all pairs are wanted, and how many columns are enough for a mean over very
# many rows.
SUM_COLUMNS = 1024
MOST_SUM_COLUMNS = 8192


class State(Enum):
    """How far a run is: its shards have their rows; statistics and bases are known; caches are there, and
    heads may come.
    """

    LOADED = 0
    PREPARED = 1
    READY = 2


@dataclass(frozen=True)
class Findings:
    """What looking at all rows has shown.

    centers : by view, what rows are shifted by. bounds : of every statistic. bases : of every family.
    coefficients : (E, R) of the entries over all basis functions, without normalisation.
    """

    centers: dict
    bounds: list[float]
    bases: list[Basis]
    coefficients: np.ndarray

    @classmethod
    def of(cls, problem: Problem, centers: dict, largest: np.ndarray) -> Findings:
        """largest : of every statistic, what its bound is made of."""
        statistics = problem.statistics
        bounds = [statistic.bound(float(size)) for statistic, size in zip(statistics, largest, strict=True)]
        bases = [
            family.basis(
                bounds[statistics.index(family.statistic)],
                problem.exact,
                problem.dtype_of(family.statistic),
                problem.coarse,
            )
            for family in problem.families
        ]
        coefficients = np.zeros((problem.n_entries, sum(basis.rank for basis in bases)))
        at = 0
        for family, basis in zip(problem.families, bases, strict=True):
            coefficients[family.members, at : at + basis.rank] = basis.coefficients
            at += basis.rank
        return cls(centers, bounds, bases, coefficients)


class Shared:
    """Everything about a run but its heads.

    found : what is known once the run is prepared. seen : features of rows. cache : which columns the shards
    have. serial : of the caches, if they are to stand. changed : what differs from the problem that the
    shards were given with their rows ("gates", "dtype").
    """

    found: Findings
    cache: ColumnCache

    def __init__(
        self, crew: Crew, problem: Problem, budget: int | None, standing: CachesOfRows | None = None
    ):
        """budget : bytes per shard, or None.

        standing : caches over these rows that outlive a run, or None.
        """
        self.crew, self.problem, self.budget, self.standing = crew, problem, budget, standing
        self.state, self.changed = State.LOADED, set[str]()
        self.seen = RowStore(problem.n_rows)
        self.serial: int | None = None
        self.columns_computed = 0
        self.plan: MemoryPlan | None = None

    @property
    def compared(self) -> bool:
        """Whether rows are compared; else all pairs are ready-made."""
        return any(statistic.cacheable for statistic in self.problem.statistics)

    @property
    def cached(self) -> bool:
        """Whether shards keep columns of pair statistics."""
        return any(map(self.problem.is_cached, self.problem.statistics))

    @property
    def accurate(self) -> bool:
        """Whether the rounds' own sums are as good as a proof."""
        return all(
            is_accurate(self.problem, f.statistic, b)
            for f, b in zip(self.problem.families, self.found.bases, strict=True)
        )

    @property
    def meets_all_rows(self) -> bool:
        """Whether statistics are computed of all rows at a time, because several heads will want nearly all
        of them.

        Products of other shapes differ in their last bits: this way no head's result depends on which other
        heads there are.
        """
        n, exact = (
            self.problem.n_rows,
            any(statistic.reads_strings for statistic in self.problem.statistics),
        )  # counts are what they are
        return (
            self.plan.heads > 1
            and not exact
            and self.plan.working_set >= n
            and (not self.cached or self.cache.capacity >= n)
        )

    def columns_of(self, ids: np.ndarray) -> np.ndarray:
        """Sorted columns to meet rows with, where those of `ids` are wanted: these, or all."""
        return np.arange(self.problem.n_rows) if len(ids) and self.compared and self.meets_all_rows else ids

    # -- setting up --------------------------------------------------------------------------------

    def widen(self) -> bool:
        """Go on with float64 statistics, if they may be had and there is room for them; whether there is.

        Shards then know of no heads.
        """
        if not self.problem.may_widen:
            return False
        wide, heads, together = (
            replace(self.problem, dtype=np.float64, may_widen=False),
            self.plan.heads,
            self.plan.together,
        )
        try:
            plan_of(wide, self.crew.pool.ranges, self.problem.n_entries, heads, together, self.budget)
        except ValueError:
            return False
        self.let_go_of_caches()  # they are of another precision than their successors
        # Without a plan, shards that replace lost ones are not told of heads: all of them are when this is
        # done.
        self.problem, self.state, self.plan = wide, State.PREPARED, None
        self.changed.add("dtype")
        self.crew.ask("set_problem", wide)
        self.prepare()
        self.reserve(heads, together)
        return True

    def set_gates(self, gates: np.ndarray) -> None:
        """Other gates (n, J) for heads that are added from now on; no head may be at work."""
        self.problem.gates = gates
        self.changed.add("gates")
        self.crew.ask("set_gates", gates)

    def prepare(self) -> None:
        """Centres, largest statistics and bases."""
        centers = {}
        moments = self.crew.ask("moments")
        for view in moments[0]:
            n = sum(part[view][0] for part in moments)
            mean = np.sum([part[view][1] for part in moments], axis=0) / n
            variance = sum(part[view][2] for part in moments) / n - mean @ mean
            if mean @ mean > WORTH_CENTRING * max(variance, 0.0):
                centers[view] = mean
        self.found = Findings.of(self.problem, centers, np.max(self.crew.ask("prepare", centers), axis=0))
        self.state = State.PREPARED

    def reserve(self, n_heads: int, together: int) -> None:
        """Plan memory for so many heads at a time, or as many as fit, `together` at least, and have the
        shards reserve it.
        """
        free = memory_shares(self.crew.ask("resources")) if self.budget is None and self.cached else None
        chosen = plan_of(
            self.problem,
            self.crew.pool.ranges,
            self.found.coefficients.shape[1],
            n_heads,
            together,
            self.budget,
            free,
        )
        self._found_caches(chosen)
        self.plan = replace(chosen, capacity=self.cache.capacity) if self.cached else chosen
        self.state = State.READY

    def _found_caches(self, chosen: MemoryPlan) -> None:
        """Give the shards caches that stand, if there are any of these statistics, else empty ones."""
        standing, size = self.standing, chosen.capacity * chosen.bytes_per_column
        if standing is None or size == 0:
            self.crew.ask("take_bases", self.found.bases, chosen.capacity)
            self.cache = ColumnCache(chosen.capacity, self.problem.n_rows)
            return
        found = standing.take(self._caches_key, self.crew.pool.members, chosen.budget)
        forget = standing.make_room(size if found is None else found.size, chosen.budget)
        if found is not None and all(
            self.crew.ask("take_bases", self.found.bases, found.columns.capacity, found.serial, forget)
        ):
            self.serial, self.cache = found.serial, found.columns
            return
        if found is not None:  # some shard was replaced and has them no more
            standing.let_go(found.serial)
        self.crew.ask("take_bases", self.found.bases, chosen.capacity, None, forget)
        self.serial, self.cache = new_serial(), ColumnCache(chosen.capacity, self.problem.n_rows)

    @property
    def _caches_key(self) -> Hashable:
        """What caches depend on besides the rows."""
        statistics = [statistic for statistic in self.problem.statistics if self.problem.is_cached(statistic)]
        kinds = tuple(
            (statistic, np.dtype(self.problem.cell_dtype(statistic)).str) for statistic in statistics
        )
        return kinds, tuple(self.crew.pool.ranges)

    def keep_caches(self) -> None:
        """At the end of a run that went well: have the caches ready for the next one over these rows."""
        if self.serial is None:
            return
        size, serial, self.serial = self.plan.capacity * self.plan.bytes_per_column, self.serial, None
        self.crew.ask("keep_caches", serial)  # first: from the next line on another run may take them
        forget = self.standing.give_back(
            self._caches_key, Standing(serial, self.cache, self.crew.pool.members, size)
        )
        if forget:
            self.crew.ask("forget_caches", forget)

    def let_go_of_caches(self) -> None:
        """Have no more to do with the present caches, as at the end of a run that failed: nobody knows what
        they hold.
        """
        if self.serial is not None:
            self.standing.let_go(self.serial)
            self.serial = None

    def round_off(self, diagonal: np.ndarray) -> np.ndarray:
        """(..., E) how wrong entries of kernel matrices are, by the dtype of their statistics and the tables.
        diagonal : their mean.
        """
        error = diagonal.copy()
        for family, basis in zip(self.problem.families, self.found.bases, strict=True):
            narrow = self.problem.dtype_of(family.statistic) == np.float32
            error[..., family.members] *= ROUND_OFF[
                "float32" if narrow else "tables" if isinstance(basis, WideTableBasis) else "float64"
            ]
        return error

    def facts(self) -> dict:
        """What rows of the history say about columns and memory."""
        return {
            "columns_computed": self.columns_computed,
            "cached_columns": len(self.cache.columns),
            "cache_hits": self.cache.hits,
            "cache_capacity": self.cache.capacity,
            "rows_per_shard": max(last - first for first, last in self.crew.pool.ranges),
            "expected_peak_bytes": self.plan.expected_peak,
        }

    def normalisations(self, heads: list[Head], masks: np.ndarray, diagonal: np.ndarray) -> list[np.ndarray]:
        """Normalisation factors (E,) of every head, from those of its unmasked rows that have the views of a
        kernel.

        masks : (H, n). diagonal : (H, E) sums of k(i, i).
        """
        if all(head.normalisation is not None for head in heads):
            return [head.normalisation for head in heads]
        kinds = {head.normalize for head in heads}
        ones = [np.ones(self.problem.n_entries) for _ in heads]
        if kinds <= {None, "spherical"}:
            return ones
        # Kernels are normalised before they are gated; gates 1 / sqrt(k(x, x)) are another kind of
        # normalisation.
        diagonal = np.sum(self.crew.ask("diagonals", masks, False), axis=0)
        sums = np.zeros_like(diagonal)
        if "multiplicative" in kinds:  # classes of one fold have the same rows
            distinct, which = np.unique(masks, axis=0, return_inverse=True)
            sums = self._matrix_sums(distinct)[which.ravel()]
        counts = self._counts(masks)
        found = [
            scales(head.normalize, diagonal[h], sums[h], counts[h])
            if head.normalize in ("multiplicative", "trace")
            else ones[h]
            for h, head in enumerate(heads)
        ]
        return [
            scale if head.normalisation is None else head.normalisation
            for head, scale in zip(heads, found, strict=True)
        ]

    def normalisation(self, head: Head, mask: np.ndarray) -> np.ndarray:
        """Normalisation factors (E,) of a head that is not trained yet; `reserve` comes first."""
        return self.normalisations([head], mask[None], np.zeros((1, self.problem.n_entries)))[0]

    def _counts(self, masks: np.ndarray) -> np.ndarray:
        """(H, E) rows of each mask (H, n) that have the views of each entry's kernel."""
        counts = np.repeat(masks.sum(axis=1)[:, None], self.problem.n_entries, axis=1)
        for family in self.problem.families:
            if family.present is not None:
                counts[:, family.members] = (masks @ family.present.astype(float))[:, None]
        return counts

    def _matrix_sums(self, masks: np.ndarray) -> np.ndarray:
        """(H, E) sums over all pairs of rows of each mask; beyond 8,192 rows from evenly spaced columns."""
        n = self.problem.n_rows
        columns = np.unique(np.linspace(0, n - 1, min(n, MOST_SUM_COLUMNS)).astype(np.int64))
        weights = [_column_weights(masks, columns, family.present) for family in self.problem.families]
        total = 0.0
        step = min(SUM_COLUMNS, self.cache.capacity)
        for start in range(0, len(columns), step):
            ids = columns[start : start + step]
            request, slots = self.entering(ids, None)
            rows = self.rows_of(ids) if self.compared else {}
            some = [part[:, start : start + step] for part in weights]
            total = total + np.sum(
                self.crew.ask("apply", mask_sums, request, ids, slots, rows, self.found.bounds, masks, some),
                axis=0,
            )
        return total

    def entering(
        self, ids: np.ndarray, in_use: np.ndarray | None, round_number: int = 0
    ) -> tuple[RoundRequest, np.ndarray]:
        """A request that brings the given columns into the caches, and their slots."""
        none = np.empty(0, np.int64)
        if not self.cached:
            return RoundRequest(round_number, none, none, {}), ids
        entering = self.cache.place(ids, in_use)
        self.columns_computed += len(entering)
        rows = self.rows_of(entering) if len(entering) else {}
        return RoundRequest(round_number, entering, self.cache.slots(entering), rows), self.cache.slots(ids)

    def _fetch(self, ids: np.ndarray) -> dict:
        """Features of any rows, from the shards that own them."""
        calls, order = [], []
        for s, (first, last) in enumerate(self.crew.pool.ranges):
            mine = np.flatnonzero((ids >= first) & (ids < last))
            if len(mine):
                calls.append((s, "fetch", (ids[mine],)))
                order.append(mine)
        joined = concatenate(self.crew.ask_some(calls))
        back = np.empty(len(ids), np.int64)
        back[np.concatenate(order)] = np.arange(len(ids))
        return take(joined, back)

    def rows_of(self, ids: np.ndarray) -> dict:
        """Features of any rows."""
        missing = self.seen.missing(ids)
        if len(missing):
            self.seen.add(missing, self._fetch(missing))
        return self.seen.rows(ids)


def _column_weights(masks: np.ndarray, columns: np.ndarray, present: np.ndarray | None) -> np.ndarray:
    """(H, k) what columns weigh in sums over the rows of each mask (H, n) that are there: more than one where
    they stand for others.
    """
    masks = masks if present is None else masks * present
    weights = masks[:, columns]
    return weights * (masks.sum(axis=1) / np.maximum(weights.sum(axis=1), 1))[:, None]
