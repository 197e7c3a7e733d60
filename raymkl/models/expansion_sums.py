"""The sums of an `Expansion` over its support vectors, family after family of kernels, for blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ..data.rows import row_count
from ..engine.resources import usable_cpus
from ..kernels.pairs.basis import StackBasis
from ..kernels.pairs.families import NO_GATE, Family
from ..kernels.pairs.statistics import Statistic

# A gated family meets only the support vectors that take part in it when they are fewer than this part of
# all.
SPARSE = 0.7


class SomeColumns:
    """Columns of a stack (rows, columns, M) that are not copied out of it: they would be as large as it is.

    Rows are taken by index.
    """

    ndim = 3

    def __init__(self, array: np.ndarray, columns: np.ndarray):
        self.array, self.columns = array, columns

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.array), len(self.columns), self.array.shape[2])

    def __getitem__(self, rows: slice | np.ndarray) -> SomeColumns:
        return SomeColumns(self.array[rows], self.columns)


class SupportSide:
    """The support vectors as one statistic wants them."""

    def __init__(self, statistic: Statistic, support_rows: dict, centers: dict):
        self.statistic, self.centers = statistic, centers
        self.support = statistic.prepare(support_rows, centers=centers)

    def bound(self, rows: dict) -> float:
        """Of the statistic of any pair of these rows and support vectors."""
        prepared = self.statistic.prepare(rows, centers=self.centers)
        return self.statistic.bound(max(self.statistic.largest(part) for part in (self.support, prepared)))

    def pairs(self, rows: dict, columns: np.ndarray | None = None) -> np.ndarray:
        """Statistics of a block of rows with all support vectors, or with some."""
        support = self.support if columns is None else self.support.take(columns)
        return self.statistic.pairs(self.statistic.prepare(rows, centers=self.centers), support)


class CombinedSums:
    """The weighted sum of the kernels of one family, for blocks of rows.

    weights : (H, members). coefficients : (H, S) times the gates of the support vectors. side, bound : of the
    family's statistic; None for ready-made matrices.
    """

    def __init__(
        self,
        family: Family,
        weights: np.ndarray,
        coefficients: np.ndarray,
        side: SupportSide | None,
        bound: Any,
        tabulated: bool,
    ):
        self.family, self.weights, self.side = family, weights, side
        self.heads = np.flatnonzero(np.abs(weights).max(axis=1) > 0)
        self.coefficients = coefficients[self.heads]
        self.columns = np.flatnonzero(np.any(self.coefficients != 0, axis=0))
        # Whether so many support vectors have no part in the family that they are better left out.
        self.sparse = family.gate != NO_GATE and len(self.columns) < SPARSE * coefficients.shape[1]
        if side is not None:
            self.functions = [family.combined(w, bound, tabulated) for w in weights[self.heads]]
        else:
            self.basis = StackBasis([kernel.index for kernel in family.kernels])

    def __call__(self, rows: dict, stat: np.ndarray | None) -> np.ndarray:
        """(n, H) for one block of rows, whose statistics are `stat`."""
        return self._sums(rows, stat, self.coefficients)

    def apart(self, rows: dict) -> np.ndarray:
        """The same with statistics of its own, over those support vectors alone that take part."""
        stat = None if self.side is None else self.side.pairs(rows, self.columns)
        return self._sums(rows, stat, self.coefficients[:, self.columns], self.columns)

    def _sums(
        self, rows: dict, stat: np.ndarray | None, coefficients: np.ndarray, columns: np.ndarray | None = None
    ) -> np.ndarray:
        total = np.zeros((row_count(rows), len(self.weights)))
        if self.side is None:
            stack = rows[self.family.statistic.view]
            columns = np.arange(coefficients.shape[1]) if columns is None else columns
            if isinstance(stack, SomeColumns):
                stack, columns = stack.array, stack.columns[columns]
            stack = np.ascontiguousarray(stack)
            for position, h in enumerate(self.heads):
                sums = np.zeros((len(stack), self.basis.rank))
                self.basis.accumulate(stack, columns, coefficients[position], sums, 0, len(stack))
                total[:, h] = sums @ (self.weights[h] @ self.basis.coefficients)
            return total
        for position, h in enumerate(self.heads):
            total[:, h] = self.functions[position](stat) @ coefficients[position]
        return total


class SumsOneByOne:
    """The kernels of one statistic, each with a sum of its own; the statistic is computed once for all of
    them.

    jobs : see `Expansion._sharing`. side : of the statistic; None for ready-made matrices.
    """

    def __init__(
        self, family: Family, jobs: list[tuple[int, list[int], np.ndarray]], side: SupportSide | None
    ):
        self.family, self.jobs, self.side = family, jobs, side

    def sums(self, rows: dict) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields, kernel after kernel, its entries and (n, entries, H) sum_j coefficients[h, j] gate(j) k(x,
        x_j) for a block of rows.
        """
        pairs = None if self.side is None else self.side.pairs(rows)
        for position, entries, coefficients in self.jobs:
            if pairs is None:
                values = rows[self.family.statistic.view][:, :, self.family.kernels[position].index]
            else:
                values = self.family.values(position, pairs)
            sums = np.asarray(values, np.float64) @ coefficients
            yield entries, sums.reshape(len(sums), len(entries), -1)


def in_blocks(work: Callable[[slice], None], n: int, step: int) -> None:
    """Call `work` with blocks of at most `step` of n rows, on all cores where there are several."""
    blocks = [slice(start, min(start + step, n)) for start in range(0, n, step)]
    workers = min(usable_cpus(), len(blocks))
    if workers > 1:
        with threadpool_limits(1), ThreadPoolExecutor(workers) as executor:
            list(executor.map(work, blocks))
    else:
        for block in blocks:
            work(block)
