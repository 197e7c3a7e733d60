"""Kernel stores: ready-made kernels (n, n, M) in a directory, for those that exceed memory (8,000 rows x 50 kernels: 12.8 GB).

    store.json                    format version, n_rows, n_kernels, dtype, row ranges and sizes of the block files, names of the kernels
    rows-000000-000512.arrow      an Arrow IPC file: one record batch with one column `kernels`, one tensor (n, M) per row
    rows-000512-001024.arrow      ...

The column's type is `fixed_shape_tensor(dtype, [n, M])`, so that the file bytes of row i are K[i, :, :] in C order: all kernels of
row i against all columns, one column after the other. A range of columns of one row is therefore one contiguous read, and whole
rows of a file are one read for all of them. Any Arrow implementation reads the files:

    pa.ipc.open_file("rows-000000-000512.arrow").read_all()["kernels"].chunk(0).to_numpy_ndarray()    # (512, n, M)

`write_store` makes a store out of matrices, or out of kernels and data; `KernelStore` reads parts of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from .base import Kernel, row_centers
from .families import group
from .statistics import Matrices
from .views import n_rows, view_of

FORMAT = 1
DESCRIPTION = "store.json"
COLUMN = "kernels"
DTYPES = ("float32", "float64")
# A block of rows (all kernels of it) is about this large: long enough for disks, short enough for memory.
BLOCK_BYTES = 64 * 2**20
# Kernels are evaluated in portions whose M values per pair stay in the cache of the processor while the M formulas take turns.
PORTION_BYTES = 2 * 2**20
# Stores of many small files must not use up the process's file descriptors (often 1024).
MAX_OPEN_FILES = 128
# Arrow counts the values of one tensor in 32 bits.
MAX_TENSOR_VALUES = 2**31 - 1


# -- reading ----------------------------------------------------------------------------------------------------------


# Bytes of a store that are in memory at once while columns are added up.
READ_BYTES = 32 * 2**20


def is_store(path: Any) -> bool:
    """Whether `path` is the path of a directory that calls itself a kernel store (`KernelStore` says whether it is a sound one)."""
    if not isinstance(path, str | os.PathLike):
        return False
    try:
        return os.path.isfile(os.path.join(path, DESCRIPTION))
    except (OSError, TypeError, ValueError):  # e.g. a path of bytes, or with a null character
        return False


class _BlockFile:
    """An open block file. It closes when nobody refers to it any more, so never under the hands of a thread that reads."""

    def __init__(self, path: Path, data_offset: int):
        self.path = path
        self.data_offset = data_offset
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self):
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def read_into(self, target: np.ndarray, offset: int) -> None:
        """Fill the contiguous array `target` with the bytes from `offset` of the tensors on; several threads may do so at once."""
        remaining = memoryview(target.reshape(-1).view(np.uint8))
        position = self.data_offset + offset
        while remaining:  # one call gives 2 GB at most, and may give less
            count = os.preadv(self.descriptor, [remaining], position)
            if count == 0:
                raise ValueError(f"the kernel store's file {self.path} ends before its data do: it has been cut since the store was opened")
            remaining = remaining[count:]
            position += count


class KernelStore:
    """Ready-made kernels on disk, of shape (n, n, M): parts are read when they are asked for, and nothing stays in memory.

    Reads are plain file reads at the right place and not memory maps, so that a process does not grow with the pages it has touched.
    Several threads may read at once. Pickling takes the path along and nothing else; files open at the first read, also after `close`.

    Parameters
    ----------
    path : the directory. FileNotFoundError when it, its description or one of its files is not there; ValueError when the
        description cannot be used (damaged, or of a later format) or a file has another size than it was written with.

    Attributes
    ----------
    path : pathlib.Path, absolute. shape : (n, n, M). ndim : 3. dtype : np.dtype. names : (M,) tuple of str, or None for plain matrices.
    row_ranges : tuple of (start, stop), the rows of each file.
    """

    ndim = 3

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path).resolve()
        description = _read_description(self.path)
        n, depth = description["n_rows"], description["n_kernels"]
        self.shape = (n, n, depth)
        self.dtype = np.dtype(description["dtype"])
        self.names = None if description.get("names") is None else tuple(description["names"])
        self.row_ranges = tuple((block["start"], block["stop"]) for block in description["blocks"])
        self._starts = np.array([start for start, _ in self.row_ranges])
        self._lock = threading.Lock()
        self._files: OrderedDict[int, _BlockFile] = OrderedDict()  # the last used at the end
        self._data_offsets: dict[int, int] = {}
        for (start, stop), block in zip(self.row_ranges, description["blocks"], strict=True):
            _check_size(self.path / _file_name(start, stop), block["bytes"])

    def __reduce__(self):
        return type(self), (str(self.path),)

    def __repr__(self) -> str:
        return f"KernelStore({str(self.path)!r}, shape={self.shape}, dtype={self.dtype.name})"

    def __enter__(self) -> KernelStore:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self):
        if hasattr(self, "_files"):
            self.close()

    @property
    def nbytes(self) -> int:
        """Bytes of all kernels, were they an array."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def close(self) -> None:
        """Close all files (those that another thread is reading from, as soon as it is done). A later read opens them again."""
        with self._lock:
            self._files.clear()

    # -- parts of the kernels -----------------------------------------------------------------------------------------

    def row_segments(self, ids: Sequence[int] | np.ndarray, start: int, stop: int) -> np.ndarray:
        """Columns start:stop of the rows `ids` (k,), in the order given: an array (k, stop - start, M) of the store's dtype."""
        ids = self._checked_ids(ids, "row")
        start, stop = self._checked_range(start, stop)
        segments = np.empty((len(ids), stop - start, self.shape[2]), self.dtype)
        if segments.size == 0:
            return segments
        blocks = self._blocks_of(ids)
        if stop - start == self.shape[1]:
            # Whole rows that follow each other in a file are contiguous there: one read for each run of them.
            breaks = 1 + np.flatnonzero((np.diff(ids) != 1) | (np.diff(blocks) != 0))
        else:
            breaks = np.arange(1, len(ids))
        for first, last in pairwise([0, *breaks.tolist(), len(ids)]):
            self._read(int(blocks[first]), int(ids[first]), start, segments[first:last])
        return segments

    def entries(self, rows: Sequence[int] | np.ndarray, columns: Sequence[int] | np.ndarray) -> np.ndarray:
        """K[rows][:, columns]: an array (len(rows), len(columns), M). Row by row, for working sets and not for large parts."""
        rows, columns = self._checked_ids(rows, "row"), self._checked_ids(columns, "column")
        picked = np.empty((len(rows), len(columns), self.shape[2]), self.dtype)
        if picked.size == 0:
            return picked
        start, stop = int(columns.min()), int(columns.max()) + 1
        segment = np.empty((1, stop - start, self.shape[2]), self.dtype)
        for position, (row, block) in enumerate(zip(rows.tolist(), self._blocks_of(rows).tolist(), strict=True)):
            self._read(block, row, start, segment)
            np.take(segment[0], columns - start, axis=0, out=picked[position])
        return picked

    def diagonal(self, start: int, stop: int) -> np.ndarray:
        """K[i, i] of all kernels for start <= i < stop: an array (stop - start, M)."""
        start, stop = self._checked_range(start, stop)
        rows = np.arange(start, stop)
        values = np.empty((len(rows), self.shape[2]), self.dtype)
        for row, block in zip(rows.tolist(), self._blocks_of(rows).tolist(), strict=True):
            self._read(block, row, row, values[row - start])
        return values

    # -- files --------------------------------------------------------------------------------------------------------

    def _read(self, block: int, row: int, column: int, target: np.ndarray) -> None:
        """Fill `target` with the values from K[row, column, 0] on, all of them in file number `block`."""
        _, n, depth = self.shape
        first_row = self.row_ranges[block][0]
        self._file(block).read_into(target, ((row - first_row) * n + column) * depth * self.dtype.itemsize)

    def _file(self, block: int) -> _BlockFile:
        with self._lock:
            file = self._files.get(block)
            if file is None:
                start, stop = self.row_ranges[block]
                path = self.path / _file_name(start, stop)
                if block not in self._data_offsets:
                    self._data_offsets[block] = _find_data(path, stop - start, self.shape[1:], self.dtype)
                file = self._files[block] = _BlockFile(path, self._data_offsets[block])
                if len(self._files) > MAX_OPEN_FILES:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(block)
            return file

    def _blocks_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _checked_ids(self, ids: Any, what: str) -> np.ndarray:
        ids = np.asarray(ids)
        if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
            raise TypeError(
                f"{what}s of a kernel store are asked for by a one-dimensional list of integers, got {ids.dtype} of shape {ids.shape}"
            )
        if ids.size and (ids.min() < 0 or ids.max() >= self.shape[0]):
            bad = ids[(ids < 0) | (ids >= self.shape[0])][0]
            raise IndexError(f"{what} {bad} is not in a kernel store of {self.shape[0]} rows and columns")
        return ids.astype(np.int64, copy=False)  # differences of unsigned numbers would wrap around

    def _checked_range(self, start: int, stop: int) -> tuple[int, int]:
        if not 0 <= start <= stop <= self.shape[0]:
            raise IndexError(f"the range {start}:{stop} is not within 0:{self.shape[0]}")
        return int(start), int(stop)


