"""X that is not in memory: paths and Datasets as inputs of the models.

fit       labels are read, all rows are looked at once, batch by batch (`survey`); the engine gets views of
          the source
predict   batch by batch, each as a `Batch`, which is a table that knows where it comes from
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ..data.lazy_rows import SourceView, Survey, ViewKind, renumbered, rows_of_table, shaped
from ..data.sources import RowSource, open_source
from ..data.strings import MOST_PADDING, lengths_of
from ..data.vector_columns import plain_schema, plain_table, width_and_dtype
from ..data.views import select, shown, view_key, view_of
from ..kernels.base import Kernel, check_non_negative
from ..kernels.defaults import SAMPLE, check_squares
from ..kernels.given import Absence
from ..kernels.pairs.families import group
from ..kernels.pairs.statistics import Statistic

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


# -- looking at all rows once ----------------------------------------------------------------------


def kinds_of(schema: pa.Schema, features: list[str], kernels: Sequence[Kernel]) -> dict[Any, ViewKind]:
    """How the views that the kernels read are made of the columns of a table."""
    kinds: dict[Any, ViewKind] = {}
    readers: dict[Any, Kernel] = {}
    for kernel in kernels:
        strings = kernel.string_views()
        for key in kernel.views:
            if key in kinds:
                if (kinds[key].reader is not None) != (key in strings):
                    where = kinds[key].where
                    raise ValueError(
                        f"{readers[key]!r} and {kernel!r} both read {where}, one as strings and one as "
                        "numbers; give them views"
                    )
                continue
            readers[key] = kernel
            columns = _columns_of(view_of(key), schema.names, features)
            if key in strings:
                kinds[key] = ViewKind(key, columns, np.dtype(np.uint8), reader=kernel)
            else:
                width, dtype = width_and_dtype(schema, columns)
                kinds[key] = ViewKind(key, columns, dtype, width)
                if width == 0:
                    raise ValueError(f"{kinds[key].where} has 0 feature(s) while a minimum of 1 is required.")
    return kinds


def _columns_of(view: Any, names: list[str], features: list[str]) -> tuple[str, ...]:
    """Columns that a view reads; an error that names what is not there."""
    if view is None:
        return tuple(features)
    wanted = list(view) if isinstance(view, list | tuple) else [view]
    if not wanted or any(not isinstance(name, str) or name not in names for name in wanted):
        # The table says which ones, in the words that it has for tables in memory.
        select(pa.table({name: pa.array([], pa.float64()) for name in features}), view)
    return tuple(wanted)


def survey(
    X: SourceInput, kernels: Sequence[Kernel], diagonals: bool = False, largest: bool = False
) -> dict[Any, SourceView]:
    """Views by key of all rows, after one look at them: numbers are finite, histograms not negative, strings
    fit their kernels.

    diagonals : keep k(x, x) of every kernel (n,). largest : keep the largest k(x, x) of kernels whose values
    have no natural bound.
    """
    kinds = kinds_of(X.source.schema, X.features, kernels)
    if not kinds:
        return {}
    seen = _Seen(kernels, kinds, diagonals, largest)
    for batch in _batches(X.source, X.features, _needed(kinds)):
        rows = rows_of_table(batch.table, kinds, batch.numbers)
        seen.add(rows, batch.numbers)
    found = seen.survey(X.source.n_rows)
    return {key: SourceView(X.source, seen.final(kind), survey=found) for key, kind in kinds.items()}


class _Seen:
    """What is known of the rows so far."""

    def __init__(self, kernels: Sequence[Kernel], kinds: dict, diagonals: bool, largest: bool):
        self.kernels, self.kinds = kernels, kinds
        self.found = Survey()
        self.first_rows: dict = {}
        self.longest, self.shortest, self.letters, self.rows = {}, {}, {}, 0
        self.keep = diagonals
        measured = [
            kernel
            for kernel in dict.fromkeys(kernels)
            if diagonals or (largest and _without_bound(kernel.statistic()))
        ]
        self.families = group(measured, join=True)
        self.parts: dict[Kernel, list[np.ndarray]] = {}

    def add(self, rows: dict, numbers: Sequence[int]) -> None:
        check(self.kernels, rows, numbers, self.kinds, self.first_rows)
        for key, array in rows.items():
            if self.kinds[key].reader is not None:
                lengths = lengths_of(array)
                self.longest[key] = max(self.longest.get(key, 0), int(lengths.max()))
                self.shortest[key] = min(self.shortest.get(key, int(lengths[0])), int(lengths.min()))
                self.letters[key] = self.letters.get(key, 0) + int(lengths.sum())
                self.first_rows.setdefault(key, array[:1].copy())
                continue
            low, high = array.min(axis=0), array.max(axis=0)
            self.found.low[key] = np.minimum(self.found.low.get(key, low), low)
            self.found.high[key] = np.maximum(self.found.high.get(key, high), high)
        for family in self.families:
            t = family.statistic.diagonal(family.statistic.prepare(rows))
            for position, kernel in enumerate(family.kernels):
                values = np.asarray(family.values(position, t), np.float64)
                if self.keep:
                    self.parts.setdefault(kernel, []).append(values)
                else:
                    self.found.largest[kernel] = max(
                        self.found.largest.get(kernel, 0.0), float(np.abs(values).max())
                    )
        self.rows += len(numbers)

    def final(self, kind: ViewKind) -> ViewKind:
        """The kind with the width of the longest string, and whether padding would waste too much, as for
        strings in memory.
        """
        if kind.reader is None:
            return kind
        longest, key = self.longest[kind.key], kind.key
        wasteful = self.shortest[key] < longest and self.rows * longest > MOST_PADDING * self.letters[key]
        return replace(kind, width=longest, sparse=wasteful)

    def survey(self, n_rows: int) -> Survey:
        if self.rows != n_rows:
            raise ValueError(f"the source has {n_rows} rows by its description, but {self.rows} were read")
        self.found.diagonals = {kernel: np.concatenate(parts) for kernel, parts in self.parts.items()}
        return self.found


def _without_bound(statistic: Statistic) -> bool:
    return statistic.cacheable and not statistic.non_negative


def check(
    kernels: Sequence[Kernel], rows: dict, numbers: Sequence[int], kinds: dict, first_rows: dict | None = None
) -> None:
    """Raise ValueError for rows that a kernel cannot compare.

    first_rows : row 0 of views of strings, to compare lengths with.
    """
    try:
        check_squares(rows, kernels, lambda key, column: kinds[key].label(column))
    except ValueError as error:
        raise renumbered(error, numbers) from None
    for kernel in dict.fromkeys(kernels):
        check_non_negative({key: rows[key] for key in kernel.histogram_views()}, kernel)
        strings = [key for key in kernel.string_views() if first_rows and key in first_rows]
        try:
            if strings:
                joined, again = (
                    {**rows, **{key: _below(first_rows[key], rows[key]) for key in strings}},
                    [0, *numbers],
                )
                kernel.check_rows(joined)
            else:
                again = numbers
                kernel.check_rows(rows)
        except ValueError as error:
            raise renumbered(error, again) from None


def _below(first: Any, others: Any) -> Any:
    """Packed strings one below the other."""
    from scipy.sparse import vstack

    width = max(first.shape[1], others.shape[1])
    return vstack([shaped(first, width, True), shaped(others, width, True)]).tocsr()


def rows_of_batch(X: Batch, kernels: Sequence[Kernel]) -> dict:
    """Rows by view key of a part of a source, checked."""
    kinds = kinds_of(X.table.schema, X.features, kernels)
    rows = rows_of_table(X.table, kinds, X.numbers)
    check(kernels, rows, X.numbers, kinds)
    return rows


def sample(X: SourceInput) -> Batch:
    """As many rows as a default bank of kernels is made from, evenly spaced."""
    n = X.source.n_rows
    rows = np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(int))
    return Batch(X.source.take(rows, X.features), rows, X.features)


def known_diagonal(kernel: Kernel, rows: dict) -> np.ndarray | None:
    """k(x, x) (n,) of rows that stay in their source; None for rows in memory."""
    view = _lazy(kernel, rows)
    if view is None:
        return None
    if kernel not in view.survey.diagonals:
        view.survey.diagonals.update(_again(kernel, view, diagonals=True).diagonals)
    return view.survey.diagonals[kernel]


def known_largest(kernel: Kernel, rows: dict) -> float | None:
    """Largest |k(x, x)| of rows that stay in their source; None for rows in memory."""
    view = _lazy(kernel, rows)
    if view is None:
        return None
    if kernel not in view.survey.largest:
        view.survey.largest[kernel] = float(np.abs(known_diagonal(kernel, rows)).max())
    return view.survey.largest[kernel]


def _lazy(kernel: Kernel, rows: dict) -> SourceView | None:
    return next((rows[key] for key in kernel.views if isinstance(rows[key], SourceView)), None)


def _again(kernel: Kernel, view: SourceView, diagonals: bool) -> Survey:
    """Another look, for a kernel that was not asked for in the first one."""
    features = list(view.kind.columns) if view.kind.key is None else view.source.column_names
    X = SourceInput(view.source)
    X.features = features
    found = survey(X, [kernel], diagonals=diagonals)
    return next(iter(found.values())).survey


# -- predicting ------------------------------------------------------------------------------------


def batches_to_predict(model: Any, X: SourceInput) -> Iterator[Batch]:
    """All rows of a source for a fitted model, batch by batch."""
    columns, features = _columns_to_predict(model, X)
    return _batches(X.source, features, columns)


def batch_of(model: Any, table: pa.Table) -> Batch | pa.Table:
    """A table of a Dataset, all of it, as a batch for a fitted model; a `TableModel` takes it as it is."""
    if hasattr(model, "preparation"):
        return table
    table = plain_table(table, plain_schema(table.schema, table, "the Dataset"), 0, "the Dataset")
    columns, features = _columns_to_predict(model, TableInput(table))
    return Batch(table.select(columns), range(table.num_rows), features)


class TableInput:
    """A table in the place of a `SourceInput`, as far as its columns go."""

    def __init__(self, table: pa.Table):
        self.source, self.features = table, list(table.column_names)


def whole_to_predict(model: Any, X: SourceInput) -> Batch:
    """The same in one piece, for what is not made for streams; an error when it is too large."""
    return X.in_memory(*_columns_to_predict(model, X))


def _columns_to_predict(model: Any, X: SourceInput) -> tuple[list[str], list[str]]:
    """Columns that a fitted model reads, and those that a view of everything reads; other columns do not
    matter.
    """
    features = [str(name) for name in getattr(model, "feature_names_in_", X.features)]
    keys = _views_read(model)
    if None in keys:
        missing = [name for name in features if name not in X.source.column_names]
        if missing:
            where = "the Dataset" if isinstance(X.source, pa.Table) else X.source
            raise ValueError(f"{where} has no column {missing[0]!r}, which the model was fitted to")
    columns = [
        name
        for key in keys
        for name in _columns_of(
            view_of(key), X.source.column_names, features if key is None else X.source.column_names
        )
    ]
    return list(dict.fromkeys(columns)), features


def check_widths(rows: dict, support_rows: dict) -> None:
    """Raise ValueError when rows have another number of features than the model was fitted to."""
    for key, array in rows.items():
        fitted = support_rows.get(key)
        if fitted is not None and fitted.dtype.kind == "f" and fitted.shape[1] != array.shape[1]:
            where = "X" if key is None else f"view {view_of(key)!r} of X"
            raise ValueError(
                f"{where} has {array.shape[1]} features, but the model was fitted to {fitted.shape[1]}"
            )


def _views_read(model: Any) -> list:
    """Keys of the views that a fitted model reads, for its kernels and for its gates."""
    if not hasattr(model, "kernels_"):  # a mixture reads all columns
        return [None]
    keys = [key for kernel in model.kernels_ if not isinstance(kernel, Absence) for key in kernel.views]
    for value in model.get_params(deep=False).values():
        keys += value.views if isinstance(value, Kernel) else ()
    if hasattr(model, "gating_view"):
        keys.append(view_key(model.gating_view))
    return list(dict.fromkeys(keys))


def _batches(source: RowSource, features: list[str], columns: list[str]) -> Iterator[Batch]:
    at = 0
    for table in source.iterate(columns):
        numbers = range(at, at + table.num_rows)
        yield Batch(table, numbers, features)
        at = numbers.stop


def _needed(kinds: dict[Any, ViewKind]) -> list[str]:
    return list(dict.fromkeys(name for kind in kinds.values() for name in kind.columns))
