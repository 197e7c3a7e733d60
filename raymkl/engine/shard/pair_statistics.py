"""Pair statistics of a shard's rows with columns, of which it keeps as many as the memory plan allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...data.views import is_sparse
from ...kernels.pairs.statistics import Matrices, SquaredDistance
from ..problem import Problem, RoundRequest
from .own_rows import OwnRows


class PairStatistics:
    """Statistics of all families, each once, over own rows.

    of_family : which of them each family has. prepared : own rows, ready for each. centers : by view, what
    rows are shifted by. cache : per statistic, its columns (slots, n), or None where none are kept. standing
    : caches that outlive a run, by serial number (see `rounds.caches`).
    """

    def __init__(self, own: OwnRows, problem: Problem, standing: dict[int, list]):
        self.own, self.problem, self.standing = own, problem, standing
        self.statistics = problem.statistics
        self.of_family = [self.statistics.index(family.statistic) for family in problem.families]
        self.prepared: list[Any] = []
        self.centers: dict = {}
        self.cache: list[np.ndarray | None] = []

    @property
    def travelling_views(self) -> list:
        """Views whose rows are sent around; those of ready-made matrices stay where they are."""
        compared = [statistic for statistic in self.statistics if not isinstance(statistic, Matrices)]
        return [view for view in self.own.features if any(view in statistic.views for statistic in compared)]

    @property
    def centred_views(self) -> list:
        """Views whose rows may be shifted: dense ones of squared distances."""
        distances = [statistic for statistic in self.statistics if isinstance(statistic, SquaredDistance)]
        return [statistic.view for statistic in distances if not is_sparse(self.own.features[statistic.view])]

    def prepare(self, problem: Problem, centers: dict) -> list[float]:
        """Ready the rows for every statistic of a problem; returns each statistic's `largest` over these
        rows.
        """
        self.problem, self.centers = problem, centers
        self.prepared = [self.ready(s, self.own.features) for s in range(len(self.statistics))]
        return [
            statistic.largest(rows) for statistic, rows in zip(self.statistics, self.prepared, strict=True)
        ]

    def ready(self, s: int, features: dict) -> Any:
        """Rows with these features, prepared for a statistic as the own ones are."""
        statistic = self.statistics[s]
        return statistic.prepare(features, self.problem.dtype_of(statistic), self.centers)

    # -- columns that are kept ---------------------------------------------------------------------

    def reserve(self, capacity: int, serial: int | None = None) -> bool:
        """Empty caches of `capacity` columns (memory is touched only when used), or those that stand; whether
        they are what was wanted.

        serial : of standing ones that are wanted, or None.
        """
        if serial in self.standing:
            self.cache = self.standing[serial]
            return True
        self.cache = [
            self._empty(s, capacity) if self.problem.is_cached(statistic) else None
            for s, statistic in enumerate(self.statistics)
        ]
        return serial is None

    def _empty(self, s: int, capacity: int) -> Any:
        statistic = self.statistics[s]
        return statistic.empty_block(capacity, self.own.n, self.problem.cell_dtype(statistic))

    def keep(self, serial: int) -> None:
        """Have the present caches ready for the next run over these rows."""
        self.standing[serial] = self.cache

    def forget(self, serials: Sequence[int]) -> None:
        """Let go of caches that stand."""
        for serial in serials:
            self.standing.pop(serial, None)

    def enter(self, request: RoundRequest) -> None:
        """Compute the statistics of entering columns."""
        if len(request.entering):
            for s, cache in enumerate(self.cache):
                if cache is not None:
                    self._fill(s, cache, request.entering, np.array(request.slots), request.rows)

    def _fill(self, s: int, block: np.ndarray, ids: np.ndarray, slots: np.ndarray, features: dict) -> None:
        """Statistics of some columns, written to their slots of a block."""
        statistic, columns = self.statistics[s], self.ready(s, features)
        statistic.fill(columns, self.prepared[s], block, slots)
        mine = np.flatnonzero(self.own.has(ids))
        if len(mine) and not statistic.reads_strings:
            # The statistic of a row with itself is known exactly; the pair formula only approximates it.
            block[slots[mine], ids[mine] - self.own.first] = statistic.diagonal(columns.take(mine))

    def kept_block(self, f: int, ids: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Statistics of a family and where the given columns stand in them: the cache, or ready-made
        matrices.
        """
        s = self.of_family[f]
        return (self.prepared[s].array, ids) if self.cache[s] is None else (self.cache[s], slots)

    def fresh_block(self, s: int, ids: np.ndarray, features: dict) -> tuple[np.ndarray, np.ndarray]:
        """The same of columns that are computed for now, and not kept."""
        if self.cache[s] is None:
            return self.prepared[s].array, ids
        block, slots = self._empty(s, len(ids)), np.arange(len(ids))
        self._fill(s, block, ids, slots, features)
        return block, slots
