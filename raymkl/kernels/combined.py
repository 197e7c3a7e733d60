"""A fixed weighted sum of kernels as one kernel, for clustering and gating.

    k(x, z) = sum_m weights[m] g_m(x) k_m(x, z) g_m(z),     g_m(x) = 1, or 1 / sqrt(k_m(x, x)) for spherical
    normalisation

evaluated in float64 between many rows and few *columns* (landmarks), block by block, so that no large matrix
is ever held. Kernels over one pair statistic are one function of it, whatever their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..data.store import StoreRows
from .base import Kernel, row_centers
from .normalize import gate_of_diagonal
from .pairs.families import NO_GATE, Family, group
from .pairs.statistics import Matrices

# Bytes of kernel values that are held at a time.
BLOCK_BYTES = 32 * 2**20
# Kernel evaluations per row beyond which the sum of the kernels of a family is tabulated (error below 2e-8).
WORTH_A_TABLE = 20_000


class CombinedKernel:
    """The kernel above.

    Parameters
    ----------
    kernels : list of kernels.
    weights : (M,) non-negative, or None for the mean of the kernels.
    spherical : (M,) whether each kernel is divided by sqrt(k(x, x) k(z, z)), or None for none.
    """

    def __init__(
        self, kernels: Sequence[Kernel], weights: Any = None, spherical: Sequence[bool] | None = None
    ):
        self.kernels = list(kernels)
        self.weights = (
            np.full(len(self.kernels), 1.0 / len(self.kernels))
            if weights is None
            else np.asarray(weights, float)
        )
        self.spherical = (
            [False] * len(self.kernels) if spherical is None else [bool(flag) for flag in spherical]
        )

    @property
    def views(self) -> list:
        """Keys of the views that the kernel reads."""
        return list(dict.fromkeys(view for kernel in self.kernels for view in kernel.views))

    @property
    def vector_views(self) -> list:
        """Those of them whose rows are needed of both sides; ready-made matrices hold all pairs already."""
        return list(
            dict.fromkeys(
                v
                for kernel in self.kernels
                if not isinstance(kernel.statistic(), Matrices)
                for v in kernel.views
            )
        )

    def columns(self, rows: dict, ids: np.ndarray) -> Columns:
        """Columns to evaluate the kernel against.

        rows : their features, by view key. ids : (L,) columns of ready-made matrices.
        """
        return Columns(self, rows, np.asarray(ids))


class PickedRows:
    """Some rows of a kernel store by their numbers (k,) within it; nothing is read before it is asked for."""

    ndim = 3

    def __init__(self, stack: StoreRows, local: np.ndarray):
        self.stack, self.local = stack, local
        self.shape = (len(local), *stack.shape[1:])

    def entries(self, columns: np.ndarray) -> np.ndarray:
        """(k, columns, M)."""
        return self.stack.entries(self.stack.start + self.local, columns)

    def __getitem__(self, part: slice) -> PickedRows:
        return PickedRows(self.stack, self.local[part])


def pick(rows: dict, local: np.ndarray) -> dict:
    """The given rows (k,) of every view, of kernel stores too."""
    return {
        view: PickedRows(array, local) if isinstance(array, StoreRows) else array[local]
        for view, array in rows.items()
    }


def _diagonal(kernel: Kernel, rows: dict) -> np.ndarray:
    statistic = kernel.statistic()
    return np.asarray(kernel.profile(statistic.diagonal(statistic.prepare(rows))), np.float64)


class Columns:
    """L columns of a combined kernel, prepared once and met by any number of rows."""

    def __init__(self, kernel: CombinedKernel, rows: dict, ids: np.ndarray):
        self.ids = ids
        gates = [m if spherical else NO_GATE for m, spherical in enumerate(kernel.spherical)]
        used = np.flatnonzero(kernel.weights)
        self.families = group([kernel.kernels[m] for m in used], [gates[m] for m in used], join=True)
        self.weights = [kernel.weights[used[family.members]] for family in self.families]
        vectors = {view: rows[view] for view in kernel.vector_views}
        self.centers = row_centers(vectors)
        self.tabulated = len(used) * len(ids) > WORTH_A_TABLE
        self.prepared: list[Any] = []
        self.gates: list[Any] = []
        for family in self.families:
            is_stack = isinstance(family.statistic, Matrices)
            self.prepared.append(
                None if is_stack else family.statistic.prepare(vectors, centers=self.centers)
            )
            self.gates.append(
                1.0 if family.gate == NO_GATE else gate_of_diagonal(_diagonal(family.kernels[0], vectors))
            )

    def matrix(self, rows: dict) -> np.ndarray:
        """(n, L) kernel values of rows by view key; of ready-made matrices rows holds the stack (n, columns,
        M).
        """
        total: Any = 0.0
        for family, weights, prepared, gate in zip(
            self.families, self.weights, self.prepared, self.gates, strict=True
        ):
            if prepared is None:
                total = total + self._stack_values(rows[family.statistic.view], family, weights)
                continue
            statistic = family.statistic
            own = statistic.prepare(rows, centers=self.centers)
            bound = statistic.bound(max(statistic.largest(own), statistic.largest(prepared)))
            values = family.combined(weights, bound, self.tabulated)(
                np.asarray(statistic.pairs(own, prepared), np.float64)
            )
            if family.gate != NO_GATE:
                values = values * gate_of_diagonal(_diagonal(family.kernels[0], rows))[:, None] * gate
            total = total + values
        return total

    def _stack_values(self, stack: Any, family: Family, weights: np.ndarray) -> np.ndarray:
        index = [kernel.index for kernel in family.kernels]
        if isinstance(stack, np.ndarray):
            return stack[:, self.ids][:, :, index] @ weights
        if isinstance(stack, StoreRows):
            stack = PickedRows(stack, np.arange(len(stack)))
        return stack.entries(self.ids)[:, :, index] @ weights

    def products(self, rows: dict, right: np.ndarray) -> np.ndarray:
        """(n, c) kernel values (n, L) times right (L, c), a block of rows at a time."""
        out = np.empty((next(iter(rows.values())).shape[0], right.shape[1]))
        for part, values in self._blocks(rows):
            out[part] = values @ right
        return out

    def values(self, rows: dict, dtype: Any = np.float64) -> np.ndarray:
        """(n, L) kernel values in a dtype; computed in float64, a block of rows at a time."""
        out = np.empty((next(iter(rows.values())).shape[0], len(self.ids)), dtype)
        for part, values in self._blocks(rows):
            out[part] = values
        return out

    def _blocks(self, rows: dict) -> Iterator[tuple[slice, np.ndarray]]:
        """Parts of the rows, and their kernel values with all columns."""
        n = next(iter(rows.values())).shape[0]
        depth = max((a.shape[2] for a in rows.values() if getattr(a, "ndim", 2) == 3), default=1)
        step = max(1, BLOCK_BYTES // (8 * max(len(self.ids), 1) * depth))
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            yield part, self.matrix({view: array[part] for view, array in rows.items()})
