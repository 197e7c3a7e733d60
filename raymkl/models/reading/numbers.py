"""Views of numbers: as floats, all of them finite, or an error that names the first place that is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...data.views import column_label, view_of, where_of

# Bytes whose finiteness is checked at a time.
CHECKED_BYTES = 2**22


def numeric(array: Any, key: Any, X: Any) -> Any:
    """The same numbers as floats, all finite; X and key say what columns are called."""
    where = where_of(key)

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
        array = floats(array, where, label)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {where} has dtype {array.dtype}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if array.ndim >= 2 and array.shape[1] == 0:
        raise ValueError(f"{where} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    place = first_not_finite(array)
    if place is not None:
        _complain(array[place], where, place[0], label(place[1] if len(place) > 1 else 0))
    return array


def floats(array: np.ndarray, where: str, label: Callable[[int], str]) -> np.ndarray:
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


def first_not_finite(array: np.ndarray) -> tuple[int, ...] | None:
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
