"""Sequences as rows: strings of any container become one array of bytes, whose first axis is the row.

Sequences of one length are an array (n, length) uint8, for Arrow columns and lists a view of Arrow's memory.
Of different lengths they are padded with zero bytes, or, where that would waste more than it holds, rows of a
CSR matrix whose values are the letters. Both travel, are cut into parts and are saved as any other rows are.
No Python object per sequence is made.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .views import (
    arrow_of,
    is_dict,
    is_frame,
    is_other_frame,
    is_other_series,
    is_series,
    is_sparse,
    is_table,
    is_views,
    view_name,
)

# Padded arrays may be this many times larger than the letters they hold.
MOST_PADDING = 2.0


def select_strings(X: Any, view: Any, reader: Any) -> Any:
    """Rows (n, longest) of the strings of a view: uint8 array or CSR.

    reader : the kernel that wants them, for errors.
    """
    column, where = _column(X, view, reader)
    return pack(column, where, reader)


def looks_like_strings(X: Any) -> bool:
    """Whether X is a plain container of strings: a list, a one-dimensional array, a Series, an Arrow
    array.
    """
    if isinstance(X, list | tuple):
        return len(X) > 0 and isinstance(X[0], str | bytes)
    if _is_arrow(X):
        return True
    if isinstance(X, np.ndarray):
        return X.dtype.kind in "US" or (
            X.dtype == object and X.ndim == 1 and len(X) > 0 and isinstance(X[0], str | bytes)
        )
    if is_other_series(X):
        kind = str(arrow_of(X.head(0)).type)
        return any(word in kind for word in ("string", "binary", "dictionary"))
    return is_series(X) and getattr(X.dtype, "kind", "O") not in "iufbcmM"


def lengths_of(rows: Any) -> np.ndarray:
    """(n,) lengths of packed sequences."""
    if is_sparse(rows):
        return np.diff(rows.indptr)
    width = rows.shape[1]
    if width == 0 or rows[:, -1].all():
        return np.full(len(rows), width)
    return width - np.argmax(rows[:, ::-1] != 0, axis=1)


def letters_and_starts(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Letters of packed sequences one after the other (zero bytes where padded), and where each row starts (n
    + 1,).
    """
    if is_sparse(rows):
        return rows.data, rows.indptr.astype(np.int64)
    return np.ascontiguousarray(rows).reshape(-1), np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]


def pack(column: Any, where: str, reader: Any) -> Any:
    """A column of strings (any container) as rows of bytes; missing and empty strings are errors that name
    the row.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "US":
        return _from_fixed_width(column.reshape(-1), where)
    array = _arrow_strings(column, where, reader)
    if len(array) == 0:
        raise ValueError(f"{where} has 0 rows; at least one example is needed")
    if array.null_count:
        missing = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(
            f"{where} has a missing string in row {missing}; missing values must be dealt with first"
        )
    kind = np.int64 if str(array.type).startswith("large") else np.int32
    offsets = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    data = array.buffers()[2]
    data = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return _rows(data, offsets - offsets[0], where)


def _column(X: Any, view: Any, reader: Any) -> tuple[Any, str]:
    """The container of one view's strings, and how errors call it."""
    if isinstance(view, list) and len(view) == 1:
        view = view[0]
    where = "X" if view is None else f"view {view!r} of X"
    if is_views(X):
        X = X.readable([view_name(dict.fromkeys(X.names), view)])
    if is_other_frame(X):
        names = list(X.columns)
        X, view = arrow_of(X), names[view] if isinstance(view, int) and 0 <= view < len(names) else view
    if is_dict(X):
        key, inner = (view[0], view[1]) if isinstance(view, tuple) and view not in X else (view, None)
        if key is None and len(X) == 1:
            key = next(iter(X))
        if key is None or key not in X:
            asked = "must say which one (view=...)" if key is None else f"asks for {key!r}"
            raise ValueError(f"X holds the views {sorted(map(str, X))}; {reader!r} {asked}")
        return _column(X[key], inner, reader)[0], where
    if is_table(X) or is_frame(X):
        names = list(X.column_names if is_table(X) else X.columns)
        if view is None and len(names) != 1:
            raise ValueError(
                f"X has the columns {names[:12]!r}; {reader!r} reads one column of strings and must say "
                "which one (view=...)"
            )
        name = names[0] if view is None else view
        if name not in names and is_frame(X) and isinstance(view, int) and 0 <= view < len(names):
            name = names[view]  # a position, where no column has that name
        if name not in names:
            raise ValueError(f"view {view!r} is not in X, whose columns are {names[:12]!r}")
        return (X.column(name) if is_table(X) else X[name]), where
    if isinstance(X, list | tuple) and len(X) and isinstance(X[0], list | tuple):
        X = np.asarray(X, object)
    if isinstance(X, np.ndarray) and X.ndim == 2:
        if view is None and X.shape[1] != 1:
            _not_strings(f"an array of shape {X.shape}, dtype {X.dtype}", where, reader)
        if view is not None and not (isinstance(view, int | np.integer) and -X.shape[1] <= view < X.shape[1]):
            raise ValueError(f"view {view!r} is not in X, an array with {X.shape[1]} columns")
        return X[:, 0 if view is None else view], where
    if view is not None:
        raise ValueError(
            f"{reader!r} asks for view {view!r}, but X is a plain list of strings and has no views"
        )
    return X, where


