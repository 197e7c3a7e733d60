"""Rows as Arrow: one table per shard, one column (or two, for sparse data) per view.

Dense views are fixed-shape tensor columns and are read without a copy; sparse views are list columns of indices and values; of a
kernel store only its path and the range of rows travel.
`rows` everywhere in the engine is the same thing unpacked: a dict from view key to an array whose first axis is the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from ..kernels.store import KernelStore, StoreRows


def to_table(rows: Mapping, views: Sequence) -> pa.Table:
    """Pack rows (dict view key -> array) into a table; `views` fixes the order of the columns."""
    columns, names, metadata = [], [], {}
    for position, view in enumerate(views):
        array = rows[view]
        if isinstance(array, StoreRows):
            metadata[f"{position}.store"] = json.dumps([str(array.store.path), array.start, array.stop])
        elif sp.issparse(array):
            array = array.tocsr()
            offsets = pa.array(array.indptr.astype(np.int32))
            columns += [
                pa.ListArray.from_arrays(offsets, pa.array(array.indices.astype(np.int32))),
                pa.ListArray.from_arrays(offsets, pa.array(array.data)),
            ]
            names += [f"{position}.indices", f"{position}.values"]
            metadata[f"{position}.width"] = str(array.shape[1])
        elif array.dtype.kind in "OUS":
            columns.append(pa.array(array.reshape(len(array)).tolist()))
            names.append(str(position))
        else:
            columns.append(_tensor_column(array))
            names.append(str(position))
    return pa.table(columns, names=names).replace_schema_metadata(metadata)


def _tensor_column(array: np.ndarray) -> pa.Array:
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(array.dtype), array.shape[1:])
    width = int(np.prod(array.shape[1:]))
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    if width == 0:
        raise ValueError(f"a view with shape {array.shape} has no columns")
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, width))


def from_table(table: pa.Table, views: Sequence) -> dict:
    """Unpack a table made by `to_table`. Dense arrays are read-only views of Arrow's memory."""
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    rows: dict[Any, Any] = {}
    for position, view in enumerate(views):
        if f"{position}.store" in metadata:
            path, start, stop = json.loads(metadata[f"{position}.store"])
            rows[view] = StoreRows(KernelStore(path), start, stop)
        elif f"{position}.width" in metadata:
            indices = _single(table.column(f"{position}.indices"))
            values = _single(table.column(f"{position}.values"))
            offsets = np.asarray(indices.offsets)
            used = slice(int(offsets[0]), int(offsets[-1]))  # a slice of a table keeps the values of the whole
            rows[view] = sp.csr_matrix(
                (np.asarray(values.values)[used], np.asarray(indices.values)[used], offsets - offsets[0]),
                shape=(table.num_rows, int(metadata[f"{position}.width"])),
            )
        else:
            column = _single(table.column(str(position)))
            if isinstance(column, pa.FixedShapeTensorArray):
                flat = column.storage.flatten().to_numpy(zero_copy_only=True)
                rows[view] = flat.reshape(table.num_rows, *column.type.shape)
            else:
                rows[view] = np.asarray(column.to_pylist(), dtype=object)
    return rows


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def take(rows: Mapping, index: Any) -> dict:
    """The given rows of every view."""
    return {view: array[index] for view, array in rows.items()}


def concatenate(parts: Sequence[Mapping]) -> dict:
    """Rows of several parts, one after the other."""
    if len(parts) == 1:
        return dict(parts[0])
    joined = {}
    for view, array in parts[0].items():
        arrays = [part[view] for part in parts]
        joined[view] = sp.vstack(arrays).tocsr() if sp.issparse(array) else np.concatenate(arrays)
    return joined


def split_bounds(n: int, parts: int) -> list[tuple[int, int]]:
    """Contiguous ranges of rows, as even as possible; later ones may be empty."""
    edges = np.linspace(0, n, parts + 1).round().astype(int)
    return [(int(a), int(b)) for a, b in pairwise(edges)]
