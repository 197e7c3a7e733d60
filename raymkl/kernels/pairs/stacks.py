"""Sums over ready-made matrices that lie in a kernel store: read a portion at a time, added up by compiled
loops.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...data.store import StoreRows
from ..loops.vectors import add_lines, combine_stack

# Bytes of a store that are in memory at once while columns are added up.
READ_BYTES = 32 * 2**20


def add_stored(
    rows: StoreRows,
    ids: np.ndarray,
    matrices: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray,
    start: int,
    stop: int,
) -> None:
    """out[i, r] += sum_k weights[k] K[i, ids[k], matrices[r]] for own rows start <= i < stop; out : (own
    rows, R).

    Kernels are symmetric, so a column is read as a row of the store, whose bytes lie together.
    """
    sums = np.zeros((stop - start) * rows.store.shape[2])
    for part in _portions(len(ids), sums.size * rows.dtype.itemsize):
        values = rows.store.row_segments(ids[part], rows.start + start, rows.start + stop)
        add_lines(values.reshape(len(values), -1), weights[part], sums)
    out[start:stop] += sums.reshape(stop - start, -1)[:, matrices]


def combine_stored(
    rows: StoreRows,
    ids: np.ndarray,
    columns: np.ndarray,
    matrices: np.ndarray,
    weights: np.ndarray,
    out: np.ndarray,
) -> None:
    """out[i, j] = sum_r weights[r] K[ids[i], columns[j], matrices[r]]; ids, columns : numbers in the
    store.
    """
    for part in _portions(len(ids), rows.store.shape[1] * rows.store.shape[2] * rows.dtype.itemsize):
        values = rows.store.row_segments(ids[part], 0, rows.store.shape[1])
        combine_stack(values, np.arange(len(values)), columns, matrices, weights, out[part], 0, len(values))


def _portions(count: int, row_bytes: int) -> Iterator[slice]:
    """Ranges of rows that are read at a time."""
    step = max(1, READ_BYTES // max(1, row_bytes))
    return (slice(first, first + step) for first in range(0, count, step))