def _not_strings(what: str, where: str, reader: Any) -> None:
    raise ValueError(
        f"{reader!r} reads strings, but {where} holds {what}; a list, array or column of strings is needed"
    )


def _is_arrow(column: Any) -> bool:
    return (
        type(column).__module__.startswith("pyarrow")
        and hasattr(column, "null_count")
        and not hasattr(column, "column_names")
    )


def _arrow_strings(column: Any, where: str, reader: Any) -> Any:
    """One Arrow array of strings or bytes."""
    import pyarrow as pa

    if is_sparse(column):
        _not_strings("a sparse matrix of numbers", where, reader)
    if is_other_series(column):
        column = arrow_of(column)
    if not _is_arrow(column):
        if not is_series(column) and np.ndim(column) > 1:
            _not_strings(f"an array of shape {np.shape(column)}", where, reader)
        if getattr(getattr(column, "dtype", None), "kind", "O") in "iufbcmM":
            _not_strings(f"values of dtype {column.dtype}", where, reader)
        try:
            column = pa.array(column, from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
            wrong = [(row, value) for row, value in enumerate(column) if not isinstance(value, str)]
            _not_strings(
                f"a {type(wrong[0][1]).__name__} in row {wrong[0][0]}" if wrong else type(column).__name__,
                where,
                reader,
            )
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = str(column.type)
    if kind in ("string_view", "binary_view"):
        column = column.cast(pa.large_string() if kind == "string_view" else pa.large_binary())
        kind = str(column.type)
    if kind not in ("string", "large_string", "binary", "large_binary") and len(column):
        if pa.types.is_null(column.type):
            raise ValueError(
                f"{where} has a missing string in row 0; missing values must be dealt with first"
            )
        _not_strings(f"values of type {kind}", where, reader)
    return column


def _from_fixed_width(column: np.ndarray, where: str) -> np.ndarray:
    """Rows of a NumPy array of dtype U or S, which pads with zeros itself."""
    n, column = len(column), np.ascontiguousarray(column)
    if n == 0:
        raise ValueError(f"{where} has 0 rows; at least one example is needed")
    width = column.dtype.itemsize // (4 if column.dtype.kind == "U" else 1)
    if width == 0:
        raise ValueError(f"{where} has an empty string in row 0")
    if column.dtype.kind == "U":
        points = (
            column.view(column.dtype.newbyteorder("="))
            if column.dtype.isnative
            else column.astype(column.dtype.newbyteorder("="))
        )
        rows = np.minimum(points.view(np.uint32).reshape(n, width), 128).astype(
            np.uint8
        )  # beyond ASCII: no letter of any alphabet
    else:
        rows = column.view(np.uint8).reshape(n, width)
    lengths = lengths_of(rows)
    empty = np.flatnonzero((lengths == width) & (rows.max(axis=1) == 0))
    if len(empty):
        raise ValueError(f"{where} has an empty string in row {empty[0]}")
    return rows[:, : lengths.max()]


def _rows(data: np.ndarray, offsets: np.ndarray, where: str) -> Any:
    """Rows of letters `data`, row i from offsets[i] to offsets[i + 1]."""
    if len(data) and data.max() > 127:
        # UTF-8: one byte per character stays, its first, which is beyond ASCII and so a letter of no
        # alphabet.
        first = (data & 0xC0) != 0x80
        offsets = np.concatenate([[0], np.cumsum(first)])[offsets]
        data = data[first]
    lengths = np.diff(offsets)
    if lengths.min() == 0:
        raise ValueError(f"{where} has an empty string in row {int(np.argmin(lengths))}")
    if data.min() == 0:
        data = np.maximum(data, 1)  # zero bytes are padding
    n, longest = len(lengths), int(lengths.max())
    if lengths.min() == longest:
        return data.reshape(n, longest)
    if n * longest > MOST_PADDING * len(data):
        places = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
        from scipy.sparse import csr_matrix  # loaded by those who have sparse rows only

        return csr_matrix((data, places, offsets), shape=(n, longest))
    rows = np.zeros((n, longest), np.uint8)
    rows[np.arange(longest) < lengths[:, None]] = data
    return rows