def _file_name(start: int, stop: int) -> str:
    return f"rows-{start:06d}-{stop:06d}.arrow"


def _read_description(path: Path) -> dict:
    """What store.json says, checked to be whole and consistent."""
    file = path / DESCRIPTION
    if not path.exists():
        raise FileNotFoundError(f"there is no kernel store at {path}")
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not a kernel store: it has no {DESCRIPTION}")
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
        version = description["format"]
        if isinstance(version, int) and version > FORMAT:
            raise ValueError(f"it has format {version}, of a later version of raymkl; this one reads formats up to {FORMAT}")
        if version != FORMAT:
            raise ValueError(f"it has the unknown format {version!r}")
        _check_description(description)
    except KeyError as error:
        raise ValueError(f"{file} cannot be used: {error} is missing") from error
    except (TypeError, ValueError) as error:  # what is not JSON is a ValueError too
        raise ValueError(f"{file} cannot be used: {error}") from error
    return description


def _check_description(description: Mapping) -> None:
    n, depth, blocks, names = description["n_rows"], description["n_kernels"], description["blocks"], description.get("names")
    numbers = [n, depth, *(block[key] for block in blocks for key in ("start", "stop", "bytes"))]
    if not all(type(number) is int for number in numbers) or n < 1 or depth < 1:
        raise ValueError("numbers of rows, kernels and bytes must be positive integers")
    if description["dtype"] not in DTYPES:
        raise ValueError(f"dtype {description['dtype']!r} is none of {DTYPES}")
    edges = [0, *(block["stop"] for block in blocks)]
    if [block["start"] for block in blocks] != edges[:-1] or edges[-1] != n or any(a >= b for a, b in pairwise(edges)):
        raise ValueError(f"the row ranges of its files do not cover the rows 0:{n} once each, in order")
    if names is not None and (len(names) != depth or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"it must have {depth} names, one for each kernel")


