"""What a kernel store is written from, as blocks of rows (rows, n, M): matrices, or kernels and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..data.views import n_rows, where_of
from .base import Kernel, row_centers
from .pairs.families import group
from .pairs.statistics import Matrices

# A block of rows (all kernels of it) is about this large: long enough for disks, short enough for memory.
BLOCK_BYTES = 64 * 2**20
# Kernels are evaluated in portions whose M values per pair stay in the cache of the processor while the M
# formulas take turns.
PORTION_BYTES = 2 * 2**20


def rows_to_write(matrices_or_kernels: Any, X: Any) -> RowsToWrite:
    """The rows of what `write_store` was given."""
    given = matrices_or_kernels
    if isinstance(given, Kernel):
        raise TypeError(f"kernels come as a list, even a single one: [{given!r}]")
    if sp.issparse(given):
        raise TypeError("kernel matrices must be dense, got a sparse matrix")
    parts = given if hasattr(given, "shape") else list(given)
    if not hasattr(given, "shape") and any(isinstance(part, Kernel) for part in parts):
        if not all(isinstance(part, Kernel) for part in parts):
            raise TypeError(
                "a list of kernels or a list of matrices is needed, not both in one; a matrix can be a view "
                "of X (see Precomputed)"
            )
        if X is None:
            raise ValueError("kernels need examples: write_store(path, kernels, X)")
        return FormulaRows(parts, X)
    if X is not None:
        raise ValueError("X is only for kernels with a formula; these are matrices already")
    return StackRows(parts) if hasattr(given, "shape") else RowsOfMatrices(parts)


def _real(values: Any, what: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{what} must hold real numbers, but has dtype {values.dtype}")
    return values


class StackRows:
    """Rows of an array (n, n, M) or (n, n)."""

    names = None

    def __init__(self, stack: Any):
        shape = tuple(stack.shape)
        if len(shape) not in (2, 3) or shape[0] != shape[1] or 0 in shape:
            raise ValueError(
                f"kernel matrices come in an array of shape (n, n, M) or (n, n), got shape {shape}"
            )
        self.stack = stack
        self.n = shape[0]
        self.depth = shape[2] if len(shape) == 3 else 1

    def plan(self, block_rows: int) -> None:
        """Called once, before the first `fill`, with the number of rows that blocks will have."""

    def fill(self, start: int, stop: int, block: np.ndarray) -> None:
        """block[...] = K[start:stop]. block : (stop - start, n, M)."""
        block[...] = _real(self.stack[start:stop], "the array of kernel matrices").reshape(block.shape)


class RowsOfMatrices:
    """Rows of several matrices (n, n), each an array or something that gives arrays when its rows are
    sliced.
    """

    names = None

    def __init__(self, matrices: Sequence):
        if not matrices:
            raise ValueError("there are no kernels to write: the list is empty")
        for number, matrix in enumerate(matrices):
            if sp.issparse(matrix):
                raise TypeError(f"kernel matrices must be dense, but number {number} is a sparse matrix")
        self.matrices = [matrix if hasattr(matrix, "shape") else np.asarray(matrix) for matrix in matrices]
        self.n = self.matrices[0].shape[0] if len(self.matrices[0].shape) else 0
        self.depth = len(self.matrices)
        for number, matrix in enumerate(self.matrices):
            if tuple(matrix.shape) != (self.n, self.n) or self.n == 0:
                wanted = "(n, n)" if number == 0 else f"({self.n}, {self.n}) as the first"
                raise ValueError(
                    f"matrix {number} has shape {tuple(matrix.shape)}; a list of kernel matrices needs shape "
                    f"{wanted}"
                )

    def plan(self, block_rows: int) -> None:
        pass

    def fill(self, start: int, stop: int, block: np.ndarray) -> None:
        step = max(
            1, PORTION_BYTES // block[0].nbytes
        )  # the values of a pair lie side by side: see PORTION_BYTES
        for row in range(start, stop, step):
            part = block[row - start : row - start + step]
            for number, matrix in enumerate(self.matrices):
                part[:, :, number] = _real(matrix[row : row + len(part)], f"matrix {number}")


class FormulaRows:
    """Rows of kernels over examples. Pair statistics are computed in *bands* of rows, made of square tiles
    (see `write_store`).

    A band is as high as a block, or several blocks: kernels by the dozen make blocks of few rows, and tiles
    that small would be slow.
    """

    def __init__(self, kernels: Sequence[Kernel], X: Any):
        self.n = n_rows(X)
        self.depth = len(kernels)
        self.names = [repr(kernel) for kernel in kernels]
        if self.n == 0:
            raise ValueError("X has 0 rows; at least one example is needed")
        self.families = group(kernels)
        self.prepared = []
        for family in self.families:
            rows = family.kernels[0]._rows(X)
            if isinstance(family.statistic, Matrices):
                self._check_matrices(family, rows)
            else:
                _check_examples(rows)
            self.prepared.append(family.statistic.prepare(rows, centers=row_centers(rows)))

    def _check_matrices(self, family: Any, rows: Mapping) -> None:
        shape = rows[family.statistic.view].shape
        depth = shape[2] if len(shape) == 3 else 1
        for kernel in family.kernels:
            if len(shape) not in (2, 3) or shape[:2] != (self.n, self.n) or not 0 <= kernel.index < depth:
                raise ValueError(
                    f"{kernel!r} needs its matrix of shape ({self.n}, {self.n}), but the view has shape "
                    f"{shape}"
                )

    def plan(self, block_rows: int) -> None:
        formulas = sum(not isinstance(family.statistic, Matrices) for family in self.families)
        blocks_per_band = max(
            1, BLOCK_BYTES // (np.dtype(np.float64).itemsize * self.n * block_rows * max(1, formulas))
        )
        self.band_rows = min(self.n, block_rows * blocks_per_band)
        self.bounds = [
            (first, min(first + self.band_rows, self.n)) for first in range(0, self.n, self.band_rows)
        ]
        self.tiles = [
            None
            if isinstance(family.statistic, Matrices)
            else [prepared.take(slice(*bounds)) for bounds in self.bounds]
            for family, prepared in zip(self.families, self.prepared, strict=True)
        ]
        self.bands: list[np.ndarray | None] = [None] * len(self.families)

    def fill(self, start: int, stop: int, block: np.ndarray) -> None:
        for number, family in enumerate(self.families):
            if isinstance(family.statistic, Matrices):
                stack = self.prepared[number].array
                for member, kernel in zip(family.members, family.kernels, strict=True):
                    block[:, :, member] = (
                        stack[start:stop] if stack.ndim == 2 else stack[start:stop, :, kernel.index]
                    )
                continue
            pairs = self._statistics(number, start, stop).reshape(-1)
            values = block.reshape(-1, self.depth)
            step = max(1, PORTION_BYTES // (self.depth * block.itemsize))
            for first in range(0, len(pairs), step):
                portion = slice(first, first + step)
                for member, kernel in zip(family.members, family.kernels, strict=True):
                    values[portion, member] = kernel.profile(pairs[portion])

    def _statistics(self, number: int, start: int, stop: int) -> np.ndarray:
        """Pair statistics (stop - start, n) of one family for the rows of a block."""
        own = start // self.band_rows
        first, last = self.bounds[own]
        band = self.bands[number]
        if start == first:
            band = self._band(number, own)
        # A band is dropped with its last block: when a band is no more than a block, one family's is there at
        # a time.
        self.bands[number] = band if stop < last else None
        return band[start - first : stop - first]

    def _band(self, number: int, own: int) -> np.ndarray:
        """Pair statistics (rows of band `own`, n) of one family: tile by tile, the earlier rows always on the
        left.
        """
        statistic, tiles = self.families[number].statistic, self.tiles[number]
        first, last = self.bounds[own]
        band = np.empty((last - first, self.n))
        for other, (left, right) in enumerate(self.bounds):
            try:
                tile = statistic.pairs(tiles[min(own, other)], tiles[max(own, other)])
            except ValueError as error:
                raise ValueError(f"rows {first}:{last} against columns {left}:{right}: {error}") from error
            if other == own:
                tile = (tile + tile.T) / 2
                np.fill_diagonal(
                    tile, statistic.diagonal(tiles[own])
                )  # known better than the pair formula gives it
            band[:, left:right] = tile.T if other < own else tile
        return band


def _check_examples(rows: Mapping) -> None:
    """Raise ValueError for NaN and infinity in the examples, which compiled loops might turn into numbers."""
    for key, array in rows.items():
        numbers = array.data if sp.issparse(array) else array
        try:
            numbers = numbers.astype(np.float64) if numbers.dtype.kind == "O" else numbers
        except (TypeError, ValueError):
            continue  # text and objects, for a function of the user's
        if numbers.dtype.kind != "f" or np.isfinite(numbers).all():
            continue
        bad = int(np.argmin(np.isfinite(numbers)))
        row = int(
            np.searchsorted(array.indptr, bad, side="right") - 1
            if sp.issparse(array)
            else np.unravel_index(bad, array.shape)[0]
        )
        where = where_of(key)
        raise ValueError(
            f"{where} contains NaN or infinity in row {row}; missing and infinite values must be dealt with "
            "first"
        )


RowsToWrite = StackRows | RowsOfMatrices | FormulaRows
