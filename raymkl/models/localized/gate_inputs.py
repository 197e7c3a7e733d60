"""What decides about gates: checks of `gating_kernel` and `gating_view`, and the rows that they read.

Clusters live in a kernel's feature space, scores of a softmax in one too or in that of the vectors
themselves. The kernel may be the mean of all, one of them by its number, or one of its own, which may read
views that no other kernel reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from ...data.views import where_of
from ...kernels.base import Kernel
from .. import reading
from ..missing.presence import refuse


def check_choice(kernel: Any, optional: bool) -> None:
    """Raise ValueError unless gating_kernel is "uniform", a number, a kernel or, where it is optional,
    None.
    """
    named = isinstance(kernel, str) and kernel == "uniform"
    if not (named or isinstance(kernel, Kernel) or is_number(kernel) or (optional and kernel is None)):
        accepted = 'None, "uniform"' if optional else '"uniform"'
        raise ValueError(
            f"gating_kernel must be {accepted}, the number of a kernel, or a kernel; got {kernel!r}"
        )


def is_number(kernel: Any) -> bool:
    """Whether gating_kernel chooses one of the kernels by its number."""
    return isinstance(kernel, Integral) and not isinstance(kernel, bool)


def check_number(kernel: Any, n_kernels: int) -> None:
    """Raise ValueError when gating_kernel is the number of a kernel that there is not."""
    if is_number(kernel) and not 0 <= kernel < n_kernels:
        raise ValueError(
            f"gating_kernel={kernel!r} is not the number of a kernel: there are {n_kernels}, numbered from 0"
        )


def rows_for(
    source: Kernel,
    what: str,
    X: Any,
    rows: dict,
    kernels: list[Kernel],
    columns: Mapping[str, reading.MatrixColumns] | None,
) -> dict:
    """The rows by view key together with those that `source` reads.

    source : the kernel that reads them. what : the argument it comes from, for errors. X : container. rows,
    kernels : what is read already, and by which kernels. columns : of ready-made matrices that stand for the
    training rows; None for training rows themselves.
    """
    refuse(X, [source], what)
    if reading.is_matrix(source):
        found = reading.matrices_of(X, [source], columns is None, columns)
    else:
        _refuse_matrices(source, what, rows)
        _refuse_other_reading(source, what, rows, kernels)
        try:
            found = reading.rows_of(X, [source])
        except ValueError as error:
            raise ValueError(f"{what} cannot read its view: {error}") from None
        _refuse_matrices(source, what, found)
    joined = {**found, **rows}
    lengths = {key: array.shape[0] for key, array in joined.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the views of X have different numbers of rows: {lengths}")
    return joined


def _refuse_matrices(source: Kernel, what: str, rows: dict) -> None:
    for key in source.views:
        if getattr(rows.get(key), "ndim", 2) == 3:
            raise ValueError(
                f"{what} needs vectors, but {where_of(key)} holds ready-made matrices; name a view of "
                "vectors, or let one of the matrices "
                'decide (gating_kernel="uniform" or its number)'
            )


def _refuse_other_reading(source: Kernel, what: str, rows: dict, kernels: list[Kernel]) -> None:
    as_strings = {key for kernel in kernels for key in kernel.string_views()}
    for key in source.views:
        if key in rows and (key in as_strings) != (key in source.string_views()):
            there, wanted = ("strings", "numbers") if key in as_strings else ("numbers", "strings")
            raise ValueError(
                f"{what} reads {where_of(key)} as {wanted}, the kernels read it as {there}; give it a view "
                "of its own"
            )


def check_columns(views: list, rows: dict, n_train: int, what: str) -> None:
    """Raise ValueError when ready-made matrices lack columns of training rows, of which the gates of new
    examples are made.
    """
    for view in views:
        shape = rows[view].shape
        if len(shape) == 3 and shape[1] != n_train:
            raise ValueError(
                f"X has shape {shape}, but the {what} need ready-made matrices with the columns of all "
                f"{n_train} training rows"
            )