def _check_size(file: Path, size: int) -> None:
    try:
        found = file.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(f"the kernel store {file.parent} is incomplete: {file.name} is missing") from None
    if found != size:
        raise ValueError(f"the kernel store {file.parent} is damaged: {file.name} has {found} bytes, but {size} were written")


def _find_data(file: Path, rows: int, shape: tuple[int, int], dtype: np.dtype) -> int:
    """Where in a block file the tensors begin, in bytes. The file is mapped for the time of the call, and hardly read."""
    expected = pa.fixed_shape_tensor(pa.from_numpy_dtype(dtype), shape)
    try:
        with pa.memory_map(str(file)) as source:
            whole = source.read_buffer()
            reader = pa.ipc.open_file(whole)
            if reader.schema.names != [COLUMN] or reader.schema.field(0).type != expected or reader.num_record_batches != 1:
                raise ValueError(f"it must hold one record batch with the column {COLUMN!r} of type {expected}, but has {reader.schema}")
            column = reader.get_batch(0).column(0)
            if len(column) != rows or column.null_count:
                raise ValueError(f"it must hold {rows} rows without nulls, but has {len(column)} with {column.null_count} nulls")
            # Arrow's buffers are windows into the map unless they are compressed or of another byte order.
            data = column.storage.values.buffers()[1]
            offset = data.address - whole.address
            if not 0 <= offset <= whole.size - rows * shape[0] * shape[1] * dtype.itemsize:
                raise ValueError("its data are compressed, or not stored as one piece")
            return offset
    except FileNotFoundError:
        raise
    except (pa.ArrowException, ValueError, OSError) as error:  # Arrow reports bad metadata as OSError
        raise ValueError(f"the kernel store's file {file} cannot be used: {error}") from error


# -- writing ----------------------------------------------------------------------------------------------------------


