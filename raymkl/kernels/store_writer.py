"""Writing kernel stores (see `store` for what they are): block by block, out of matrices or out of kernels
and data.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..data.progress import rows_written
from ..data.store import KernelStore
from ..data.store_files import COLUMN, DESCRIPTION, DTYPES, FORMAT, MAX_TENSOR_VALUES, file_name, is_store
from . import store_rows
from .store_rows import RowsToWrite, rows_to_write


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
    matrices_or_kernels : array-like of shape (n, n, M) or (n, n), or list
        A list is one of M matrices (n, n) (anything with rows to slice, such as `np.memmap`, is read block by
        block), or of M kernels, which may include `Precomputed` ones.
    X : array-like of shape (n, d), DataFrame, list, dict, Views or None
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
    source = rows_to_write(matrices_or_kernels, X)
    block_rows = _rows_of_a_block(source, block_rows, dtype)
    source.plan(block_rows)
    with _unfinished(target) as folder:
        blocks = _write_blocks(folder, source, block_rows, dtype, report)
        _describe(folder, source, dtype, blocks)
    return KernelStore(target)


def _rows_of_a_block(source: RowsToWrite, block_rows: int | None, dtype: np.dtype) -> int:
    """Rows per file, of as many as were asked for or None; ValueError for rows that Arrow cannot hold."""
    n, depth = source.n, source.depth
    if n * depth > MAX_TENSOR_VALUES:
        raise ValueError(
            f"{n} rows x {depth} kernels exceed the {MAX_TENSOR_VALUES} values that Arrow allows in the "
            "tensor of one row"
        )
    if block_rows is None:
        block_rows = max(1, store_rows.BLOCK_BYTES // (n * depth * dtype.itemsize))
    return min(int(block_rows), n)


@contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """A new folder next to `target` that takes its name in the end, or vanishes if anything goes wrong."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}.unfinished"
    folder.mkdir()
    try:
        yield folder
        _refuse_to_overwrite(target)  # somebody else may have been faster
        folder.rename(target)
    except BaseException:  # also an interrupt from the keyboard: half a store is of no use
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write_blocks(
    folder: Path,
    source: RowsToWrite,
    block_rows: int,
    dtype: np.dtype,
    report: Callable[[int, int], Any],
) -> list[dict]:
    """Write all rows, a file per block; what the description says of the files."""
    n, blocks = source.n, []
    buffer = np.empty((block_rows, n, source.depth), dtype)
    for start in range(0, n, block_rows):
        stop = min(start + block_rows, n)
        block = buffer[: stop - start]
        with np.errstate(over="ignore"):  # found by the next line, which says where
            source.fill(start, stop, block)
        _check_finite(block, start, source.names)
        file = folder / file_name(start, stop)
        _write_block(file, block)
        blocks.append({"start": start, "stop": stop, "bytes": file.stat().st_size})
        report(stop, n)
    return blocks


def _describe(folder: Path, source: RowsToWrite, dtype: np.dtype, blocks: list[dict]) -> None:
    description = {
        "format": FORMAT,
        "n_rows": source.n,
        "n_kernels": source.depth,
        "dtype": dtype.name,
        "names": source.names,
        "blocks": blocks,
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")


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
