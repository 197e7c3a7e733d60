"""Named columns in memory, what may be asked of them, and what is said about those that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


class DataError(ValueError):
    """Something about a data file that its owner must change; the text says what and where."""


@dataclass
class Columns:
    """Named columns with one row per example.

    source : what to call it in messages, mostly a path.
    arrays : name -> (n,) numbers or text, (n, width) numbers, or a CSR matrix (n, width).
    target : the column of labels when the format has one of its own (`y`), else None.
    features : the columns that are features when the format says so (`X`, the views), else None: all but the
    target.
    first : number of the first row in the file, for errors.
    """

    source: str
    arrays: dict[str, Any]
    target: str | None = None
    features: list[str] | None = None
    first: int = 0

    @property
    def n_rows(self) -> int:
        return 0 if not self.arrays else int(next(iter(self.arrays.values())).shape[0])

    @property
    def names(self) -> list[str]:
        return list(self.arrays)

    def array(self, name: str) -> Any:
        """A column as it is; an error that says which ones there are when it is not there."""
        if name not in self.arrays:
            raise DataError(f"{self.source} has no column {name!r}; columns: {short(self.names)}")
        return self.arrays[name]

    def holds_numbers(self, name: str) -> bool:
        return is_numeric(self.array(name))

    def loaded(self) -> Columns:
        """The same columns in memory."""
        return self

    def labels(self, target: str | None) -> np.ndarray:
        """(n,) labels out of the column `target`; an error that names it when it is not there or has gaps."""
        name = self.target if target is None else target
        if name is None:
            raise DataError(
                f"{self.source}: say which column holds the labels (--target NAME); columns: "
                f"{short(self.names)}"
            )
        if name not in self.names:
            raise DataError(
                f"{self.source} has no column {name!r} (the target); columns: {short(self.names)}"
            )
        labels = self.array(name)
        if sp.issparse(labels) or labels.ndim != 1:
            raise DataError(
                f"{self.source}: the target column {name!r} holds vectors of {labels.shape[1]} numbers, not "
                "labels"
            )
        missing = _missing(labels)
        if missing.any():
            raise DataError(
                f"{self.source}: the target column {name!r} has no label in row {self._row(missing)}"
            )
        return _whole(labels)

    def feature_names(self, target: str | None) -> list[str]:
        """Names of all columns but the target."""
        target = self.target if target is None else target
        return [name for name in (self.features or self.names) if name != target]

    def text_columns(self, names: list[str]) -> list[str]:
        """Those of `names` that do not hold numbers."""
        return [name for name in names if not self.holds_numbers(name)]

    def numbers(self, name: str) -> Any:
        """(n, width) floats or CSR of one column; an error that names it for text, missing and infinite
        values.
        """
        array = self.array(name)
        if not is_numeric(array):
            raise DataError(
                f"{self.source}: column {name!r} does not hold numbers (its first entry is {array[0]!r})"
            )
        if sp.issparse(array):
            array = array.tocsr()
            values = array.data
        else:
            array = array.reshape(len(array), -1)
            array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
            values = array
        if not np.isfinite(values).all():
            raise DataError(
                f"{self.source}: {_where_not_finite(name, array, self.first)}; missing and infinite values "
                "must be dealt with first"
            )
        return array

    def text(self, name: str) -> np.ndarray:
        """(n,) strings of one column."""
        array = self.array(name)
        if is_numeric(array):
            raise DataError(f"{self.source}: column {name!r} holds numbers, a string kernel needs text")
        if _missing(array).any():
            raise DataError(f"{self.source}: column {name!r} has no text in row {self._row(_missing(array))}")
        return array.astype(str)

    def _row(self, where: np.ndarray) -> int:
        """Number of the first row that is marked in (n,)."""
        return self.first + int(np.flatnonzero(where)[0])


def is_numeric(array: Any) -> bool:
    """Whether a column holds numbers (or truth values)."""
    return sp.issparse(array) or array.dtype.kind in "fiub"


def _missing(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "O":
        return np.array([value is None or value != value or value == "" for value in array], bool)
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(len(array), bool)


def _whole(labels: np.ndarray) -> np.ndarray:
    """Labels that are whole numbers stored as floats become whole numbers; text becomes text."""
    if (
        labels.dtype.kind == "f"
        and np.all(labels == np.rint(labels))
        and np.abs(labels).max(initial=0) < 2**53
    ):
        return labels.astype(np.int64)
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        return labels.astype(str)
    return labels


def _where_not_finite(name: str, array: Any, first: int) -> str:
    if sp.issparse(array):
        position = int(np.flatnonzero(~np.isfinite(array.data))[0])
        row, column, value = (
            int(np.searchsorted(array.indptr, position, "right") - 1),
            int(array.indices[position]),
            array.data[position],
        )
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        value = array[row, column]
    place = (
        f"column {name!r}"
        if array.shape[1] == 1 and not sp.issparse(array)
        else f"column {column} of {name!r}"
    )
    return (
        f"{place} has {'a missing value (NaN)' if np.isnan(value) else 'an infinite value'} in row "
        f"{first + row}"
    )


def short(names: Any) -> str:
    """The first dozen of many names."""
    names = [str(name) for name in names]
    return ", ".join(names) if len(names) <= 12 else ", ".join(names[:12]) + f", ... ({len(names)} in all)"


def check_repeated(names: list[str], source: str) -> None:
    """Raise DataError if two columns have one name."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{source} has several columns of the name {repeated[0]!r}")
