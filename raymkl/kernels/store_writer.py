"""Writing kernel stores (see `store` for what they are): block by block, out of matrices or out of kernels
and data.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from ..data.progress import rows_written
from ..data.store import (
    COLUMN,
    DESCRIPTION,
    DTYPES,
    FORMAT,
    MAX_TENSOR_VALUES,
    KernelStore,
    file_name,
    is_store,
)
from ..data.views import n_rows, view_of
from .base import Kernel, row_centers
from .pairs.families import group
from .pairs.statistics import Matrices

# A block of rows (all kernels of it) is about this large: long enough for disks, short enough for memory.
BLOCK_BYTES = 64 * 2**20
# Kernels are evaluated in portions whose M values per pair stay in the cache of the processor while the M
# formulas take turns.
PORTION_BYTES = 2 * 2**20


def write_store(
    path: str | os.PathLike,
    matrices_or_kernels: Any,
    X: Any = None,
    *,
    block_rows: int | None = None,
    dtype: Any = np.float32,
    progress: Callable[[int, int], Any] | bool | None = None,
) -> KernelStore:
    """Write kernels (n, n, M) to a new directory, one block of rows after the other.

    The directory appears under its name when it is whole: it is written next to it, under another name that
    begins with a dot.

    Kernels with a formula are evaluated in float64, each pair statistic once for all kernels that share it,
    in square tiles of rows. The tile of rows a and b is computed as k(a, b) with a before b whichever of the
    two is being written, and mirrored for the other, so K[i, j] and K[j, i] come out of the same computation:
    they are equal where the same computation gives the same bits twice (all kernels of raymkl do), and within
    1e-6 relative where it does not (e.g. threads of a `Custom` function that sum in varying order). Matrices
    are stored as they are given and should be symmetric.

    Parameters
    ----------
    path : str or path
        The directory to make. It must not exist, or be empty.
    matrices_or_kernels : array of shape (n, n, M) or (n, n), or list
        Of M matrices (n, n) (anything with rows to slice, such as `np.memmap`, is read block by block), or of
        M kernels, which may include `Precomputed` ones.
    X : any container that the kernels take
        The n examples; only with kernels.
    block_rows : int or None
        Rows per file; by default as many as make about 64 MB. While writing, one block (block_rows, n, M) of
        the given dtype is in memory, with the pair statistics (block_rows, n) in float64 of one family of
        kernels or 64 MB, whichever is more.
    dtype : dtype
        float32 or float64.
    progress : callable, False or None
        None shows a line of text on stderr if that is a terminal; False shows nothing; a function is called
        as progress(rows_done, n) after every block.

    Returns
    -------
    store : KernelStore
        The store, open.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from raymkl import MKLClassifier, kernels
    >>> X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = kernels.write_store(f"{folder}/rbf.store", kernels.rbf([0.1, 1.0]), X, progress=False)
    ...     clf = MKLClassifier(kernels="precomputed", engine="local").fit(f"{folder}/rbf.store", y)
    >>> store.shape, clf.kernel_weights_.shape
    ((40, 40, 2), (2,))
    """
    target = Path(path).resolve()
    dtype = np.dtype(dtype)
    if dtype.name not in DTYPES:
        raise ValueError(f"dtype must be one of {DTYPES}, got {dtype.name}")
    if block_rows is not None and (
        isinstance(block_rows, bool) or not isinstance(block_rows, int | np.integer) or block_rows < 1
    ):
        raise ValueError(f"block_rows must be a positive integer or None, got {block_rows!r}")
    report = _reporter(progress, target.name)
    _refuse_to_overwrite(target)
    source = _source(matrices_or_kernels, X)
    n, depth = source.n, source.depth
    if n * depth > MAX_TENSOR_VALUES:
        raise ValueError(
            f"{n} rows x {depth} kernels exceed the {MAX_TENSOR_VALUES} values that Arrow allows in the "
            "tensor of one row"
        )
    if block_rows is None:
        block_rows = max(1, BLOCK_BYTES // (n * depth * dtype.itemsize))
    block_rows = min(int(block_rows), n)
    source.plan(block_rows)

    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}.unfinished"
    unfinished.mkdir()
    try:
        blocks = []
        buffer = np.empty((block_rows, n, depth), dtype)
        for start in range(0, n, block_rows):
            stop = min(start + block_rows, n)
            block = buffer[: stop - start]
            with np.errstate(over="ignore"):  # found by the next line, which says where
                source.fill(start, stop, block)
            _check_finite(block, start, source.names)
            file = unfinished / file_name(start, stop)
            _write_block(file, block)
            blocks.append({"start": start, "stop": stop, "bytes": file.stat().st_size})
            report(stop, n)
        description = {
            "format": FORMAT,
            "n_rows": n,
            "n_kernels": depth,
            "dtype": dtype.name,
            "names": source.names,
            "blocks": blocks,
        }
        (unfinished / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
        _refuse_to_overwrite(target)  # somebody else may have been faster
        unfinished.rename(target)
    except BaseException:  # also an interrupt from the keyboard: half a store is of no use
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return KernelStore(target)


def _refuse_to_overwrite(target: Path) -> None:
    if target.is_dir():
        if any(target.iterdir()):
            what = "already a kernel store" if is_store(target) else "a directory with other files"
            raise FileExistsError(f"{target} is {what}; choose another path, or remove it first")
    elif target.exists():
        raise FileExistsError(f"{target} is a file; a kernel store is a directory of its own")


def _reporter(progress: Any, name: str) -> Callable[[int, int], Any]:
    """The function to call after every block."""
    if callable(progress):
        return progress
    if progress is not None and progress is not False:
        raise TypeError(
            f"progress must be None, False or a function of (rows_done, n_rows), got {progress!r}"
        )
    return rows_written(name) if progress is None else lambda done, total: None


def _write_block(file: Path, block: np.ndarray) -> None:
    """One Arrow file of the tensors block[0], block[1], ..., without a copy in memory.

    block : (rows, n, M), contiguous.
    """
    kind = pa.from_numpy_dtype(block.dtype)
    values = pa.Array.from_buffers(kind, block.size, [None, pa.py_buffer(block)])
    storage = pa.FixedSizeListArray.from_arrays(values, block[0].size)
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(kind, block.shape[1:]), storage)
    batch = pa.record_batch([tensors], names=[COLUMN])
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def _check_finite(block: np.ndarray, first_row: int, names: Sequence[str] | None) -> None:
    finite = np.isfinite(block)
    if not finite.all():
        row, column, kernel = (int(i) for i in np.unravel_index(np.argmin(finite), block.shape))
        value = block[row, column, kernel]
        what = "NaN" if np.isnan(value) else f"infinite, or too large for {block.dtype.name},"
        name = f"kernel {kernel}" if names is None else f"kernel {kernel}, {names[kernel]},"
        raise ValueError(f"{name} is {what} at row {first_row + row}, column {column}")


# -- what is written: sources of blocks of rows ----------------------------------------------------


def _source(matrices_or_kernels: Any, X: Any) -> _StackRows | _MatrixRows | _FormulaRows:
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
        return _FormulaRows(parts, X)
    if X is not None:
        raise ValueError("X is only for kernels with a formula; these are matrices already")
    return _StackRows(parts) if hasattr(given, "shape") else _MatrixRows(parts)


def _real(values: Any, what: str) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{what} must hold real numbers, but has dtype {values.dtype}")
    return values


class _StackRows:
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


class _MatrixRows:
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


class _FormulaRows:
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
        where = "X" if key is None else f"view {view_of(key)!r} of X"
        raise ValueError(
            f"{where} contains NaN or infinity in row {row}; missing and infinite values must be dealt with "
            "first"
        )
