"""Rows by view key of any container in memory: numbers as floats, strings packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...data.strings import select_strings
from ...data.views import column_label, is_views, select, view_name, view_of, where_of
from ...kernels.base import Kernel, check_non_negative
from ...kernels.defaults import check_squares
from .. import sources
from .numbers import numeric


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
                    else numeric(select(X, view_of(key)), key, X)
                )
            elif readers[key][1] != (key in strings):
                raise ValueError(
                    f"{readers[key][0]!r} and {kernel!r} both read {where_of(key)}, one as strings and one "
                    "as numbers; give them views"
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
                f"no row of X has {where_of(key)}, which {next(k for k in kernels if key in k.views)!r} reads"
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
                    else numeric(select(views, view_of(key)), key, views)
                )
    return {**rows, **{key: _copies(spare[key], len(X)) for key in bare}}


def _copies(rows: Any, n: int) -> Any:
    """n copies of the first of some rows; zeros where there are none."""
    if rows.shape[0]:
        return rows[np.zeros(n, int)]
    empty = sp.csr_matrix if sp.issparse(rows) else np.zeros
    return empty((n, *rows.shape[1:]), dtype=rows.dtype)
