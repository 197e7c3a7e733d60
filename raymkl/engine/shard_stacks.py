"""Ready-made matrices in a shard: its rows of stacks (n, n_total, M), in memory or in a kernel store.

All that a round wants of M matrices is far smaller than they are, so it is made where they lie: the part of a working set's Hessian
and of the change of its gradients that belongs to own rows. What was found for the change is not computed again when the gradients
of all rows follow it.
"""

from __future__ import annotations

import numpy as np

from ..kernels.store import StoreRows
from .parallel import RowThreads

# A step of a head is a multiple of the change that was asked for, to this part of it (what differs is rounding).
SAME_STEP = 1e-12


class ShardStacks:
    """Works on stacks whose rows are the examples first <= i < first + n; `s` tells one stack from another."""

    def __init__(self, first: int, n: int, threads: RowThreads):
        self.first, self.n, self.threads = first, n, threads
        self.buffers: dict[int, np.ndarray] = {}
        self.stored_block: tuple | None = None
        self.changes: list[tuple] = []

    def hessian(
        self, s: int, stack: np.ndarray | StoreRows, ids: np.ndarray, columns: np.ndarray, matrices: np.ndarray, weights: np.ndarray
    ):
        """(own ids, columns) of the sum of some matrices with the given weights, (R,) both; good until the next call."""
        from ..kernels.compiled import combine_stack

        stack, rows, places = self._places(s, stack, ids, columns)
        size = len(rows) * len(places)
        if s not in self.buffers or self.buffers[s].size < size:
            self.buffers[s] = np.empty(size)  # fresh pages in every round would cost more than filling them
        out = self.buffers[s][:size].reshape(len(rows), len(places))
        self.threads.split(
            len(rows),
            lambda start, stop: combine_stack(stack, rows, places, matrices, weights, out, start, stop),
            cost=float(size) * len(weights),
        )
        return out

    def change(self, s: int, stack: np.ndarray | StoreRows, ids: np.ndarray, columns: np.ndarray, matrices: np.ndarray, delta: np.ndarray):
        """(own ids, R) sum_k delta[k] K[i, columns[k]] of some matrices; it is remembered until `forget`."""
        used = np.flatnonzero(delta)
        block, rows, places = self._places(s, stack, ids, columns)
        out = self._sums(block, rows, places[used], matrices, delta[used])
        self.changes.append((s, np.array(ids), columns[used], np.array(matrices), delta[used], out))
        return out

    def add(self, s: int, stack: np.ndarray, columns: np.ndarray, matrices: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
        """out[i, r] += sum_k weights[k] K[i, columns[k], matrices[r]] for all own rows; what is known of it is not computed."""
        rest = np.ones(self.n, bool)
        known = self._known(s, columns, matrices, weights)
        if known is not None:
            ids, sums = known
            out[ids - self.first] += sums
            rest[ids - self.first] = False
        rows = np.flatnonzero(rest)
        if len(rows):
            out[rows] += self._sums(stack, rows, columns, matrices, weights)

    def forget(self) -> None:
        """The changes that were asked for have been made."""
        self.changes = []

    def _sums(self, stack: np.ndarray, rows: np.ndarray, columns: np.ndarray, matrices: np.ndarray, weights: np.ndarray) -> np.ndarray:
        from ..kernels.compiled import accumulate_stack

        out = np.zeros((len(rows), len(matrices)))
        self.threads.split(
            len(rows),
            lambda start, stop: accumulate_stack(stack, rows, columns, matrices, weights, out, start, stop),
            cost=float(out.size) * len(columns),
        )
        return out

    def _known(self, s: int, columns: np.ndarray, matrices: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """(ids, sums) for own rows of which the change of this step is known, or None."""
        for other, ids, changed, among, delta, sums in self.changes:
            if other == s and np.array_equal(changed, columns) and np.array_equal(among, matrices):
                factor = (weights @ delta) / (delta @ delta)
                if np.abs(weights - factor * delta).max() <= SAME_STEP * np.abs(weights).max():
                    return ids, factor * sums
        return None

    def _places(self, s: int, stack: np.ndarray | StoreRows, ids: np.ndarray, columns: np.ndarray):
        """A stack (rows, columns, M) in memory and where the given ones are in it. Of a store it is the block that was read last."""
        if not isinstance(stack, StoreRows):
            return stack, ids - self.first, columns
        known = self.stored_block
        if known is None or known[0] != s or not (np.array_equal(known[1], ids) and np.array_equal(known[2], columns)):
            self.stored_block = known = None  # before the next one is read
            self.stored_block = known = (s, np.array(ids), np.array(columns), stack.entries(ids, columns))
        return known[3], np.arange(len(ids)), np.arange(len(columns))
