"""Paths and Datasets as X and y of a model: a source, a part of it, and labels out of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...data.sources import RowSource, open_source
from ...data.vector_columns import width_and_dtype
from ...data.views import shown

# Labels are read so many rows at a time.
LABEL_ROWS = 65_536
# What is not made for streams (contributions, memberships, searches) reads sources up to this size into
# memory.
MOST_IN_MEMORY = 2 * 2**30


class SourceInput:
    """A source as X of a model.

    label : column that is not a feature, or None. named : whether its columns have names that count.
    """

    def __init__(self, source: RowSource, label: str | None = None, named: bool = True):
        self.source, self.label, self.named = source, label, named
        self.features = [name for name in source.column_names if name != label]
        if not self.features:
            raise ValueError(
                f"{source} has no column besides the label column {label!r}; at least one feature is needed"
            )

    @property
    def shape(self) -> tuple[int, int]:
        return (self.source.n_rows, width_and_dtype(self.source.schema, self.features)[0])

    def in_memory(self, columns: list[str] | None = None, features: list[str] | None = None) -> Batch:
        """All rows as one batch, if they are few enough.

        columns : to read, all features if None. features : see `Batch`.
        """
        columns = self.features if columns is None else columns
        n, size = self.source.n_rows, self.source.n_rows * self.source.row_bytes(columns)
        if size > MOST_IN_MEMORY:
            raise ValueError(
                f"{self.source} has {n} rows, about {size / 2**20:,.0f} MiB, but this reads X into memory "
                "and takes at most "
                f"{MOST_IN_MEMORY / 2**20:,.0f} MiB of a path or Dataset; pass X in parts, as pyarrow.Table"
            )
        return Batch(
            self.source.read(0, n, columns), range(n), self.features if features is None else features
        )


class Batch:
    """Some rows of a source.

    numbers : (n,) of the rows in the source, for errors. features : columns that a view of everything reads.
    """

    def __init__(self, table: pa.Table, numbers: Sequence[int], features: list[str]):
        self.table, self.numbers, self.features = table, numbers, features

    @property
    def shape(self) -> tuple[int, int]:
        return (self.table.num_rows, self.table.num_columns)


def source_of(X: Any, y: Any = None) -> tuple[Any, Any]:
    """X and y as a model takes them: paths and Datasets become a `SourceInput`, and the name of a label
    column its labels (n,).
    """
    if isinstance(X, SourceInput | Batch):
        return X, known_labels(y)
    source = open_source(X)
    if source is None:
        if isinstance(y, str):
            raise ValueError(
                f"y={y!r} is the name of a column, which is accepted when X is a path or a Dataset; "
                f"X is a {type(X).__name__}, so y must be (n,) values"
            )
        return X, known_labels(y)
    if not isinstance(y, str):
        return SourceInput(source), known_labels(y)
    return SourceInput(source, y), labels_of(source, y)


def known_labels(y: Any) -> Any:
    """y, if no entry of it is masked."""
    mask = np.asarray(getattr(y, "mask", False)) if hasattr(y, "filled") else np.zeros((), bool)
    if mask.any():
        raise ValueError(
            f"y contains NaN (a masked value) in row {int(np.argwhere(mask)[0][0])}; labels must be known "
            "for every row"
        )
    return y


def loaded(X: Any, y: Any, estimator: Any = None) -> tuple[Any, Any]:
    """X and y in memory, for searches, which cut X into folds: a path or Dataset becomes a `pyarrow.Table` of
    its features.

    Raises ValueError when it is larger than `MOST_IN_MEMORY` bytes. The path of a kernel store
    (kernels="precomputed") stays a path.
    """
    kernels = getattr(estimator, "kernels", None)
    if isinstance(kernels, str) and kernels == "precomputed":
        return X, y
    X, y = source_of(X, y)
    return (X.in_memory().table if isinstance(X, SourceInput) else X), y


def labels_of(source: RowSource, name: str) -> np.ndarray:
    """(n,) labels out of a column; errors name the column and the row of a missing one."""
    if name not in source.column_names:
        names = source.column_names
        raise ValueError(f"y={name!r} is not a column of {source}, whose columns are {shown(names)}")
    kind = source.schema.field(name).type
    if pa.types.is_nested(kind):
        raise ValueError(f"y={name!r} is a column of type {kind}; labels are one number or one text per row")
    parts, at = [], 0
    for table in source.iterate([name], LABEL_ROWS):
        column = table.column(name)
        if column.null_count:
            row = next(row for row, value in enumerate(column) if not value.is_valid)
            raise ValueError(
                f"y={name!r}: the column has no label in row {at + row}; labels must be known for every row"
            )
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        values = column.to_numpy()
        if values.dtype == object and isinstance(values[0], str):
            values = values.astype(str)
        parts.append(values)
        at += len(values)
    return np.concatenate(parts)
