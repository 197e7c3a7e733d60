"""Ready-made matrices in a shard: its rows of stacks (n, n_total, M), in memory or in a kernel store.

All that a round wants of M matrices is far smaller than they are, so it is made where they lie: the part of a
working set's Hessian and of the change of its gradients that belongs to own rows. What was found for the
change is not computed again when the gradients of all rows follow it.
"""

from __future__ import annotations

import numpy as np

from ...data.store import StoreRows
from ...kernels.loops.vectors import accumulate_stack, combine_stack
from ...kernels.pairs.stacks import add_stored, combine_stored
from .threads import RowThreads

Stack = np.ndarray | StoreRows
# A step of a head is a multiple of the change that was asked for, to this part of it (what differs is
# rounding).
SAME_STEP = 1e-12


class ShardStacks:
    """Works on stacks whose rows are the examples first <= i < first + n; `s` tells one stack from
    another.
    """

    def __init__(self, first: int, n: int, threads: RowThreads):
        self.first, self.n, self.threads = first, n, threads
        self.buffers: dict[int, np.ndarray] = {}
        self.changes: list[tuple] = []

    def hessian(
        self,
        s: int,
        stack: Stack,
        ids: np.ndarray,
        columns: np.ndarray,
        matrices: np.ndarray,
        weights: np.ndarray,
    ) -> np.ndarray:
        """(own ids, columns) of the sum of some matrices with the given weights, (R,) both; good until the
        next call.
        """
        size = len(ids) * len(columns)
        if s not in self.buffers or self.buffers[s].size < size:
            self.buffers[s] = np.empty(size)  # fresh pages in every round would cost more than filling them
        out, rows = self.buffers[s][:size].reshape(len(ids), len(columns)), ids - self.first

        def combine(start: int, stop: int) -> None:
            if isinstance(stack, StoreRows):
                combine_stored(stack, ids[start:stop], columns, matrices, weights, out[start:stop])
            else:
                combine_stack(stack, rows, columns, matrices, weights, out, start, stop)

        self.threads.split(len(ids), combine, cost=float(size) * len(weights))
        return out

    def change(
        self,
        s: int,
        stack: Stack,
        ids: np.ndarray,
        columns: np.ndarray,
        matrices: np.ndarray,
        delta: np.ndarray,
    ) -> np.ndarray:
        """(own ids, R) sum_k delta[k] K[i, columns[k]] of some matrices; it is remembered until `forget`."""
        used = np.flatnonzero(delta)
        columns, delta = columns[used], delta[used]
        # What is read of a store to change some rows is all that is needed to change all of them.
        rows = np.arange(self.n) if isinstance(stack, StoreRows) else ids - self.first
        sums = self._sums(stack, rows, columns, matrices, delta)
        self.changes.append((s, rows, columns, np.array(matrices), delta, sums))
        return sums[ids - self.first] if isinstance(stack, StoreRows) else sums

    def add(
        self,
        s: int,
        stack: Stack,
        columns: np.ndarray,
        matrices: np.ndarray,
        weights: np.ndarray,
        out: np.ndarray,
    ) -> None:
        """out[i, r] += sum_k weights[k] K[i, columns[k], matrices[r]] for all own rows; what is known of it
        is not computed.
        """
        rest = np.ones(self.n, bool)
        known = self._known(s, columns, matrices, weights)
        if known is not None:
            rows, sums = known
            out[rows] += sums
            rest[rows] = False
        rows = np.flatnonzero(rest)
        if len(rows):
            out[rows] += self._sums(stack, rows, columns, matrices, weights)

    def diagonal(self, stack: Stack) -> np.ndarray:
        """(own rows, M) diagonal entries of all matrices."""
        rows = np.arange(self.n)
        return stack.diagonal() if isinstance(stack, StoreRows) else stack[rows, self.first + rows]

    def forget(self) -> None:
        """The changes that were asked for have been made."""
        self.changes = []

    def _sums(
        self, stack: Stack, rows: np.ndarray, columns: np.ndarray, matrices: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """(rows, R) sums over columns. rows : places among the own rows; of a store all of them."""
        out = np.zeros((len(rows), len(matrices)))

        def add(start: int, stop: int) -> None:
            if isinstance(stack, StoreRows):
                add_stored(stack, columns, matrices, weights, out, start, stop)
            else:
                accumulate_stack(stack, rows, columns, matrices, weights, out, start, stop)

        self.threads.split(len(rows), add, cost=float(out.size) * len(columns))
        return out

    def _known(
        self, s: int, columns: np.ndarray, matrices: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """(own rows, sums) of which the change of this step is known, or None."""
        for other, rows, changed, among, delta, sums in self.changes:
            if other == s and np.array_equal(changed, columns) and np.array_equal(among, matrices):
                factor = (weights @ delta) / (delta @ delta)
                if np.abs(weights - factor * delta).max() <= SAME_STEP * np.abs(weights).max():
                    return rows, factor * sums
        return None
