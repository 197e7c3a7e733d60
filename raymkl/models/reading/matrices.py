"""Ready-made matrices among what a user passes: stacks (rows, columns, M) of the views that they are in."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...data.multiview.matrix_rows import MatrixRows
from ...data.store import KernelStore, PartOfStore, StoreRows, is_store
from ...data.views import is_dict, is_views, select, unmasked, view_name, view_of, where_of
from ...engine.resources import free_memory
from ...kernels.base import Kernel
from ...kernels.given import Precomputed
from ...kernels.pairs.statistics import Matrices
from .. import sources
from .numbers import first_not_finite


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
    place = first_not_finite(stack)
    if place is not None:
        raise ValueError(f"X contains NaN or infinity: kernel {place[2]}, entry ({place[0]}, {place[1]})")
    if square and not stack.flags.c_contiguous and stack.nbytes <= free_memory() // 2:
        # A stack that was made of (M, n, n) by moving an axis: training reads the M values of a pair
        # together, again and again.
        stack = np.ascontiguousarray(stack)
    return stack


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
            raise ValueError(f"no row of X has {where_of(key)}")
        elif not isinstance(rows, MatrixRows):
            stacks[key] = precomputed_stack(cleared(key, select(rows)), square)
        elif square and not rows.is_whole:
            if not rows.of_square:
                raise ValueError(
                    f"{where_of(key)} is a matrix of shape {rows.shape}, whose columns are not its rows; fit "
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
            f"the entries between the {len(rows)} rows of {where_of(key)} take {size / 2**20:,.0f} MiB, more "
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
