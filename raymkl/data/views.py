"""Views: the part of the input that a kernel looks at.

A view is `None` (everything), a column (index or name), several columns (list of either), a key of a dict,
or, for a dict, a pair `(key, columns)`. The same kernel therefore works on an ndarray, a sparse matrix, a
DataFrame, a `pyarrow.Table` and a dict of any of these.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np


def view_key(view: Any) -> Any:
    """A hashable name for a view, from which `view_of` gets the view back."""
    if view is None or type(view) is str:  # asked a dozen times for each of a thousand kernels
        return view
    if isinstance(view, slice):
        return ("slice", view.start, view.stop, view.step)
    if isinstance(view, np.ndarray):
        view = view.tolist()
    if isinstance(view, list):
        if view and all(isinstance(part, bool | np.bool_) for part in view):
            return ("mask", *map(bool, view))  # not columns 0 and 1, which True and False are equal to
        return ("columns", *(view_key(part) for part in view))
    if isinstance(view, tuple):
        return ("tuple", *(view_key(part) for part in view))
    return view.item() if isinstance(view, np.generic) else view


def where_of(key: Any) -> str:
    """What errors call the view of a key."""
    return "X" if key is None else f"view {view_of(key)!r} of X"


def view_of(key: Any) -> Any:
    """The view behind a key made by `view_key`."""
    if not isinstance(key, tuple):
        return key
    kind, *parts = key
    if kind == "slice":
        return slice(*parts)
    parts = [view_of(part) for part in parts]
    return tuple(parts) if kind == "tuple" else parts


def is_sparse(x: Any) -> bool:
    """Whether x is a scipy sparse matrix or array.

    Only where `scipy.sparse` is loaded already can there be one.
    """
    module = sys.modules.get("scipy.sparse")
    test = getattr(module, "issparse", None)  # None too while another thread is still importing it
    return test is not None and test(x)


def is_dict(X: Any) -> bool:
    """Whether X is a dict of views (a sparse matrix in dictionary format is a Mapping too, but it is one
    matrix).
    """
    return isinstance(X, Mapping) and not is_sparse(X)


def is_frame(X: Any) -> bool:
    """Whether X is a DataFrame (of pandas, or anything with its `columns` and `iloc`)."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def is_table(X: Any) -> bool:
    """Whether X is a `pyarrow.Table`, without importing pyarrow for those who do not use it."""
    return type(X).__module__.startswith("pyarrow") and hasattr(X, "column_names")


def is_other_frame(X: Any) -> bool:
    """Whether X is an eager DataFrame of another library that narwhals knows, such as polars; not of pandas,
    and no `pyarrow.Table`.
    """
    if not hasattr(X, "columns") or is_frame(X) or is_sparse(X):
        return False
    import narwhals as nw

    return nw.dependencies.is_into_dataframe(X) and not is_table(X)


def is_series(X: Any) -> bool:
    """Whether X is one column of pandas."""
    return hasattr(X, "iloc") and hasattr(X, "dtype") and not hasattr(X, "columns")


def is_other_series(X: Any) -> bool:
    """Whether X is one column of another library of frames, such as polars."""
    if not hasattr(X, "dtype") or not hasattr(X, "to_list") or is_series(X):
        return False
    import narwhals as nw

    return nw.dependencies.is_into_series(X)


def is_views(X: Any) -> bool:
    """Whether X is a `Views` (see `data.multiview`), the container of named views that rows may lack."""
    return getattr(type(X), "holds_named_views", False)


def arrow_of(X: Any) -> Any:
    """A `pyarrow.Table`, array or chunked array of a frame or column of any library; no copy where that keeps
    Arrow's memory.
    """
    if type(X).__module__.startswith("pyarrow"):
        return X
    import narwhals as nw

    return nw.from_native(X, eager_only=True, allow_series=True).to_arrow()


def n_rows(X: Any) -> int:
    """Number of examples in any accepted container."""
    if is_dict(X):
        lengths = {key: n_rows(value) for key, value in X.items()}
        if not lengths:
            raise ValueError("X is an empty dict; a dict of views needs at least one view")
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the views of X have different numbers of rows: {lengths}")
        return next(iter(lengths.values()))
    if is_table(X):
        return X.num_rows
    if hasattr(X, "shape"):
        if len(X.shape) == 0:
            raise ValueError("X is a scalar; a container with one row per example is needed")
        return int(X.shape[0])
    return len(X)