def write_store(
    path: str | os.PathLike,
    matrices_or_kernels: Any,
    X: Any = None,
    *,
    block_rows: int | None = None,
    dtype: Any = np.float32,
    progress: Callable[[int, int], Any] | bool | None = None,
) -> KernelStore:
    """Write kernels (n, n, M) to a new directory, one block of rows after the other, and return the open store.

    The directory appears under its name when it is whole: it is written next to it, under another name that begins with a dot.

    Kernels with a formula are evaluated in float64, each pair statistic once for all kernels that share it, in square tiles of rows. The
    tile of rows a and b is computed as k(a, b) with a before b whichever of the two is being written, and mirrored for the other, so
    K[i, j] and K[j, i] come out of the same computation: they are equal where the same computation gives the same bits twice (all
    kernels of raymkl do), and within 1e-6 relative where it does not (e.g. threads of a `Custom` function that sum in varying order).
    Matrices are stored as they are given and should be symmetric.

    Parameters
    ----------
    path : the directory to make. It must not exist, or be empty.
    matrices_or_kernels : an array (n, n, M) or (n, n), or a list of M matrices (n, n) (anything with rows to slice, such as
        `np.memmap`, is read block by block), or a list of M kernels, which may include `Precomputed` ones.
    X : the n examples in any container that the kernels take; only with kernels.
    block_rows : rows per file; by default as many as make about 64 MB. While writing, one block (block_rows, n, M) of the given
        dtype is in memory, with the pair statistics (block_rows, n) in float64 of one family of kernels or 64 MB, whichever is more.
    dtype : float32 or float64.
    progress : None shows a line of text on stderr if that is a terminal; False shows nothing; a function is called as
        progress(rows_done, n) after every block.
    """
    target = Path(path).resolve()
    dtype = np.dtype(dtype)
    if dtype.name not in DTYPES:
        raise ValueError(f"dtype must be one of {DTYPES}, got {dtype.name}")
    if block_rows is not None and (isinstance(block_rows, bool) or not isinstance(block_rows, int | np.integer) or block_rows < 1):
        raise ValueError(f"block_rows must be a positive integer or None, got {block_rows!r}")
    report = _reporter(progress, target.name)
    _refuse_to_overwrite(target)
    source = _source(matrices_or_kernels, X)
    n, depth = source.n, source.depth
    if n * depth > MAX_TENSOR_VALUES:
        raise ValueError(f"{n} rows x {depth} kernels exceed the {MAX_TENSOR_VALUES} values that Arrow allows in the tensor of one row")
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
            file = unfinished / _file_name(start, stop)
            _write_block(file, block)
            blocks.append({"start": start, "stop": stop, "bytes": file.stat().st_size})
            report(stop, n)
        description = {"format": FORMAT, "n_rows": n, "n_kernels": depth, "dtype": dtype.name, "names": source.names, "blocks": blocks}
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
        raise TypeError(f"progress must be None, False or a function of (rows_done, n_rows), got {progress!r}")
    if progress is False or sys.stderr is None or not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        print(f"\r{name}: {done} of {total} rows ({done / total:.0%})", end="\n" if done == total else "", file=sys.stderr, flush=True)

    return show


def _write_block(file: Path, block: np.ndarray) -> None:
    """One Arrow file of the tensors block[0], block[1], ..., without a copy in memory. block : (rows, n, M), contiguous."""
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


# -- what is written: sources of blocks of rows -----------------------------------------------------------------------


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
                "a list of kernels or a list of matrices is needed, not both in one; a matrix can be a view of X (see Precomputed)"
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
            raise ValueError(f"kernel matrices come in an array of shape (n, n, M) or (n, n), got shape {shape}")
        self.stack = stack
        self.n = shape[0]
        self.depth = shape[2] if len(shape) == 3 else 1

    def plan(self, block_rows: int) -> None:
        """Called once, before the first `fill`, with the number of rows that blocks will have."""

    def fill(self, start: int, stop: int, block: np.ndarray) -> None:
        """block[...] = K[start:stop]. block : (stop - start, n, M)."""
        block[...] = _real(self.stack[start:stop], "the array of kernel matrices").reshape(block.shape)


