"""Kernel stores: ready-made kernels (n, n, M) in a directory, for those that exceed memory (8,000 rows x 50
kernels: 12.8 GB).

    store.json                    format version, n_rows, n_kernels, dtype, row ranges and sizes of the block
                                  files, names of the kernels
    rows-000000-000512.arrow      an Arrow IPC file: one record batch with one column `kernels`, one tensor
                                  (n, M) per row
    rows-000512-001024.arrow      ...

The column's type is `fixed_shape_tensor(dtype, [n, M])`, so that the file bytes of row i are K[i, :, :] in C
order: all kernels of row i against all columns, one column after the other. A range of columns of one row is
therefore one contiguous read, and whole rows of a file are one read for all of them. Any Arrow implementation
reads the files:

    pa.ipc.open_file("rows-000000-000512.arrow").read_all()["kernels"].chunk(0).to_numpy_ndarray()    # (512,
                                                                                                      n, M)

`store_writer.write_store` makes a store out of matrices, or out of kernels and data; `KernelStore` reads
parts of it.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .store_files import BlockFile, check_size, file_name, find_data, read_description
from .store_files import is_store as is_store

# Stores of many small files must not use up the process's file descriptors (often 1024).
MAX_OPEN_FILES = 128


class KernelStore:
    """Ready-made kernels on disk, of shape (n, n, M).

    Parts are read when they are asked for, and nothing stays in memory.

    Reads are plain file reads at the right place and not memory maps, so that a process does not grow with
    the pages it has touched. Several threads may read at once. Pickling takes the path along and nothing
    else; files open at the first read, also after `close`.

    Parameters
    ----------
    path : str or path
        The directory. FileNotFoundError when it, its description or one of its files is not there; ValueError
        when the description cannot be used (damaged, or of a later format) or a file has another size than it
        was written with.

    Attributes
    ----------
    path : pathlib.Path
        Absolute.
    shape : tuple
        (n, n, M); `ndim` is 3.
    dtype : dtype
        Of the values.
    names : tuple of str, or None
        One per kernel; None for plain matrices.
    row_ranges : tuple of tuple
        The rows of each file, as (start, stop).

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from raymkl import kernels
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = kernels.write_store(f"{folder}/ones.store", np.ones((3, 3, 2)), progress=False)
    ...     print(kernels.KernelStore(f"{folder}/ones.store").diagonal(0, 1))
    [[1. 1.]]
    """

    ndim = 3

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path).resolve()
        description = read_description(self.path)
        n, depth = description["n_rows"], description["n_kernels"]
        self.shape = (n, n, depth)
        self.dtype = np.dtype(description["dtype"])
        self.names = None if description.get("names") is None else tuple(description["names"])
        self.row_ranges = tuple((block["start"], block["stop"]) for block in description["blocks"])
        self._starts = np.array([start for start, _ in self.row_ranges])
        self._lock = threading.Lock()
        self._files: OrderedDict[int, BlockFile] = OrderedDict()  # the last used at the end
        self._data_offsets: dict[int, int] = {}
        for (start, stop), block in zip(self.row_ranges, description["blocks"], strict=True):
            check_size(self.path / file_name(start, stop), block["bytes"])

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
        """Close all files (those that another thread is reading from, as soon as it is done).

        A later read opens them again.
        """
        with self._lock:
            self._files.clear()

    # -- parts of the kernels ----------------------------------------------------------------------

    def row_segments(self, ids: Sequence[int] | np.ndarray, start: int, stop: int) -> np.ndarray:
        """Columns start:stop of some rows.

        Parameters
        ----------
        ids : array-like of shape (k,)
            Numbers of rows, in any order.
        start, stop : int
            Range of columns.

        Returns
        -------
        segments : ndarray of shape (k, stop - start, M)
            In the order given, in the dtype of the store.
        """
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
        """Entries K[rows][:, columns]: row by row, for working sets and not for large parts.

        Parameters
        ----------
        rows : array-like of shape (k,)
            Numbers of rows.
        columns : array-like of shape (l,)
            Numbers of columns.

        Returns
        -------
        entries : ndarray of shape (k, l, M)
            In the dtype of the store.
        """
        rows, columns = self._checked_ids(rows, "row"), self._checked_ids(columns, "column")
        picked = np.empty((len(rows), len(columns), self.shape[2]), self.dtype)
        if picked.size == 0:
            return picked
        start, stop = int(columns.min()), int(columns.max()) + 1
        segment = np.empty((1, stop - start, self.shape[2]), self.dtype)
        for position, (row, block) in enumerate(
            zip(rows.tolist(), self._blocks_of(rows).tolist(), strict=True)
        ):
            self._read(block, row, start, segment)
            np.take(segment[0], columns - start, axis=0, out=picked[position])
        return picked

    def diagonal(self, start: int, stop: int) -> np.ndarray:
        """Entries K[i, i] of all kernels for start <= i < stop.

        Parameters
        ----------
        start, stop : int
            Range of rows.

        Returns
        -------
        values : ndarray of shape (stop - start, M)
            In the dtype of the store.
        """
        start, stop = self._checked_range(start, stop)
        rows = np.arange(start, stop)
        values = np.empty((len(rows), self.shape[2]), self.dtype)
        for row, block in zip(rows.tolist(), self._blocks_of(rows).tolist(), strict=True):
            self._read(block, row, row, values[row - start])
        return values

    # -- files -------------------------------------------------------------------------------------

    def _read(self, block: int, row: int, column: int, target: np.ndarray) -> None:
        """Fill `target` with the values from K[row, column, 0] on, all of them in file number `block`."""
        _, n, depth = self.shape
        first_row = self.row_ranges[block][0]
        self._file(block).read_into(target, ((row - first_row) * n + column) * depth * self.dtype.itemsize)

    def _file(self, block: int) -> BlockFile:
        with self._lock:
            file = self._files.get(block)
            if file is None:
                start, stop = self.row_ranges[block]
                path = self.path / file_name(start, stop)
                if block not in self._data_offsets:
                    self._data_offsets[block] = find_data(path, stop - start, self.shape[1:], self.dtype)
                file = self._files[block] = BlockFile(path, self._data_offsets[block])
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
                f"{what}s of a kernel store are asked for by a one-dimensional list of integers, got "
                f"{ids.dtype} of shape {ids.shape}"
            )
        if ids.size and (ids.min() < 0 or ids.max() >= self.shape[0]):
            bad = ids[(ids < 0) | (ids >= self.shape[0])][0]
            raise IndexError(f"{what} {bad} is not in a kernel store of {self.shape[0]} rows and columns")
        return ids.astype(np.int64, copy=False)  # differences of unsigned numbers would wrap around

    def _checked_range(self, start: int, stop: int) -> tuple[int, int]:
        if not 0 <= start <= stop <= self.shape[0]:
            raise IndexError(f"the range {start}:{stop} is not within 0:{self.shape[0]}")
        return int(start), int(stop)


class PartOfStore:
    """The kernels between some rows of a store, of shape (n, n, M), read as a `KernelStore` is.

    numbers : (n,) of these rows in the store, in any order; a row may be there twice.
    """

    ndim = 3

    def __init__(self, store: KernelStore, numbers: np.ndarray):
        self.store, self.numbers = store, np.asarray(numbers, np.int64)
        self.path, self.dtype, self.names = store.path, store.dtype, store.names
        self.shape = (len(self.numbers), len(self.numbers), store.shape[2])

    def row_segments(self, ids: Sequence[int] | np.ndarray, start: int, stop: int) -> np.ndarray:
        """Columns start:stop of the rows `ids` (k,): an array (k, stop - start, M).

        Rows of the store are read whole, one at a time.
        """
        return self.store.entries(self.numbers[ids], self.numbers[start:stop])

    def entries(self, rows: Sequence[int] | np.ndarray, columns: Sequence[int] | np.ndarray) -> np.ndarray:
        """K[rows][:, columns]: an array (len(rows), len(columns), M)."""
        return self.store.entries(self.numbers[rows], self.numbers[columns])

    def diagonal(self, start: int, stop: int) -> np.ndarray:
        """K[i, i] of all kernels for start <= i < stop: an array (stop - start, M)."""
        values = [self.store.diagonal(number, number + 1) for number in self.numbers[start:stop].tolist()]
        return np.concatenate(values) if values else np.empty((0, self.shape[2]), self.dtype)


class StoreRows:
    """Rows start <= i < stop of a store, as the engine passes rows around: `shape` (rows, n, M), slices,
    nothing in memory.
    """

    ndim = 3

    def __init__(self, store: KernelStore | PartOfStore, start: int = 0, stop: int | None = None):
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

    def entries(self, ids: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """(len(ids), len(columns), M) entries of rows given by their number in the store."""
        return self.store.entries(ids, columns)

    def diagonal(self) -> np.ndarray:
        """(rows, M) entries K[i, i, m] of the own rows."""
        return self.store.diagonal(self.start, self.stop)
