"""From what a user passes to what the engine takes: rows by view, checked, with errors that say what is
wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from ..data.multiview.matrix_rows import MatrixRows
from ..data.store import KernelStore, PartOfStore, StoreRows, is_store
from ..data.strings import looks_like_strings, select_strings
from ..data.views import (
    column_label,
    is_dict,
    is_frame,
    is_other_frame,
    is_table,
    is_views,
    n_rows,
    select,
    unmasked,
    view_name,
    view_of,
)
from ..engine.resources import free_memory, usable_cpus
from ..kernels.base import Kernel, check_non_negative
from ..kernels.defaults import check_squares
from ..kernels.given import Precomputed
from ..kernels.matrix_facts import quadratic_forms, survey
from ..kernels.pairs.statistics import Matrices
from . import sources

# Symmetry of ready-made matrices is checked to this part of their largest entry (float32 matrices are
# welcome).
SYMMETRY = 1e-5
# Entries may be larger than their diagonal entries allow by this part of the largest entry.
DIAGONAL = 1e-3
# Bytes whose finiteness is checked at a time.
CHECKED_BYTES = 2**22
# Rows of a kernel store that are checked.
STORE_SAMPLE = 200
# Random quadratic forms per matrix, and how negative they may be relative to the trace.
FORMS = 16
DEFINITENESS = 1e-6


def check_container(estimator: Any, X: Any, reset: bool) -> Any:
    """X as a container that views can be taken from; scikit-learn's checks for arrays and frames of one
    view.
    """
    if isinstance(X, sources.SourceInput | sources.Batch):
        if reset:
            estimator.n_features_in_ = X.shape[1]
            vars(estimator).pop("feature_names_in_", None)
            if getattr(X, "named", True):
                estimator.feature_names_in_ = np.asarray(X.features, object)
        return X
    if is_dict(X) or is_table(X) or is_views(X):
        if reset:
            vars(estimator).pop("feature_names_in_", None)
            estimator.n_features_in_ = _width(X)
        return X
    if is_frame(X) or is_other_frame(X):
        from sklearn.utils.validation import _check_feature_names, _check_n_features

        _check_feature_names(estimator, X, reset=reset)
        _check_n_features(estimator, X, reset=reset)
        if len(X) == 0:
            raise ValueError("X has 0 rows; at least one example is needed")
        return X
    if looks_like_strings(X) or (
        getattr(getattr(X, "dtype", None), "kind", "") == "O" and _reads_strings(estimator)
    ):
        return _check_strings(estimator, X, reset)
    try:
        array = validate_data(
            estimator,
            unmasked(X),
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=1,
        )
    except ValueError:
        _check_columns(X)
        raise
    if array.dtype.kind == "O":
        _check_columns(X)
    return array


def _check_columns(X: Any) -> None:
    """Raise ValueError that names the first column without numbers of a table of another library, such as
    polars.
    """
    for name in getattr(X, "columns", ()):
        _floats(np.asarray(X[name]), "X", lambda _, name=name: repr(name))


def _reads_strings(estimator: Any) -> bool:
    """Whether one of the kernels of an estimator reads strings."""
    given = getattr(estimator, "kernels", ())
    kernels = given if isinstance(given, list | tuple) else [given]
    return any(isinstance(kernel, Kernel) and kernel.string_views() for kernel in kernels)


def _check_strings(estimator: Any, X: Any, reset: bool) -> Any:
    """A plain container of strings.

    It has no number of features: as in scikit-learn, `n_features_in_` is then not set.
    """
    if not _reads_strings(estimator):
        raise ValueError(
            "X holds strings, but none of the kernels reads strings; see raymkl.kernels.Spectrum and "
            "WeightedDegree"
        )
    if reset:
        for name in ("n_features_in_", "feature_names_in_"):
            vars(estimator).pop(name, None)
    elif hasattr(estimator, "feature_names_in_"):
        raise ValueError(
            "X is a plain list of strings; the model was fitted to the columns "
            f"{list(estimator.feature_names_in_)!r}"
        )
    return X


def _width(X: Any) -> int:
    if is_table(X):
        return X.num_columns
    if is_views(X):
        # Of a ready-made matrix the columns of the own rows count, as in a dict.
        views = dict(X.items())
        return sum(
            len(X) * int(np.prod(view.shape[2:])) if name in X.matrices else _width({name: view})
            for name, view in views.items()
        )
    return sum(int(np.prod(getattr(value, "shape", (0, 1))[1:])) for value in X.values())


def rows_of(X: Any, kernels: list[Kernel], spare: Mapping | None = None) -> dict:
    """Rows by view key for all views that the kernels read: checked; numbers are finite, strings are packed
    (see `data.strings`).

    Of a `Views`, absent rows are copies of the first row that has the view, see `Views.readable`; what stands
    in them is not read.
    spare : rows by view key of which one is copied for all where no row has the view, those of support
    vectors for example.
    """
    if isinstance(X, sources.SourceInput):
        return sources.survey(X, kernels)
    if isinstance(X, sources.Batch):
        return sources.rows_of_batch(X, kernels)
    if is_views(X):
        return _rows_of_views(X, kernels, spare or {})
    rows, readers = {}, {}
    for kernel in kernels:
        strings = kernel.string_views()
        for key in kernel.views:
            if key not in rows:
                readers[key] = (kernel, key in strings)
                rows[key] = (
                    select_strings(X, view_of(key), kernel)
                    if key in strings
                    else _numeric(select(X, view_of(key)), key, X)
                )
            elif readers[key][1] != (key in strings):
                raise ValueError(
                    f"{readers[key][0]!r} and {kernel!r} both read {_where(key)}, one as strings and one as "
                    "numbers; give them views"
                )
        check_non_negative({key: rows[key] for key in kernel.histogram_views()}, kernel)
        kernel.check_rows(rows)
    lengths = {key: array.shape[0] for key, array in rows.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the views of X have different numbers of rows: {lengths}")
    check_squares(rows, kernels, lambda key, column: column_label(X, view_of(key), column))
    return rows


def _rows_of_views(X: Any, kernels: list[Kernel], spare: Mapping) -> dict:
    keys = list(dict.fromkeys(key for kernel in kernels for key in kernel.views))
    bare = [key for key in keys if not X.has(view_of(key)).any()]
    for key in bare:
        if key not in spare:
            raise ValueError(
                f"no row of X has {_where(key)}, which {next(k for k in kernels if key in k.views)!r} reads"
            )
    views = X.readable(
        dict.fromkeys(view_name(dict.fromkeys(X.names), view_of(key)) for key in keys if key not in bare)
    )
    rows = rows_of(views, [kernel for kernel in kernels if not set(bare) & set(kernel.views)])
    for kernel in kernels:
        strings = kernel.string_views()
        for key in kernel.views:
            if key not in bare and key not in rows:  # read beside a view that nobody has
                rows[key] = (
                    select_strings(views, view_of(key), kernel)
                    if key in strings
                    else _numeric(select(views, view_of(key)), key, views)
                )
    return {**rows, **{key: _copies(spare[key], len(X)) for key in bare}}


def _copies(rows: Any, n: int) -> Any:
    """n copies of the first of some rows; zeros where there are none."""
    if rows.shape[0]:
        return rows[np.zeros(n, int)]
    empty = sp.csr_matrix if sp.issparse(rows) else np.zeros
    return empty((n, *rows.shape[1:]), dtype=rows.dtype)


def _where(key: Any) -> str:
    return "X" if key is None else f"view {view_of(key)!r} of X"


def _numeric(array: Any, key: Any, X: Any) -> Any:
    """The same numbers as floats, all finite; X and key say what columns are called."""
    where = _where(key)

    def label(column: int) -> str:
        return column_label(X, view_of(key), column)

    if sp.issparse(array):
        array = array.tocsr()
        array = array if array.dtype.kind == "f" else array.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(array.data))
        if len(bad):
            row = int(np.searchsorted(array.indptr, bad[0], "right") - 1)
            _complain(array.data[bad[0]], where, row, label(int(array.indices[bad[0]])))
        return array
    if array.dtype.kind in "OUSmM":
        array = _floats(array, where, label)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} has dtype {array.dtype}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if array.ndim >= 2 and array.shape[1] == 0:
        raise ValueError(f"{where} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    place = _first_not_finite(array)
    if place is not None:
        _complain(array[place], where, place[0], label(place[1] if len(place) > 1 else 0))
    return array


def _floats(array: np.ndarray, where: str, label: Callable[[int], str]) -> np.ndarray:
    """Objects and texts that stand for numbers as floats; an error that names the column and row of the first
    that does not.
    """
    try:
        if array.dtype.kind not in "mM":
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    columns = array.reshape(len(array), -1).T
    for column, row in ((column, row) for column in range(len(columns)) for row in range(len(array))):
        value = columns[column, row]
        if type(value).__name__ == "NAType":  # of pandas
            _complain(np.nan, where, row, label(column))
        try:
            if array.dtype.kind in "mM":
                raise TypeError
            np.float64(value)
        except (TypeError, ValueError):
            what = (
                f"{str(value)!r:.60}"
                if isinstance(value, str | bytes)
                else f"{value!s:.60}, a {type(value).__name__}"
            )
            raise ValueError(
                f"{where} has entries that are not numbers: column {label(column)} holds {what} (row {row})"
            ) from None
    raise ValueError(f"{where} has entries that are not numbers")


def _first_not_finite(array: np.ndarray) -> tuple[int, ...] | None:
    """Where the first NaN or infinite entry of an array is, or None."""
    step = max(1, CHECKED_BYTES * len(array) // max(array.nbytes, 1))
    for start in range(0, len(array), step):
        part = array[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            # One pass and nothing written; a sum is finite only if all are (very large ones are looked at
            # below). Not by BLAS: its threads would go on waiting for more, for as long as a small fit takes,
            # on a core that the fit needs.
            if np.isfinite(np.sum(part)):
                continue
        finite = np.isfinite(part)
        if not finite.all():
            first, *others = np.argwhere(~finite)[0].tolist()
            return (start + first, *others)
    return None


def _complain(value: float, where: str, row: int, column: str) -> None:
    kind = "NaN" if np.isnan(value) else "infinity"
    raise ValueError(
        f"{where} contains {kind} in column {column} (row {row}); missing and infinite values must be dealt "
        "with first"
    )


def precomputed_stack(X: Any, square: bool) -> np.ndarray | StoreRows:
    """X of kernels="precomputed" as a stack (rows, columns, M), checked for shape and finiteness; a path is a
    kernel store.
    """
    if isinstance(X, str | os.PathLike):
        if not square:
            raise TypeError(
                "predicting takes an array (n_test, n_train or n_support, M); a kernel store holds training "
                "rows only"
            )
        return StoreRows(KernelStore(X))
    if sp.issparse(X):
        raise TypeError('kernels="precomputed" takes a dense array of shape (n, n, M), got a sparse matrix')
    stack = np.asarray(unmasked(X))
    if stack.ndim == 2:
        stack = stack[:, :, None]
    if stack.ndim != 3 or stack.shape[2] == 0 or (square and stack.shape[0] != stack.shape[1]):
        wanted = "(n, n, M)" if square else "(n_test, n_train or n_support, M)"
        raise ValueError(f'kernels="precomputed" takes X of shape {wanted}, got shape {np.shape(X)}')
    if stack.dtype not in (np.float32, np.float64):
        stack = stack.astype(np.float64)
    place = _first_not_finite(stack)
    if place is not None:
        raise ValueError(f"X contains NaN or infinity: kernel {place[2]}, entry ({place[0]}, {place[1]})")
    if square and not stack.flags.c_contiguous and stack.nbytes <= free_memory() // 2:
        # A stack that was made of (M, n, n) by moving an axis: training reads the M values of a pair
        # together, again and again.
        stack = np.ascontiguousarray(stack)
    return stack


def check_kernel_stack(stack: np.ndarray, where: str = "X") -> None:
    """Raise ValueError unless every matrix is symmetric and passes cheap tests of positive semi-definiteness.

    Of a kernel store some rows and their columns are looked at: reading all of it could take longer than the
    training.
    """
    if isinstance(stack, StoreRows):
        some = np.unique(np.linspace(0, len(stack) - 1, min(len(stack), STORE_SAMPLE)).astype(int))
        stack = stack.entries(some, some)
    n = len(stack)
    diagonal = stack[np.arange(n), np.arange(n)].astype(np.float64)
    largest, asymmetry, excess = survey(stack, np.sqrt(np.maximum(diagonal, 0.0)), usable_cpus())
    bad = np.flatnonzero(asymmetry > SYMMETRY * largest)
    if len(bad):
        raise ValueError(
            f"kernel {bad[0]} of {where} is not symmetric: entries differ from their mirror image by "
            f"{asymmetry[bad[0]]:.3g}"
        )
    bad = np.flatnonzero(excess > DIAGONAL * largest)
    if len(bad):
        _name_excess(stack, int(bad[0]), diagonal, largest, where)
    trace = diagonal.sum(axis=0)
    low = diagonal.min(axis=0)
    bad = np.flatnonzero(low < -DEFINITENESS * np.maximum(largest, 1e-300))
    if len(bad):
        raise ValueError(
            f"kernel {bad[0]} of {where} is not positive semi-definite: its diagonal has an entry "
            f"{low[bad[0]]:.6g}"
        )
    values = quadratic_forms(stack, np.random.default_rng(0).normal(size=(FORMS, n)), usable_cpus())
    bad = np.argwhere(values < -DEFINITENESS * n * np.maximum(np.abs(trace), largest)[None] / np.sqrt(n))
    if len(bad):
        raise ValueError(
            f"kernel {bad[0][1]} of {where} is not positive semi-definite: a quadratic form of it is "
            f"{values[tuple(bad[0])]:.6g}"
        )


def _name_excess(stack: np.ndarray, m: int, diagonal: np.ndarray, largest: np.ndarray, where: str) -> None:
    """Raise ValueError for a matrix that breaks |k(i, j)| <= sqrt(k(i, i) k(j, j)), which holds for all
    positive semi-definite ones.
    """
    roots = np.sqrt(np.maximum(diagonal[:, m], 0.0))
    i, j = np.argwhere(np.abs(stack[:, :, m]) - np.outer(roots, roots) > DIAGONAL * largest[m])[0]
    raise ValueError(
        f"kernel {m} of {where} is not positive semi-definite: entry ({i}, {j}) is {stack[i, j, m]:.6g}, "
        "more than "
        f"its diagonal entries {diagonal[i, m]:.6g} and {diagonal[j, m]:.6g} allow"
    )


class MatrixColumns(NamedTuple):
    """Columns of a ready-made matrix that stand for rows that a model was fitted to.

    identity : of the matrix they were rows of (see `MatrixRows`), None if it is not known. numbers : (S,) of
    the rows in it.
    depth : matrices in the stack.
    """

    identity: str | None
    numbers: np.ndarray
    depth: int


def matrix_columns_of(X: Any) -> dict[str, MatrixColumns]:
    """The columns that stand for the rows of a `Views`, of all its ready-made matrices by name."""
    if not is_views(X) or not X.matrices:
        return {}
    rows = X.readable(X.matrices)
    return {
        name: MatrixColumns(part.identity, part.numbers, (*part.shape, 1)[2]) for name, part in rows.items()
    }


def _stacks_of_views(
    X: Any, kernels: list[Kernel], square: bool, columns: Mapping[str, MatrixColumns], cleared: Callable
) -> dict:
    stacks: dict[Any, Any] = {}
    for key in dict.fromkeys(
        kernel.statistic().view for kernel in kernels if isinstance(kernel, Precomputed)
    ):
        if is_store(key):
            continue
        name = view_name(dict.fromkeys(X.names), view_of(key))
        rows, known = X.readable([name]).get(name), columns.get(name)
        if rows is None and not square and known is not None:
            stacks[key] = np.zeros((len(X), len(known.numbers), known.depth))
        elif rows is None:
            raise ValueError(f"no row of X has {_where(key)}")
        elif not isinstance(rows, MatrixRows):
            stacks[key] = precomputed_stack(cleared(key, select(rows)), square)
        elif square and not rows.is_whole:
            if not rows.of_square:
                raise ValueError(
                    f"{_where(key)} is a matrix of shape {rows.shape}, whose columns are not its rows; fit "
                    "takes (n, n) or (n, n, M)"
                )
            stacks[key] = _square_part(rows, key)
        elif not square and known is not None and known.identity == rows.identity:
            stacks[key] = precomputed_stack(rows.columns(known.numbers), square)
        else:
            given = cleared(key, rows.given())
            stacks[key] = (
                StoreRows(given)
                if square and isinstance(given, KernelStore)
                else precomputed_stack(given, square)
            )
    return stacks


def _square_part(rows: MatrixRows, key: Any) -> np.ndarray | StoreRows:
    """The entries (n, n, M) between some rows of a matrix; those of a kernel store stay there."""
    if isinstance(rows.source, KernelStore):
        return StoreRows(PartOfStore(rows.source, rows.numbers))
    size = len(rows) ** 2 * int(np.prod(rows.shape[2:])) * rows.dtype.itemsize
    if size > free_memory():
        raise ValueError(
            f"the entries between the {len(rows)} rows of {_where(key)} take {size / 2**20:,.0f} MiB, more "
            "than there is memory; "
            "write a kernel store (raymkl.kernels.write_store), of which nothing stays in memory"
        )
    return precomputed_stack(rows.columns(rows.numbers), square=True)


def _as_it_came(key: Any, stack: Any) -> Any:
    return stack


def matrices_of(
    X: Any,
    kernels: list[Kernel],
    square: bool,
    columns: Mapping[str, MatrixColumns] | None = None,
    cleared: Callable[[Any, Any], Any] = _as_it_came,
) -> dict:
    """Stacks of the views that Precomputed kernels read, (rows, columns, M) each.

    columns : those that stand for the rows of a fitted model, by the name of the view: they are taken of rows
    of the matrix that it was fitted to. Other rows bring theirs, and where no row has the view there are
    zeros. cleared : what is made of a stack that was brought, by view key, before it is looked at.
    """
    stacks = _stacks_of_views(X, kernels, square, columns or {}, cleared) if is_views(X) else {}
    for kernel in kernels:
        if isinstance(kernel, Precomputed) and kernel.statistic().view not in stacks:
            key = kernel.statistic().view
            if square and is_store(key):
                stacks[key] = precomputed_stack(key, square)
            elif isinstance(X, sources.SourceInput | sources.Batch):
                raise ValueError(
                    f"{kernel!r} reads a matrix, which a path or Dataset of rows does not hold; "
                    + (
                        "write a kernel store (raymkl.kernels.write_store)"
                        if square
                        else "predict from a dict of arrays in memory"
                    )
                )
            else:
                given = X if key is None and not is_dict(X) else select(X, view_of(key))
                stacks[key] = precomputed_stack(cleared(key, given), square)
    for kernel in kernels:
        if isinstance(kernel, Precomputed) and kernel.index >= stacks[kernel.statistic().view].shape[2]:
            depth = stacks[kernel.statistic().view].shape[2]
            raise ValueError(f"{kernel!r} asks for matrix {kernel.index} of a stack that holds {depth}")
    return stacks


def is_matrix(kernel: Kernel) -> bool:
    return isinstance(kernel.statistic(), Matrices)


def count_rows(X: Any) -> int:
    """Number of examples, with a clear error for containers that have none."""
    n = n_rows(X)
    if n == 0:
        raise ValueError("X has 0 rows; at least one example is needed")
    return n
