"""Columns of vectors in Arrow tables: every way of writing them down becomes one, fixed-size lists.

Parquet and Arrow files and `ray.data` blocks hold vectors as fixed-size lists, as tensors (Arrow's own and Ray's extension types, of any
shape; they are flattened) or as lists that happen to have one length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def plain_schema(schema: pa.Schema, first_row: pa.Table | None, where: str) -> pa.Schema:
    """The schema with vectors as fixed-size lists. first_row : of the columns that are lists."""
    fields = []
    for field in schema:
        kind = field.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            value = first_row.column(field.name)[0]
            if not value.is_valid:
                raise ValueError(f"{where} has a missing vector in column {field.name!r} (row 0); missing values must be dealt with first")
            if _is_number(kind.value_type):
                kind = pa.list_(kind.value_type, len(value))
        elif isinstance(kind, pa.BaseExtensionType) and getattr(kind, "shape", None) is not None:
            kind = pa.list_(_tensor_values(kind), int(np.prod(kind.shape)))
        elif pa.types.is_fixed_size_list(kind):
            kind = pa.list_(kind.value_type, kind.list_size)  # files call the numbers "item" or "element"
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _tensor_values(kind: Any) -> pa.DataType:
    """Type of the numbers in a tensor type (Arrow's, or Ray's)."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return kind.value_type
    return kind.storage_type.value_type


def plain_table(table: pa.Table, schema: pa.Schema, first: int, where: str) -> pa.Table:
    """The table with its columns of vectors as `plain_schema` says. first : number of its first row, for errors."""
    columns = []
    for name in table.column_names:
        column, kind = table.column(name), schema.field(name).type
        if pa.types.is_fixed_size_list(kind) and column.type != kind:
            at, chunks = first, []
            for chunk in column.chunks:
                chunks.append(_vectors(chunk, kind, at, f"column {name!r} of {where}"))
                at += len(chunk)
            column = pa.chunked_array(chunks, kind)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _vectors(chunk: pa.Array, kind: pa.FixedSizeListType, first: int, where: str) -> pa.Array:
    if chunk.null_count:
        row = first + int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(f"X contains NaN (a missing vector) in {where} (row {row}); missing values must be dealt with first")
    if pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type):
        lengths = np.diff(chunk.offsets.to_numpy())
        other = np.flatnonzero(lengths != kind.list_size)
        if len(other):
            raise ValueError(
                f"{where} holds lists of varying length: {kind.list_size} in row 0, {lengths[other[0]]} in row {first + int(other[0])}; "
                "vectors of one length are needed"
            )
        values = chunk.flatten()
    elif isinstance(chunk, pa.FixedShapeTensorArray) and _in_order(chunk.type):
        values = chunk.storage.flatten()
    elif isinstance(chunk, pa.FixedShapeTensorArray):
        values = pa.array(np.ascontiguousarray(chunk.to_numpy_ndarray()).reshape(-1))
    elif pa.types.is_fixed_size_list(chunk.type):
        values = chunk.flatten()
    else:
        array = chunk.to_numpy(zero_copy_only=False)
        if array.dtype == object or array.size != len(chunk) * kind.list_size:
            raise ValueError(f"{where} holds tensors of different shapes; vectors of one length are needed")
        values = pa.array(np.ascontiguousarray(array).reshape(-1))
    if len(values) != len(chunk) * kind.list_size:
        raise ValueError(f"{where} holds vectors of another length than the first row, which has {kind.list_size} numbers")
    return pa.FixedSizeListArray.from_arrays(values.cast(kind.value_type), kind.list_size)


def _in_order(kind: pa.FixedShapeTensorType) -> bool:
    return kind.permutation is None or list(kind.permutation) == list(range(len(kind.shape)))


def has_fixed_width(kind: pa.DataType) -> bool:
    """Whether all values of a type take the same memory."""
    if pa.types.is_fixed_size_list(kind):
        return has_fixed_width(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return getattr(kind, "shape", None) is not None
    try:
        return kind.bit_width > 0 and not pa.types.is_dictionary(kind)
    except ValueError:
        return False


def row_bytes(schema: pa.Schema, columns: Sequence[str], measured: Mapping[str, float]) -> float:
    """About how many bytes one row of some columns takes. schema : plain. measured : bytes of values without a fixed width."""
    return float(sum(max(_bytes(schema.field(name).type), measured.get(name, 0.0)) for name in columns))


def _bytes(kind: pa.DataType) -> float:
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _bytes(kind.value_type)
    return kind.bit_width / 8 if has_fixed_width(kind) else 0.0


def width_and_dtype(schema: pa.Schema, columns: Sequence[str]) -> tuple[int, np.dtype]:
    """Numbers per row, and the dtype (float32 or float64) of the array, of some columns side by side."""
    kinds = [schema.field(name).type for name in columns]
    widths = [kind.list_size if pa.types.is_fixed_size_list(kind) else 1 for kind in kinds]
    inner = [kind.value_type if pa.types.is_fixed_size_list(kind) else kind for kind in kinds]
    if not all(_is_number(kind) for kind in inner):
        return sum(widths), np.dtype(np.float64)
    # Missing values would make wider floats of whole numbers; they are errors anyway.
    joined = np.result_type(*(np.dtype(bool) if pa.types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype()) for kind in inner))
    return sum(widths), joined if joined in (np.float32, np.float64) else np.dtype(np.float64)
