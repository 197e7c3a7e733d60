"""Looking at all rows of a source once, batch by batch: whether kernels can compare them, and what is known
of them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ...data.lazy_rows import SourceView, Survey, ViewKind, renumbered, rows_of_table, shaped
from ...data.sources import RowSource
from ...data.strings import MOST_PADDING, lengths_of
from ...data.vector_columns import width_and_dtype
from ...data.views import select, view_of
from ...kernels.base import Kernel, check_non_negative
from ...kernels.defaults import SAMPLE, check_squares
from ...kernels.pairs.families import group
from ...kernels.pairs.statistics import Statistic
from .inputs import Batch, SourceInput


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
            columns = columns_of(view_of(key), schema.names, features)
            if key in strings:
                kinds[key] = ViewKind(key, columns, np.dtype(np.uint8), reader=kernel)
            else:
                width, dtype = width_and_dtype(schema, columns)
                kinds[key] = ViewKind(key, columns, dtype, width)
                if width == 0:
                    raise ValueError(f"{kinds[key].where} has 0 feature(s) while a minimum of 1 is required.")
    return kinds


def columns_of(view: Any, names: list[str], features: list[str]) -> tuple[str, ...]:
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
    for batch in batches(X.source, X.features, _needed(kinds)):
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


def batches(source: RowSource, features: list[str], columns: list[str]) -> Iterator[Batch]:
    at = 0
    for table in source.iterate(columns):
        numbers = range(at, at + table.num_rows)
        yield Batch(table, numbers, features)
        at = numbers.stop


def _needed(kinds: dict[Any, ViewKind]) -> list[str]:
    return list(dict.fromkeys(name for kind in kinds.values() for name in kind.columns))
