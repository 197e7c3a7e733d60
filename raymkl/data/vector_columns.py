"""Columns of vectors in Arrow tables: every way of writing them down becomes one, fixed-size lists.

Parquet and Arrow files and `ray.data` blocks hold vectors as fixed-size lists, as tensors (Arrow's own and
Ray's extension types, of any shape; they are flattened) or as lists that happen to have one length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa


def plain_schema(schema: pa.Schema, first_rows: pa.Table | None, where: str) -> pa.Schema:
    """The schema with vectors as fixed-size lists. first_rows : of the columns that are lists."""
    return pa.schema([pa.field(field.name, _plain_type(field, first_rows, where)) for field in schema])


def _plain_type(field: pa.Field, first_rows: pa.Table | None, where: str) -> pa.DataType:
    kind = field.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        value = first_rows.column(field.name)[0]
        if not value.is_valid:
            raise ValueError(
                f"{where} has a missing vector in column {field.name!r} (row 0); missing values must be "
                "dealt with first"
            )
        return pa.list_(kind.value_type, len(value)) if is_number(kind.value_type) else kind
    if isinstance(kind, pa.BaseExtensionType) and getattr(kind, "shape", None) is not None:
        return pa.list_(kind.storage_type.value_type, int(np.prod(kind.shape)))
    # Files call the numbers of a list "item" or "element".
    return pa.list_(kind.value_type, kind.list_size) if pa.types.is_fixed_size_list(kind) else kind


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are whole numbers, floats or truth values."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def plain_table(table: pa.Table, schema: pa.Schema, first: int, where: str) -> pa.Table:
    """The table with its columns of vectors as `plain_schema` says.

    first : number of its first row, for errors.
    """
    columns = []
    for name in table.column_names:
        column, kind = table.column(name), schema.field(name).type
        if pa.types.is_fixed_size_list(kind) and column.type != kind:
            starts = first + np.cumsum([0, *map(len, column.chunks)])
            chunks = [
                _vectors(chunk, kind, int(at), f"column {name!r} of {where}")
                for chunk, at in zip(column.chunks, starts, strict=False)
            ]
            column = pa.chunked_array(chunks, kind)
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _vectors(chunk: pa.Array, kind: pa.FixedSizeListType, first: int, where: str) -> pa.Array:
    if chunk.null_count:
        row = first + int(np.flatnonzero(chunk.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(
            f"X contains NaN (a missing vector) in {where} (row {row}); missing values must be dealt with "
            "first"
        )
    if isinstance(chunk, pa.FixedShapeTensorArray) and not _in_order(chunk.type):
        return pa.FixedSizeListArray.from_arrays(
            pa.array(np.ascontiguousarray(chunk.to_numpy_ndarray()).reshape(-1)), kind.list_size
        )
    try:
        return (chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not (pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type)):
            raise ValueError(
                f"{where} holds tensors of different shapes; vectors of one length are needed"
            ) from None
        lengths = np.diff(chunk.offsets.to_numpy())
        other = int(np.flatnonzero(lengths != kind.list_size)[0])
        raise ValueError(
            f"{where} holds lists of varying length: {kind.list_size} in row 0, {lengths[other]} in row "
            f"{first + other}; "
            "vectors of one length are needed"
        ) from None


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
    """About how many bytes one row of some columns takes.

    schema : plain. measured : bytes of values without a fixed width.
    """
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
    if not all(is_number(kind) for kind in inner):
        return sum(widths), np.dtype(np.float64)
    # Missing values would make wider floats of whole numbers; they are errors anyway.
    joined = np.result_type(
        *(np.dtype(bool) if pa.types.is_boolean(kind) else np.dtype(kind.to_pandas_dtype()) for kind in inner)
    )
    return sum(widths), joined if joined in (np.float32, np.float64) else np.dtype(np.float64)
