"""The rows of a shard: which ones they are, and all that comes one per row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.rows import row_count, take

# Rows that are summed at a time; they are in the processor's cache for both sums.
SUMMED_ROWS = 256


class OwnRows:
    """Rows first <= i < first + n of the data. Their *numbers* begin with 0, their *ids* with `first`.

    features : by view. gates : (n, J) or None. sent : (n,) whether the coordinator has a row's features.
    """

    def __init__(self, features: dict, first: int, gates: np.ndarray | None):
        """gates : (n_total, J) of all rows, or None."""
        self.features, self.first = features, first
        self.n = row_count(features)
        self.sent = np.zeros(self.n, bool)
        self.set_gates(gates)

    def set_gates(self, gates: np.ndarray | None) -> None:
        """Take the own part of gates (n_total, J)."""
        self.gates = None if gates is None else gates[self.range]

    @property
    def range(self) -> slice:
        """Of the ids."""
        return slice(self.first, self.first + self.n)

    def has(self, ids: np.ndarray) -> np.ndarray:
        """(k,) mask of those of the ids (k,) that are own rows."""
        return (ids >= self.first) & (ids < self.first + self.n)

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """Numbers of those of the ids that are own rows, in their order."""
        return ids[self.has(ids)] - self.first

    def distinct(self, *numbers: np.ndarray) -> np.ndarray:
        """Numbers in ascending order, each once.

        (The first `np.unique` of a process loads another 8 ms of numpy.)
        """
        there = np.zeros(self.n, bool)
        for some in numbers:
            there[some] = True
        return np.flatnonzero(there)

    def unsent(self, numbers: np.ndarray, views: list) -> tuple[np.ndarray, dict]:
        """Ids and features of those rows that the coordinator does not have; from now on it does."""
        new = numbers[~self.sent[numbers]]
        self.sent[new] = True
        return new + self.first, self.take(views, new)

    def take(self, views: list, numbers: np.ndarray) -> dict:
        """Features of some rows, of the given views."""
        return take({view: self.features[view] for view in views}, numbers)

    def moments(self, view: Any) -> tuple[int, np.ndarray, float]:
        """Rows, column sums (d,) and the sum of all squares of a dense view, in portions: BLAS adds those in
        the array's own dtype.
        """
        array = self.features[view]
        sums, squares = np.zeros(array.shape[1]), 0.0
        ones = np.ones(SUMMED_ROWS, array.dtype)
        for start in range(0, len(array), SUMMED_ROWS):
            part = array[start : start + SUMMED_ROWS]
            sums += ones[: len(part)] @ part
            squares += float(np.vdot(part, part))
        return self.n, sums, squares
