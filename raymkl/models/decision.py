"""Decision values of fitted models.

    f_h(x) = sum_e weights[h, e] gate_e(x) sum_j coefficients[h, j] gate_e(j) k_e(x, x_j) + intercept_h

In float64, by formula for small models and by fine tables for large ones (the choice depends on the model alone, so a row's
value never depends on the rows it is predicted with).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from ..engine.rows import take
from ..kernels.base import Kernel, row_centers
from ..kernels.families import NO_GATE, Family, group
from ..kernels.statistics import Matrices

# Kernel evaluations per predicted row beyond which the weighted sum of kernels is tabulated.
WORTH_A_TABLE = 20_000
BLOCK_BYTES = 32 * 2**20


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
    ready-made matrices `rows` holds stacks (n, S, M)). support_gates, gates : (S, J), (n, J).
    """
    used = np.flatnonzero(np.abs(weights).max(axis=0) > 0)
    n = next(iter(rows.values())).shape[0]
    total = np.zeros((n, len(weights)))
    if len(used) == 0 or coefficients.shape[1] == 0:
        return total
    gate_list = [NO_GATE if gate_of_entry is None else gate_of_entry[e] for e in used]
    families = group([kernels[e] for e in used], gate_list)
    tabulated = len(used) * coefficients.shape[1] > WORTH_A_TABLE
    jobs = [
        _Part(family, weights[:, used[family.members]], coefficients, support_rows, rows, support_gates, tabulated) for family in families
    ]
    step = max(1, BLOCK_BYTES // (8 * coefficients.shape[1]))
    starts = range(0, n, step)

    def block(start: int) -> None:
        part = slice(start, min(start + step, n))
        block_rows = take(rows, part)
        for job in jobs:
            values = job(block_rows)
            total[part] += values if job.family.gate == NO_GATE else gates[part, job.family.gate][:, None] * values

    workers = min(os.cpu_count() or 1, len(starts))
    if workers > 1:
        with threadpool_limits(1), ThreadPoolExecutor(workers) as executor:
            list(executor.map(block, starts))
    else:
        for start in starts:
            block(start)
    return total


class _Part:
    """The contribution of one family, for blocks of rows."""

    def __init__(self, family: Family, weights, coefficients, support_rows, rows, support_gates, tabulated):
        self.family, self.weights = family, weights
        gate = 1.0 if family.gate == NO_GATE else support_gates[:, family.gate]
        self.coefficients = coefficients * gate
        self.is_stack = isinstance(family.statistic, Matrices)
        if self.is_stack:
            return
        statistic, self.centers = family.statistic, row_centers(support_rows)
        self.support = statistic.prepare(support_rows, centers=self.centers)
        bound = statistic.bound(max(statistic.largest(part) for part in (self.support, statistic.prepare(rows, centers=self.centers))))
        self.functions = [family.combined(w, bound, tabulated) for w in weights]

    def __call__(self, rows: dict) -> np.ndarray:
        """(n, H) for one block of rows."""
        if self.is_stack:
            stack = rows[self.family.statistic.view]
            index = [kernel.index for kernel in self.family.kernels]
            return np.stack([(stack[:, :, index] @ w) @ c for w, c in zip(self.weights, self.coefficients, strict=True)], axis=1)
        stat = self.family.statistic.pairs(self.family.statistic.prepare(rows, centers=self.centers), self.support)
        return np.stack([f(stat) @ c for f, c in zip(self.functions, self.coefficients, strict=True)], axis=1)
