"""What each kernel brings to a decision.

    f_h(x) - intercept_h = sum_m c_hm(x),    c_hm(x) = weights[h, m] gate_m(x) sum_j coefficients[h, j] gate_m(j) k_m(x, x_j)

A model with several entries per kernel (one per cluster, say) adds up the entries of each kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from ..data.rows import take
from ..engine.resources import usable_cpus
from ..kernels.base import Kernel, row_centers
from ..kernels.pairs.families import NO_GATE, Family, group
from ..kernels.pairs.statistics import Matrices
from .expansion import BLOCK_BYTES


class ExplainMixin:
    """Explanations of predictions, for every estimator with decision values."""

    def contributions(self, X: Any) -> np.ndarray:
        """The part of the decision value that each kernel brings.

        They sum over kernels to `decision_function(X) - intercept_`. A kernel with a large contribution of the decision's sign
        speaks for the decision, one of the opposite sign against it.

        Parameters
        ----------
        X : n examples, in any container that `predict` takes.

        Returns
        -------
        contributions : (n, M) when the model has one decision value per example (two classes), else (n, n_heads, M), with heads
            in the order of the columns of `decision_function`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from raymkl import MKLClassifier, kernels
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MKLClassifier(kernels=[*kernels.rbf([0.1, 1.0]), kernels.Linear()], engine="local").fit(X, y)
        >>> clf.contributions(X).shape
        (150, 3, 3)
        >>> bool(abs(clf.contributions(X).sum(axis=2) + clf.intercept_ - clf.decision_function(X)).max() < 1e-9)
        True
        """
        check_is_fitted(self, "dual_coef_")
        _, rows, gates = self._rows_to_predict(X)
        return self._kernel_parts(rows, gates)

    def _kernel_parts(self, rows: dict, gates: np.ndarray | None) -> np.ndarray:
        """`contributions` of rows by view key (of ready-made matrices the columns of `support_`) and their gates."""
        values = self._entry_parts(rows, gates)
        n, n_heads, n_entries = values.shape
        n_kernels = np.shape(self.kernel_weights_)[-1]
        if n_entries != n_kernels:
            # Entries stand as in kernel_weights_: all kernels of the first cluster, then all of the second, and so on.
            values = values.reshape(n, n_heads, -1, n_kernels).sum(axis=2)
        return values[:, 0] if n_heads == 1 else values

    def _entry_parts(self, rows: dict, gates: np.ndarray | None) -> np.ndarray:
        """(n, n_heads, n_entries) part of every entry in the decision values."""
        n_entries = self._effective_weights.shape[1]
        return entry_contributions(
            [self.kernels_[e % len(self.kernels_)] for e in range(n_entries)],
            self._effective_weights,
            self.dual_coef_,
            self._support_rows,
            rows,
            self._gate_of_entry,
            self._support_gates,
            gates,
        )


def entry_contributions(
    kernels: Sequence[Kernel],
    weights: np.ndarray,
    coefficients: np.ndarray,
    support_rows: dict,
    rows: dict,
    gate_of_entry: Sequence[int] | None = None,
    support_gates: np.ndarray | None = None,
    gates: np.ndarray | None = None,
) -> np.ndarray:
    """(n, H, E) part of each entry in the decision values; the arguments are those of `expansion.decision_values`.

    Kernel values are computed for blocks of rows: beyond the result, memory is bounded whatever n is.
    """
    n = next(iter(rows.values())).shape[0]
    total = np.zeros((n, *weights.shape))
    used = np.flatnonzero(np.abs(weights).max(axis=0) > 0)
    if len(used) == 0 or coefficients.shape[1] == 0 or n == 0:
        return total
    own_gate = {e: NO_GATE if gate_of_entry is None else gate_of_entry[e] for e in used}
    parts = _parts([kernels[e] for e in used], used, own_gate, coefficients, support_rows, support_gates)
    step = max(1, BLOCK_BYTES // (8 * coefficients.shape[1] * max(part.family.statistic.depth for part in parts)))

    def block(start: int) -> None:
        own = slice(start, min(start + step, n))
        block_rows = take(rows, own)
        for part in parts:
            for entries, sums in part.sums(block_rows):
                for position, e in enumerate(entries):
                    row_gate = 1.0 if own_gate[e] == NO_GATE else gates[own, own_gate[e]][:, None]
                    total[own, :, e] = sums[:, position] * row_gate * weights[:, e]

    starts = range(0, n, step)
    workers = min(usable_cpus(), len(starts))
    if workers > 1:
        with threadpool_limits(1), ThreadPoolExecutor(workers) as executor:
            list(executor.map(block, starts))
    else:
        block(0)
    return total


def _parts(kernels, entries, own_gate, coefficients, support_rows, support_gates) -> list[_Part]:
    """One part per statistic. Entries that are the same kernel under different gates share its values."""
    gated: dict[tuple, np.ndarray] = {}
    parts = []
    centers = row_centers(support_rows)
    for family in group(kernels, None, join=True):
        sharing: dict[Kernel, list[int]] = {}
        for position, kernel in enumerate(family.kernels):
            sharing.setdefault(kernel, []).append(position)
        jobs = []
        for positions in sharing.values():
            own = [int(entries[family.members[position]]) for position in positions]
            key = tuple(own_gate[e] for e in own)
            if key not in gated:
                factors = [1.0 if gate == NO_GATE else support_gates[:, gate] for gate in key]
                gated[key] = np.concatenate([coefficients * factor for factor in factors]).T.copy()
            jobs.append((positions[0], own, gated[key]))
        parts.append(_Part(family, jobs, support_rows, centers))
    return parts


class _Part:
    """Sums over support vectors of the kernels over one statistic, which is computed once for all of them.

    jobs : per kernel its position in the family, its entries, and (S, entries * H) coefficients with the gates of the support vectors.
    """

    def __init__(self, family: Family, jobs: list[tuple[int, list[int], np.ndarray]], support_rows: dict, centers: dict):
        self.family, self.jobs, self.centers = family, jobs, centers
        self.is_stack = isinstance(family.statistic, Matrices)
        self.support = None if self.is_stack else family.statistic.prepare(support_rows, centers=centers)

    def sums(self, rows: dict) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yields, kernel after kernel, its entries and (n, entries, H) sum_j coefficients[h, j] gate(j) k(x, x_j) for a block of rows."""
        statistic = self.family.statistic
        pairs = None if self.is_stack else statistic.pairs(statistic.prepare(rows, centers=self.centers), self.support)
        for position, entries, coefficients in self.jobs:
            if self.is_stack:
                values = rows[statistic.view][:, :, self.family.kernels[position].index]
            else:
                values = self.family.values(position, pairs)
            sums = np.asarray(values, np.float64) @ coefficients
            yield entries, sums.reshape(len(sums), len(entries), -1)