def subset(X: Any, index: np.ndarray) -> Any:
    """The given rows of any accepted container, in a container of the same kind."""
    if is_dict(X):
        return {key: subset(value, index) for key, value in X.items()}
    if is_frame(X):
        return X.iloc[index]
    if hasattr(X, "take") and type(X).__module__.startswith("pyarrow"):
        return X.take(index)
    if is_sparse(X):
        return X.tocsr()[index]
    if hasattr(X, "iloc"):
        return X.iloc[index]
    if hasattr(X, "shape"):
        return X[index]
    return [X[i] for i in index]


def select(X: Any, view: Any = None) -> Any:
    """The array of a view: 2-D ndarray or CSR matrix (3-D or object arrays pass through unchanged).

    Raises ValueError that names the view and what X holds when the view is not there.
    """
    if is_views(X):
        _check_complete(X, view)
        X = X.readable([view_name(dict.fromkeys(X.names), view)])
    if is_dict(X):
        return _from_mapping(X, view)
    if is_table(X):
        return _from_table(X, view)
    if is_other_frame(X):
        return _from_other_frame(X, view)
    if is_frame(X):
        return _from_frame(X, view)
    array = X.tocsr() if is_sparse(X) else np.asarray(unmasked(X))
    if view is not None:
        array = _columns(array, view)
    return _two_dimensional(array)


def unmasked(X: Any) -> Any:
    """X, or a plain array in the place of a masked one, with NaN (None in the place of texts) where it is
    masked.
    """
    if not (hasattr(X, "filled") and hasattr(X, "mask") and hasattr(X, "dtype")):
        return X
    if not np.any(X.mask):
        return np.asarray(X)
    if X.dtype.kind not in "fiub":
        return X.astype(object).filled(None)
    return (X if X.dtype.kind == "f" else X.astype(np.float64)).filled(np.nan)


def column_label(X: Any, view: Any, column: int) -> str:
    """What to call a column of `select(X, view)` in an error: its name where X has names, else its number."""
    if is_views(X):
        X = X.readable([view_name(dict.fromkeys(X.names), view)])
    if is_other_frame(X):
        return column_label(arrow_of(X), _frame_names(list(X.columns), view), column)
    if is_dict(X):
        if view is None or _known(view, X):
            return column_label(next(iter(X.values())) if view is None else X[view], None, column)
        return column_label(X[view[0]], view[1], column)
    if is_table(X):
        names = _table_names(X, view)
        widths = [
            getattr(X.schema.field(name).type, "list_size", None) or _table_column(X.column(name)).shape[1]
            for name in names
        ]
    elif is_frame(X):
        names = _frame_names(X.columns, view)
        widths = [1] * len(names) if column < len(names) and len(names) > 1 else [column + 1]
    else:
        return str(column)
    edges = np.cumsum(widths)
    which = int(np.searchsorted(edges, column, "right"))
    return (
        repr(names[which])
        if widths[which] == 1
        else f"{names[which]!r} (entry {column - int(edges[which] - widths[which])})"
    )


def view_name(X: Mapping, view: Any) -> Any:
    """The key of a dict of views that a kernel with this `view` reads."""
    if view is None:
        if len(X) == 1:
            return next(iter(X))
        raise ValueError(f"X holds the views {sorted(map(str, X))}; a kernel must say which one (view=...)")
    if _known(view, X):
        return view
    if isinstance(view, tuple) and len(view) == 2 and _known(view[0], X):
        return view[0]
    raise ValueError(f"view {view!r} is not in X, which holds the views {sorted(map(str, X))}")


def _from_mapping(X: Mapping, view: Any) -> Any:
    name = view_name(X, view)
    return select(X[name]) if view is None or _known(view, X) else select(X[name], view[1])


def _check_complete(X: Any, view: Any) -> None:
    absent = np.flatnonzero(~X.has(view))
    if len(absent):
        raise ValueError(
            f"{len(absent)} rows of X lack view {view!r}, the first of them row {absent[0]}; its values "
            "cannot be read"
        )


def _known(key: Any, X: Mapping) -> bool:
    try:
        return key in X
    except TypeError:
        return False


