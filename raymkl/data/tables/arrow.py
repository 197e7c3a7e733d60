"""Arrow tables as columns: numbers with missing values as NaN, vectors as rows of arrays, text as objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ..sources import INDEX_COLUMN
from .columns import Columns, check_repeated

NUMBERS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_decimal,
    pa.types.is_null,
)


def from_arrow(table: pa.Table, source: str, first: int = 0) -> Columns:
    """Columns of a `pyarrow.Table`: numbers with missing values as NaN, text as objects.

    first : number of its first row, for errors.
    """
    names = [name for name in table.column_names if not INDEX_COLUMN.fullmatch(name)]
    check_repeated(names, source)
    return Columns(source, {name: _array(table.column(name)) for name in names}, first=first)


def holds_numbers(kind: pa.DataType) -> bool:
    """Whether a column of an Arrow type becomes numbers."""
    if pa.types.is_dictionary(kind) or pa.types.is_fixed_size_list(kind):
        return holds_numbers(kind.value_type)
    return any(is_kind(kind) for is_kind in NUMBERS)


def _array(column: Any) -> Any:
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _vectors(column)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_dictionary(kind):
        return _array(column.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64()) if column.null_count or pa.types.is_decimal(kind) else column
    if holds_numbers(kind):
        return column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return np.array(
        column.to_pylist(), dtype=object
    )  # text, dates and whatever else has no place among numbers


def _vectors(column: Any) -> np.ndarray:
    """(n, width) of a column of lists; objects (which are no features) when their lengths differ.

    A missing vector is one of NaN.
    """
    from pyarrow import compute

    lengths = compute.unique(compute.drop_null(compute.list_value_length(column))).to_pylist()
    if len(lengths) != 1:
        return np.array([*map(str, column.to_pylist())], dtype=object)
    width = lengths[0]
    flat = [_array(column.chunk(i).flatten()) for i in range(column.num_chunks)]
    present = np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in column.chunks])
    values = np.concatenate(flat).reshape(-1, width)
    if present.all():
        return values
    out = np.full((len(present), width), np.nan)
    out[present] = values
    return out