class _MatrixRows:
    """Rows of several matrices (n, n), each an array or something that gives arrays when its rows are sliced."""

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
                raise ValueError(f"matrix {number} has shape {tuple(matrix.shape)}; a list of kernel matrices needs shape {wanted}")

    def plan(self, block_rows: int) -> None:
        pass

    def fill(self, start: int, stop: int, block: np.ndarray) -> None:
        step = max(1, PORTION_BYTES // block[0].nbytes)  # the values of a pair lie side by side: see PORTION_BYTES
        for row in range(start, stop, step):
            part = block[row - start : row - start + step]
            for number, matrix in enumerate(self.matrices):
                part[:, :, number] = _real(matrix[row : row + len(part)], f"matrix {number}")


class _FormulaRows:
    """Rows of kernels over examples. Pair statistics are computed in *bands* of rows, made of square tiles (see `write_store`).

    A band is as high as a block, or several blocks: kernels by the dozen make blocks of few rows, and tiles that small would be slow.
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
                raise ValueError(f"{kernel!r} needs its matrix of shape ({self.n}, {self.n}), but the view has shape {shape}")

    def plan(self, block_rows: int) -> None:
        formulas = sum(not isinstance(family.statistic, Matrices) for family in self.families)
        blocks_per_band = max(1, BLOCK_BYTES // (np.dtype(np.float64).itemsize * self.n * block_rows * max(1, formulas)))
        self.band_rows = min(self.n, block_rows * blocks_per_band)
        self.bounds = [(first, min(first + self.band_rows, self.n)) for first in range(0, self.n, self.band_rows)]
        self.tiles = [
            None if isinstance(family.statistic, Matrices) else [prepared.take(slice(*bounds)) for bounds in self.bounds]
            for family, prepared in zip(self.families, self.prepared, strict=True)
        ]
        self.bands: list[np.ndarray | None] = [None] * len(self.families)

    def fill(self, start: int, stop: int, block: np.ndarray) -> None:
        for number, family in enumerate(self.families):
            if isinstance(family.statistic, Matrices):
                stack = self.prepared[number].array
                for member, kernel in zip(family.members, family.kernels, strict=True):
                    block[:, :, member] = stack[start:stop] if stack.ndim == 2 else stack[start:stop, :, kernel.index]
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
        # A band is dropped with its last block: when a band is no more than a block, one family's is there at a time.
        self.bands[number] = band if stop < last else None
        return band[start - first : stop - first]

    def _band(self, number: int, own: int) -> np.ndarray:
        """Pair statistics (rows of band `own`, n) of one family: tile by tile, the earlier rows always on the left."""
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
                np.fill_diagonal(tile, statistic.diagonal(tiles[own]))  # known better than the pair formula gives it
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
        row = int(np.searchsorted(array.indptr, bad, side="right") - 1 if sp.issparse(array) else np.unravel_index(bad, array.shape)[0])
        where = "X" if key is None else f"view {view_of(key)!r} of X"
        raise ValueError(f"{where} contains NaN or infinity in row {row}; missing and infinite values must be dealt with first")


class StoreRows:
    """Rows start <= i < stop of a store, as the engine passes rows around: `shape` (rows, n, M), slices, nothing in memory."""

    ndim = 3

    def __init__(self, store: KernelStore, start: int = 0, stop: int | None = None):
        self.store, self.start = store, start
        self.stop = store.shape[0] if stop is None else stop
        self.dtype = store.dtype

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.stop - self.start, *self.store.shape[1:])

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, rows: slice) -> StoreRows:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError("rows of a kernel store can only be taken in one piece")
        return StoreRows(self.store, self.start + start, self.start + max(stop, start))

    def add_columns(self, ids: np.ndarray, weights: np.ndarray, out: np.ndarray, start: int, stop: int) -> None:
        """out[i, m] += sum_k weights[k] K[i, ids[k], m] for own rows start <= i < stop; out : (own rows, M).

        Kernels are symmetric, so a column is read as a row of the store, whose bytes lie together.
        """
        depth = self.store.shape[2]
        step = max(1, READ_BYTES // max(1, (stop - start) * depth * self.dtype.itemsize))
        for first in range(0, len(ids), step):
            part = slice(first, first + step)
            values = self.store.row_segments(ids[part], self.start + start, self.start + stop)
            out[start:stop] += (weights[part].astype(values.dtype) @ values.reshape(len(values), -1)).reshape(-1, depth)

    def entries(self, ids: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """(len(ids), len(columns), M) entries of rows given by their number in the store."""
        return self.store.entries(ids, columns)

    def diagonal(self) -> np.ndarray:
        """(rows, M) entries K[i, i, m] of the own rows."""
        return self.store.diagonal(self.start, self.stop)
