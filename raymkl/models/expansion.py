"""Decision values of fitted models.

    f_h(x) = sum_e weights[h, e] gate_e(x) sum_j coefficients[h, j] gate_e(j) k_e(x, x_j) + intercept_h

In float64, by formula for small models and by fine tables for large ones (the choice depends on the model alone, so a row's
value never depends on the rows it is predicted with).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from ..data.rows import take
from ..engine.resources import usable_cpus
from ..kernels.base import Kernel, row_centers
from ..kernels.pairs.basis import StackBasis
from ..kernels.pairs.families import NO_GATE, Family, group
from ..kernels.pairs.statistics import Matrices, Statistic

# Kernel evaluations per predicted row beyond which the weighted sum of kernels is tabulated.
WORTH_A_TABLE = 20_000
BLOCK_BYTES = 32 * 2**20
# A gated family meets only the support vectors that take part in it when they are fewer than this part of all.
SPARSE = 0.7


def decision_values(
    kernels: Sequence[Kernel],
    weights: np.ndarray,
    coefficients: np.ndarray,
    support_rows: dict,
    rows: dict,
    gate_of_entry: Sequence[int] | None = None,
    support_gates: np.ndarray | None = None,
    gates: np.ndarray | None = None,
) -> np.ndarray:
    """(n, H) decision values without intercepts.

    weights : (H, E) effective weight of every entry. coefficients : (H, S). support_rows, rows : rows by view key (for
    ready-made matrices `rows` holds stacks (n, S, M) or `SomeColumns`). support_gates, gates : (S, J), (n, J).
    """
    used = np.flatnonzero(np.abs(weights).max(axis=0) > 0)
    n = next(iter(rows.values())).shape[0]
    total = np.zeros((n, len(weights)))
    if len(used) == 0 or coefficients.shape[1] == 0:
        return total
    gate_list = [NO_GATE if gate_of_entry is None else gate_of_entry[e] for e in used]
    families = group([kernels[e] for e in used], gate_list, join=True)
    tabulated = len(used) * coefficients.shape[1] > WORTH_A_TABLE
    centers = row_centers(support_rows)
    sides = {
        statistic: _Side(statistic, support_rows, rows, centers)
        for statistic in dict.fromkeys(family.statistic for family in families)
        if not isinstance(statistic, Matrices)
    }
    jobs = [
        _Part(family, weights[:, used[family.members]], coefficients, sides.get(family.statistic), support_gates, tabulated)
        for family in sorted(families, key=lambda family: list(sides).index(family.statistic) if family.statistic in sides else -1)
    ]
    step = max(1, BLOCK_BYTES // (8 * coefficients.shape[1] * max(family.statistic.depth for family in families)))
    starts = range(0, n, step)

    def block(start: int) -> None:
        part = slice(start, min(start + step, n))
        block_rows = take(rows, part)
        side, stat = None, None
        for job in jobs:  # families of one statistic stand next to each other, and it is computed once
            gate = np.ones(len(total[part])) if job.family.gate == NO_GATE else gates[part, job.family.gate]
            live = np.flatnonzero(gate)
            if len(live) < len(gate) or job.sparse:
                # Kernels whose gate is zero for an example are not evaluated for it.
                if len(live) and len(job.columns):
                    values = job.apart(block_rows if len(live) == len(gate) else take(block_rows, live))
                    total[part.start + live] += gate[live][:, None] * values
                continue
            if job.side is not None and job.side is not side:
                side, stat = job.side, job.side.pairs(block_rows)
            values = job(block_rows, stat)
            total[part] += values if job.family.gate == NO_GATE else gate[:, None] * values

    workers = min(usable_cpus(), len(starts))
    if workers > 1:
        with threadpool_limits(1), ThreadPoolExecutor(workers) as executor:
            list(executor.map(block, starts))
    else:
        for start in starts:
            block(start)
    return total


class SomeColumns:
    """Columns of a stack (rows, columns, M) that are not copied out of it: they would be as large as it is. Rows are taken by index."""

    ndim = 3

    def __init__(self, array: np.ndarray, columns: np.ndarray):
        self.array, self.columns = array, columns

    @property
    def shape(self) -> tuple[int, int, int]:
        return (len(self.array), len(self.columns), self.array.shape[2])

    def __getitem__(self, rows: slice | np.ndarray) -> SomeColumns:
        return SomeColumns(self.array[rows], self.columns)


class _Side:
    """The support vectors as one statistic wants them."""

    def __init__(self, statistic: Statistic, support_rows: dict, rows: dict, centers: dict):
        self.statistic, self.centers = statistic, centers
        self.support = statistic.prepare(support_rows, centers=centers)
        self.bound = statistic.bound(max(statistic.largest(part) for part in (self.support, statistic.prepare(rows, centers=centers))))

    def pairs(self, rows: dict, columns: np.ndarray | None = None) -> np.ndarray:
        """Statistics of a block of rows with all support vectors, or with some."""
        support = self.support if columns is None else self.support.take(columns)
        return self.statistic.pairs(self.statistic.prepare(rows, centers=self.centers), support)


class _Part:
    """The contribution of one family, for blocks of rows. side : of its statistic; None for ready-made matrices."""

    def __init__(self, family: Family, weights, coefficients, side: _Side | None, support_gates, tabulated):
        self.family, self.weights, self.side = family, weights, side
        gate = 1.0 if family.gate == NO_GATE else support_gates[:, family.gate]
        self.heads = np.flatnonzero(np.abs(weights).max(axis=1) > 0)
        self.coefficients = (coefficients * gate)[self.heads]
        self.columns = np.flatnonzero(np.any(self.coefficients != 0, axis=0))
        # Whether so many support vectors have no part in the family that they are better left out.
        self.sparse = family.gate != NO_GATE and len(self.columns) < SPARSE * coefficients.shape[1]
        if side is not None:
            self.functions = [family.combined(w, side.bound, tabulated) for w in weights[self.heads]]
        else:
            self.basis = StackBasis([kernel.index for kernel in family.kernels])

    def __call__(self, rows: dict, stat: np.ndarray | None) -> np.ndarray:
        """(n, H) for one block of rows, whose statistics are `stat`."""
        return self._sums(rows, stat, self.coefficients)

    def apart(self, rows: dict) -> np.ndarray:
        """The same with statistics of its own, over those support vectors alone that take part."""
        stat = None if self.side is None else self.side.pairs(rows, self.columns)
        return self._sums(rows, stat, self.coefficients[:, self.columns], self.columns)

    def _sums(self, rows: dict, stat: np.ndarray | None, coefficients: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
        total = np.zeros((next(iter(rows.values())).shape[0], len(self.weights)))
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