def _frame_names(columns: Any, view: Any) -> list:
    """Columns of a frame that a view reads; an error that names those that are not there."""
    if view is None:
        return list(columns)
    if isinstance(view, slice):
        return list(columns[view])
    if isinstance(view, list | np.ndarray) and len(view) == len(columns) and np.asarray(view).dtype == bool:
        view = np.flatnonzero(view).tolist()
    names = list(view) if isinstance(view, list | tuple | np.ndarray) else [view]
    known = set(columns)
    if all(name in known for name in names):
        return names
    if all(isinstance(name, int | np.integer) and 0 <= name < len(columns) for name in names):
        return [columns[name] for name in names]  # positions, where no column has that name
    missing = [name for name in names if name not in known]
    raise ValueError(f"view {missing!r} is not in X, whose columns are {shown(list(columns))}")


def _from_frame(X: Any, view: Any) -> np.ndarray:
    names = _frame_names(X.columns, view)
    parts = X[names]
    if len(names) == 1 and parts.iloc[:, 0].dtype == object and len(parts) and np.ndim(parts.iloc[0, 0]) == 1:
        return np.stack(parts.iloc[:, 0].to_list())  # a column of vectors
    return _two_dimensional(parts.to_numpy())


def _from_other_frame(X: Any, view: Any) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    names = _frame_names(list(X.columns), view)
    table = arrow_of(X).select(names)
    for position, name in enumerate(names):
        column = table.column(position)
        if (
            (pa.types.is_list(column.type) or pa.types.is_large_list(column.type))
            and len(column)
            and not column.null_count
        ):
            lengths = pc.min_max(pc.list_value_length(column)).as_py()
            if lengths["min"] == lengths["max"] > 0:  # a column of vectors, as pandas has it
                table = table.set_column(
                    position, name, column.cast(pa.list_(column.type.value_type, lengths["min"]))
                )
    return _from_table(table, names)


def _table_names(X: Any, view: Any) -> list[str]:
    """Columns of a table that a view reads; an error that names those that are not there."""
    names = X.column_names if view is None else list(view) if isinstance(view, list | tuple) else [view]
    missing = [name for name in names if name not in X.column_names]
    if missing:
        raise ValueError(f"view {missing!r} is not in X, whose columns are {shown(X.column_names)}")
    return names


def _from_table(X: Any, view: Any) -> np.ndarray:
    return np.concatenate([_table_column(X.column(name), name) for name in _table_names(X, view)], axis=1)


def _table_column(column: Any, name: str = "") -> np.ndarray:
    """(n, width) array of one Arrow column: numbers, texts, fixed-size lists or fixed-shape tensors."""
    import pyarrow as pa

    if pa.types.is_temporal(column.type) or pa.types.is_struct(column.type) or pa.types.is_map(column.type):
        raise ValueError(
            f"X has entries that are not numbers: column {name!r} holds values of type {column.type}"
        )
    chunk = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(chunk, pa.ChunkedArray):
        chunk = chunk.chunk(0) if chunk.num_chunks else pa.array([], column.type)
    if isinstance(chunk, pa.FixedShapeTensorArray):
        return chunk.to_numpy_ndarray()
    if pa.types.is_fixed_size_list(chunk.type):
        if chunk.null_count:
            raise ValueError(
                f"X has {chunk.null_count} missing values in column {name!r} of fixed-size lists; they must "
                "be dealt with first"
            )
        return chunk.flatten().to_numpy(zero_copy_only=False).reshape(len(chunk), chunk.type.list_size)
    if pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type):
        raise ValueError(
            f"X has a column of lists of varying length, {name!r}; vectors come as fixed-size lists or "
            "fixed-shape tensors"
        )
    return chunk.to_numpy(zero_copy_only=False).reshape(-1, 1)


def _columns(array: Any, view: Any) -> Any:
    if array.ndim < 2:
        raise ValueError(f"view {view!r} asks for columns, but X has shape {array.shape}")
    width = array.shape[1]
    if isinstance(view, slice):
        return array[:, view]
    index = np.atleast_1d(np.asarray(view))
    if index.dtype == bool and index.shape == (width,):
        index = np.flatnonzero(index)
    if index.dtype.kind not in "iu":
        raise ValueError(
            f"view {view!r} is not in X: an array of {width} columns takes column indices, not names"
        )
    if len(index) and (index.min() < -width or index.max() >= width):
        raise ValueError(f"view {view!r} is not in X, which has {width} columns")
    return array[:, index]


def _two_dimensional(array: Any) -> Any:
    if is_sparse(array):
        return array.tocsr()
    return array.reshape(-1, 1) if array.ndim == 1 else array


def shown(names: list) -> str:
    """Names for an error, the first twelve of them."""
    return repr(names) if len(names) <= 12 else repr(names[:12])[:-1] + f", ... {len(names)} in all]"
