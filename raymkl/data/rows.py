"""Rows as Arrow: one table per shard, one column (or two, for sparse data) per view.

Dense views are fixed-shape tensor columns and are read without a copy; sparse views are list columns of
indices and values; of a kernel store only its path and the range of rows travel.
`rows` everywhere in the engine is the same thing unpacked: a dict from view key to an array whose first axis
is the row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from .store import KernelStore, PartOfStore, StoreRows
from .views import is_sparse


def to_block(rows: Mapping, views: Sequence) -> pa.Table | dict:
    """What a shard is given: an Arrow block, or, of rows that stay in their source, where they are (see
    `lazy_rows`).
    """
    return dict(rows) if any(map(_in_source, rows.values())) else to_table(rows, views)


def from_block(block: pa.Table | Mapping, views: Sequence) -> Mapping:
    """Rows out of what a shard was given. Those that are still in their source are read now."""
    if isinstance(block, pa.Table):
        return from_table(block, views)
    if any(map(_in_source, block.values())):
        from .lazy_rows import resolved  # loaded by those who have such rows only

        return resolved(block)
    return block


def _in_source(array: Any) -> bool:
    return getattr(array, "in_source", False)


def to_table(rows: Mapping, views: Sequence) -> pa.Table:
    """Pack rows (dict view key -> array) into a table; `views` fixes the order of the columns."""
    columns, names, metadata = [], [], {}
    for position, view in enumerate(views):
        array = rows[view]
        if isinstance(array, StoreRows):
            part = array.store.numbers.tolist() if isinstance(array.store, PartOfStore) else None
            metadata[f"{position}.store"] = json.dumps([str(array.store.path), array.start, array.stop, part])
        elif is_sparse(array):
            array = array.tocsr()
            offsets = to_arrow(array.indptr.astype(np.int32))
            columns += [
                pa.ListArray.from_arrays(offsets, to_arrow(array.indices.astype(np.int32))),
                pa.ListArray.from_arrays(offsets, to_arrow(array.data)),
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
    values = to_arrow(array)
    if width == 0:
        raise ValueError(f"a view with shape {array.shape} has no columns")
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, width))


def to_arrow(array: np.ndarray) -> pa.Array:
    """The numbers of an array as one Arrow array, not copied.

    (Arrow's own conversion loads pandas, which takes as long as Ray itself.)
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind not in "fiu":
        return pa.array(flat)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def from_arrow(values: pa.Array) -> np.ndarray:
    """The numbers of an Arrow array without missing values as a read-only view of its memory."""
    memory = values.buffers()[-1]
    if memory is None or values.null_count or values.type.bit_width < 8:
        return values.to_numpy(zero_copy_only=False)
    flat = np.frombuffer(memory, values.type.to_pandas_dtype(), len(values) + values.offset)[values.offset :]
    flat.flags.writeable = False
    return flat


def from_table(table: pa.Table, views: Sequence) -> dict:
    """Unpack a table made by `to_table`. Dense arrays are read-only views of Arrow's memory."""
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    rows: dict[Any, Any] = {}
    for position, view in enumerate(views):
        if f"{position}.store" in metadata:
            path, start, stop, part = json.loads(metadata[f"{position}.store"])
            store = KernelStore(path)
            rows[view] = StoreRows(store if part is None else PartOfStore(store, np.array(part)), start, stop)
        elif f"{position}.width" in metadata:
            indices = _single(table.column(f"{position}.indices"))
            values = _single(table.column(f"{position}.values"))
            offsets = from_arrow(indices.offsets)
            used = slice(
                int(offsets[0]), int(offsets[-1])
            )  # a slice of a table keeps the values of the whole
            from scipy.sparse import csr_matrix  # loaded by those who have sparse rows only

            rows[view] = csr_matrix(
                (from_arrow(values.values)[used], from_arrow(indices.values)[used], offsets - offsets[0]),
                shape=(table.num_rows, int(metadata[f"{position}.width"])),
            )
        else:
            column = _single(table.column(str(position)))
            if isinstance(column, pa.FixedShapeTensorArray):
                width, storage = column.storage.type.list_size, column.storage
                # What `flatten` would give, without loading Arrow's library of computations.
                flat = storage.values.slice(storage.offset * width, len(storage) * width)
                rows[view] = from_arrow(flat).reshape(table.num_rows, *column.type.shape)
            else:
                rows[view] = np.asarray(column.to_pylist(), dtype=object)
    return rows


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def row_count(rows: Mapping) -> int:
    """How many rows there are, of arrays by view key."""
    return next(iter(rows.values())).shape[0]


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
        if is_sparse(array):
            from scipy.sparse import vstack

            joined[view] = vstack(arrays).tocsr()
        else:
            joined[view] = np.concatenate(arrays)
    return joined


def split_ranges(n: int, parts: int) -> list[tuple[int, int]]:
    """Contiguous ranges of rows, as even as possible; later ones may be empty."""
    edges = np.linspace(0, n, parts + 1).round().astype(int)
    return [(int(a), int(b)) for a, b in pairwise(edges)]
