"""One view, whatever it is held in: an array, a sparse matrix, a table, a column or list, rows of a matrix.

A view keeps the container that it came in. What a user is given can be read and not written; what came in
stays writable for its owner.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..views import (
    arrow_of,
    is_frame,
    is_other_frame,
    is_series,
    is_sparse,
    is_table,
    n_rows,
    subset,
    unmasked,
)
from .gappy_rows import NOWHERE, GappyRows, gappy
from .matrix_rows import MatrixRows

# Sparse formats whose rows can be taken, and the arrays they consist of; other formats become CSR.
SPARSE_PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr")}
# Rows of a ready-made matrix that are looked at at a time, in bytes.
LOOKED_AT = 2**24


def held(view: Any, name: str) -> Any:
    """A view as a container keeps it: the memory of what came in, through eyes that cannot write to it."""
    if isinstance(view, MatrixRows | GappyRows):
        return view
    if is_sparse(view):
        return _frozen_sparse(view if view.format in SPARSE_PARTS else view.tocsr())
    if isinstance(view, np.ndarray):
        if view.ndim == 0:
            raise TypeError(f"view {name!r} is a single value; a view has one row per example")
        return _frozen(view)
    if is_frame(view) or is_series(view):
        return view.copy(deep=False) if hasattr(view, "copy") else view
    if is_other_frame(view):
        return view.clone() if hasattr(view, "clone") else view
    if is_table(view) or type(view).__module__.startswith(("pyarrow", "polars")):
        return view
    if isinstance(view, list | tuple):
        return list(view)
    if hasattr(view, "__array__"):
        return held(np.asarray(view), name)
    raise TypeError(
        f"view {name!r} is a {type(view).__name__}; a view is an array, a sparse matrix, a table (pandas, "
        "polars, Arrow), "
        "a list of strings or, if it is named in matrices, a ready-made matrix"
    )


def given(view: Any) -> Any:
    """A held view as its user gets it: what is done to it does not come back."""
    if isinstance(view, MatrixRows):
        return view.given()
    if isinstance(view, GappyRows):
        return held(view.given(), "")
    if isinstance(view, list):
        return list(view)
    return held(view, "")


def rows_at(view: Any, index: np.ndarray) -> Any:
    """Rows index (k,) of a held view, in a container of the same kind."""
    if isinstance(view, MatrixRows | GappyRows):
        return held(view[index], "")
    if isinstance(view, np.ndarray):
        return _frozen(view[as_slice(index)])
    if is_sparse(view):
        return _frozen_sparse(view[index])
    return subset(view, index)


def as_slice(index: np.ndarray) -> Any:
    """The slice of rows that follow each other, of which arrays need no copy; other rows as they are."""
    start = int(index[0]) if len(index) else 0
    return (
        slice(start, start + len(index))
        if np.array_equal(index, np.arange(start, start + len(index)))
        else index
    )


def stacked(views: Sequence[Any], name: str) -> Any:
    """Held views of one kind below each other."""
    kinds = list(dict.fromkeys(map(kind_of, views)))
    if len(kinds) > 1:
        raise TypeError(
            f"view {name!r} is {kinds[0]} in one part and {kinds[1]} in another; rows of one kind can stand "
            "below each other"
        )
    first = views[0]
    if isinstance(first, MatrixRows):
        return MatrixRows.stacked(list(views), name)
    if any(isinstance(view, GappyRows) for view in views):
        parts = list(map(gappy, views))
        ends = np.cumsum([0, *(n_rows(part.table) for part in parts)])
        at = [
            np.where(part.at == NOWHERE, NOWHERE, part.at + start)
            for part, start in zip(parts, ends, strict=False)
        ]
        return GappyRows(stacked([part.table for part in parts], name), np.concatenate(at))
    if isinstance(first, list):
        return [value for view in views for value in view]
    widths = list(dict.fromkeys(_names_or_shape(view) for view in views))
    if len(widths) > 1:
        raise ValueError(f"view {name!r} has other columns in another part: {widths[0]} and {widths[1]}")
    if isinstance(first, np.ndarray):
        return _frozen(
            np.ma.concatenate(views) if isinstance(first, np.ma.MaskedArray) else np.concatenate(views)
        )
    if is_sparse(first):
        from scipy.sparse import vstack

        return _frozen_sparse(vstack(views, format=first.format))
    if is_frame(first) or is_series(first):
        import pandas as pd

        return pd.concat(views)
    if type(first).__module__.startswith("pyarrow"):
        return _stacked_arrow(views)
    import narwhals as nw

    parts = [nw.from_native(view, eager_only=True, allow_series=True) for view in views]
    if is_other_frame(first):
        return nw.concat(parts).to_native()
    return (
        nw.concat([part.alias("column").to_frame() for part in parts])
        .get_column("column")
        .alias(parts[0].name)
        .to_native()
    )


def _stacked_arrow(views: Sequence[Any]) -> Any:
    import pyarrow as pa

    if is_table(views[0]):
        return pa.concat_tables(views)
    return pa.chunked_array([chunk for view in views for chunk in getattr(view, "chunks", [view])])


def kind_of(view: Any) -> str:
    """What a view is held in, in a word or two."""
    if isinstance(view, MatrixRows):
        return "matrix"
    if isinstance(view, GappyRows):
        return kind_of(view.table)
    if is_sparse(view):
        return f"sparse {view.format}"
    if isinstance(view, np.ndarray):
        return "array"
    if isinstance(view, list):
        return "list"
    library = type(view).__module__.split(".")[0]
    return f"{library} {'table' if is_table(view) or is_frame(view) or is_other_frame(view) else 'column'}"


def _names_or_shape(view: Any) -> tuple:
    names = getattr(view, "column_names", None) if is_table(view) else getattr(view, "columns", None)
    return tuple(getattr(view, "shape", (0,))[1:]) if names is None else tuple(names)


def described(view: Any) -> str:
    """Kind, size and type of a view, for `repr`."""
    shape = tuple(getattr(view, "shape", (n_rows(view),)))
    kind = (
        getattr(view, "dtype", None) if isinstance(view, np.ndarray | MatrixRows) or is_sparse(view) else None
    )
    return f"{kind_of(view)} {shape}" + ("" if kind is None else f" {kind}")


def holds_nothing(view: Any) -> np.ndarray:
    """(n,) rows of nothing but NaN or None.

    A sparse row without entries is one of zeros, and so holds something.
    """
    if isinstance(view, MatrixRows):
        step = max(1, LOOKED_AT // max(1, 8 * int(np.prod(view.shape[1:]))))
        parts = [_nothing_in(np.asarray(view[start : start + step])) for start in range(0, len(view), step)]
        return np.concatenate(parts) if parts else np.zeros(0, bool)
    if isinstance(view, GappyRows):
        view = view.given()
    if is_sparse(view):
        rows = view.tocsr()
        bad = np.isnan(rows.data) if rows.dtype.kind in "fc" else np.zeros(rows.nnz, bool)
        counts = np.bincount(
            np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[bad], minlength=rows.shape[0]
        )
        return (counts == rows.shape[1]) & (counts > 0)
    if isinstance(view, np.ndarray):
        return _nothing_in(np.asarray(unmasked(view)))
    if is_frame(view):
        return np.asarray(view.isna().all(axis=1), bool) & (view.shape[1] > 0)
    if isinstance(view, list):
        return np.array([_is_nothing(value) for value in view], bool)
    if is_series(view):
        return np.asarray(view.isna(), bool)
    return _nothing_in_arrow(arrow_of(view))


def _nothing_in(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "fc":
        missing = np.isnan(array)
    elif array.dtype.kind in "mM":
        missing = np.isnat(array)
    elif array.dtype.kind == "O":
        missing = np.array([_is_nothing(value) for value in array.reshape(-1)], bool).reshape(array.shape)
    else:
        return np.zeros(len(array), bool)
    width = int(np.prod(array.shape[1:]))
    return missing.reshape(len(array), width).all(axis=1) if width else np.zeros(len(array), bool)


def _is_nothing(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")  # of pandas


def _nothing_in_arrow(data: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = data.columns if is_table(data) else [data]
    nothing = np.ones(len(data), bool)
    for column in columns:
        chunk = (
            pa.chunked_array(column).combine_chunks()
            if isinstance(column, pa.Array)
            else column.combine_chunks()
        )
        chunk = pa.concat_arrays(chunk.chunks) if isinstance(chunk, pa.ChunkedArray) else chunk
        chunk = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
        missing = chunk.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        if pa.types.is_fixed_size_list(chunk.type) and chunk.type.list_size and len(chunk):
            size = chunk.type.list_size
            values = chunk.values.slice(chunk.offset * size, len(chunk) * size)
            missing = missing | pc.is_null(values, nan_is_null=True).to_numpy(zero_copy_only=False).reshape(
                -1, size
            ).all(axis=1)
        nothing &= missing
    return nothing & bool(columns)


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only view of an array, whose own flags stay as they are."""
    if not isinstance(array, np.ma.MaskedArray | np.memmap):
        array = np.asarray(array)
    view = array.view()
    view.flags.writeable = False
    return view


def _frozen_sparse(matrix: Any) -> Any:
    view = copy.copy(matrix)
    for part in SPARSE_PARTS[matrix.format]:
        setattr(view, part, _frozen(getattr(matrix, part)))
    return view
