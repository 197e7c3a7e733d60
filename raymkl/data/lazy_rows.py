"""Rows that stay in their source until a shard needs them.

`rows` everywhere in the engine is a dict from view key to an array. A `SourceView` stands there in the place
of an array: it knows its shape and dtype, slices of it are views of fewer rows, and it is small enough to
travel. Whoever computes turns it into an array:

    driver       looks at all rows once, batch by batch, and fetches the support vectors in the end
    shard        reads its own rows (`resolved`), batch by batch, into arrays of their final shape and dtype;
                 those of views that are `streamed` stay where they are, and are read as often as they are
                 wanted (`WindowReader`)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from .sources import RowSource
from .strings import lengths_of, select_strings
from .views import is_sparse, select, view_of, where_of

_ROW = re.compile(r"\brow (\d+)")


@dataclass(frozen=True)
class ViewKind:
    """How the rows of a view are made of columns of a table.

    columns : their names. dtype : of the array. width : its columns. reader : kernel that reads the view as
    strings, None for numbers.
    sparse : strings are rows of a CSR matrix (see `kernels.sequences`).
    """

    key: Any
    columns: tuple[str, ...]
    dtype: Any
    width: int = 0
    reader: Any = None
    sparse: bool = False

    @property
    def where(self) -> str:
        return where_of(self.key)

    def label(self, column: int) -> str:
        """What to call a column of the array in an error."""
        if len(self.columns) == self.width:
            return repr(self.columns[column])
        return f"{self.columns[0]!r} (entry {column})" if len(self.columns) == 1 else str(column)


@dataclass
class Survey:
    """What one look at all rows has shown: per view the smallest and largest value of every column, per
    kernel its k(x, x).
    """

    low: dict = field(default_factory=dict)
    high: dict = field(default_factory=dict)
    largest: dict = field(default_factory=dict)
    diagonals: dict = field(default_factory=dict)


class SourceView:
    """Rows first <= i < last of a view, in the place of an array (last - first, width)."""

    ndim = 2
    in_source = True

    def __init__(
        self,
        source: RowSource,
        kind: ViewKind,
        first: int = 0,
        last: int | None = None,
        survey: Survey | None = None,
        streamed: bool = False,
    ):
        """streamed : whether shards leave the rows where they are, too."""
        self.source, self.kind, self.streamed = source, kind, streamed
        self.first, self.last = first, source.n_rows if last is None else last
        self.survey = survey

    @property
    def shape(self) -> tuple[int, int]:
        return (self.last - self.first, self.kind.width)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.kind.dtype)

    def __len__(self) -> int:
        return self.last - self.first

    def __getstate__(self) -> dict:
        return {**vars(self), "survey": None}  # the driver's alone

    def astype(self, dtype: Any, copy: bool = True) -> SourceView:
        """The same rows as numbers of another dtype."""
        return SourceView(
            self.source,
            replace(self.kind, dtype=np.dtype(dtype)),
            self.first,
            self.last,
            self.survey,
            self.streamed,
        )

    def streaming(self) -> SourceView:
        """The same rows, never to be read all at once."""
        return SourceView(self.source, self.kind, self.first, self.last, self.survey, streamed=True)

    def min(self, axis: int = 0) -> np.ndarray:
        """(width,) smallest value of every column, as the survey has found it."""
        return self.survey.low[self.kind.key]

    def max(self, axis: int = 0) -> np.ndarray:
        """(width,) largest value of every column."""
        return self.survey.high[self.kind.key]

    def __getitem__(self, index: Any) -> Any:
        """A view of fewer rows for a slice, the rows themselves for an array of row numbers."""
        if not isinstance(index, slice):
            return fetch({self.kind.key: self}, index)[self.kind.key]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise ValueError("rows of a source can only be taken in one piece, or by their numbers")
        return SourceView(
            self.source,
            self.kind,
            self.first + start,
            self.first + max(stop, start),
            self.survey,
            self.streamed,
        )

    def fingerprint(self) -> str:
        """What the rows are, for checkpoints."""
        return json.dumps(
            [
                self.source.fingerprint(),
                repr(self.kind.key),
                self.kind.columns,
                self.first,
                self.last,
                self.dtype.str,
            ]
        )


def resolved(rows: Mapping) -> dict:
    """The same rows as arrays: those of sources are read, all views of a source in one pass."""
    arrays = dict(rows)
    for views in _by_source(
        {key: array for key, array in rows.items() if not getattr(array, "streamed", False)}
    ):
        some = next(iter(views.values()))
        kinds = {key: view.kind for key, view in views.items()}
        filled = _Filled(kinds, len(some))
        at = some.first
        for table in some.source.stream(some.first, some.last, _columns(kinds)):
            numbers = range(at, at + table.num_rows)
            filled.add(slice(at - some.first, numbers.stop - some.first), table, numbers)
            at = numbers.stop
        arrays.update(filled.arrays())
    return arrays


def fetch(rows: Mapping, ids: Any) -> dict:
    """Rows of the given numbers (k,) of every view as arrays; of sources, only portions that hold some of
    them are read.
    """
    lazy = _by_source(rows)
    known = {key for views in lazy for key in views}
    arrays = {key: array[ids] for key, array in rows.items() if key not in known}
    for views in lazy:
        some = next(iter(views.values()))
        wanted = np.asarray(ids)
        wanted = np.flatnonzero(wanted) if wanted.dtype == bool else wanted
        numbers, places = np.unique(wanted + some.first, return_inverse=True)
        kinds = {key: view.kind for key, view in views.items()}
        filled = _Filled(kinds, len(numbers))
        for part, table in some.source.pick(numbers, _columns(kinds)):
            filled.add(part, table, numbers[part])
        in_order = np.array_equal(places, np.arange(len(numbers)))
        arrays.update({key: array if in_order else array[places] for key, array in filled.arrays().items()})
    return arrays


def _by_source(rows: Mapping) -> list[dict]:
    """Views of sources, those of the same rows of one source together."""
    found: dict[tuple, dict] = {}
    for key, array in rows.items():
        if isinstance(array, SourceView):
            found.setdefault((id(array.source), array.first, array.last), {})[key] = array
    return list(found.values())


def _columns(kinds: Mapping[Any, ViewKind]) -> list[str]:
    return list(dict.fromkeys(name for kind in kinds.values() for name in kind.columns))


class _Filled:
    """Arrays that are filled part by part, so that rows are in memory once and not twice."""

    def __init__(self, kinds: Mapping[Any, ViewKind], n: int):
        self.kinds, self.n = kinds, n
        self.parts: dict = {
            key: [] if kind.sparse else np.empty((n, kind.width), kind.dtype) for key, kind in kinds.items()
        }

    def add(self, part: slice, table: pa.Table, numbers: Sequence[int]) -> None:
        for key, array in rows_of_table(table, self.kinds, numbers).items():
            if self.kinds[key].sparse:
                self.parts[key].append(array)
            else:
                self.parts[key][part] = array

    def arrays(self) -> dict:
        return {
            key: self._joined(key) if kind.sparse else self.parts[key] for key, kind in self.kinds.items()
        }

    def _joined(self, key: Any) -> Any:
        from scipy.sparse import csr_matrix, vstack

        return (
            vstack(self.parts[key]).tocsr()
            if self.parts[key]
            else csr_matrix((self.n, self.kinds[key].width), dtype=np.uint8)
        )


# -- from tables to arrays -------------------------------------------------------------------------


def rows_of_table(table: pa.Table, kinds: Mapping[Any, ViewKind], numbers: Sequence[int]) -> dict:
    """Arrays by view key of a part of a source, checked.

    numbers : (n,) of its rows in the source, for errors.
    """
    return {
        key: _strings(table, kind, numbers) if kind.reader is not None else _numbers(table, kind, numbers)
        for key, kind in kinds.items()
    }


def _numbers(table: pa.Table, kind: ViewKind, numbers: Sequence[int]) -> np.ndarray:
    """(n, width) finite numbers; errors name the column and the row."""
    parts = [_column(table, name, kind, numbers) for name in kind.columns]
    array = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    array = array.astype(kind.dtype, copy=False)
    if not np.isfinite(array).all():
        row, column = (int(place) for place in np.argwhere(~np.isfinite(array))[0])
        edges = np.cumsum([part.shape[1] for part in parts])
        which = int(np.searchsorted(edges, column, "right"))
        inner = column - int(edges[which] - parts[which].shape[1])
        name = (
            repr(kind.columns[which])
            if parts[which].shape[1] == 1
            else f"{kind.columns[which]!r} (entry {inner})"
        )
        what = "NaN" if np.isnan(array[row, column]) else "infinity"
        raise ValueError(
            f"{kind.where} contains {what} in column {name} (row {int(numbers[row])}); missing and infinite "
            "values must be dealt with first"
        )
    return array


def _column(table: pa.Table, name: str, kind: ViewKind, numbers: Sequence[int]) -> np.ndarray:
    column = table.column(name)
    if pa.types.is_temporal(column.type) or (
        pa.types.is_nested(column.type) and not pa.types.is_fixed_size_list(column.type)
    ):
        raise ValueError(
            f"{kind.where} has entries that are not numbers: column {name!r} holds values of type "
            f"{column.type}"
        )
    if column.null_count:
        row = next(row for row, value in enumerate(column) if not value.is_valid)
        raise ValueError(
            f"{kind.where} contains NaN (a missing value) in column {name!r} (row {int(numbers[row])}); "
            "missing values must be dealt with first"
        )
    array = select(table, name)
    if array.dtype.kind in "OUS":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{kind.where} has entries that are not numbers: column {name!r} holds {column.type} "
                f"({error})"
            ) from None
    return array


def _strings(table: pa.Table, kind: ViewKind, numbers: Sequence[int]) -> Any:
    """Packed strings: as they come while the longest one is not known (width 0), else of the final shape."""
    try:
        rows = select_strings(
            table.select(kind.columns), view_of(kind.key) if len(kind.columns) == 1 else None, kind.reader
        )
    except ValueError as error:
        raise renumbered(error, numbers) from None
    return rows if kind.width == 0 else shaped(rows, kind.width, kind.sparse)


def renumbered(error: ValueError, numbers: Sequence[int]) -> ValueError:
    """An error about a part of the rows with the numbers that rows have in the whole."""
    return ValueError(_ROW.sub(lambda found: f"row {int(numbers[int(found[1])])}", str(error)))


def shaped(rows: Any, width: int, sparse: bool) -> Any:
    """Packed strings (n, longest) as an array (n, width) padded with zeros, or as a CSR matrix."""
    if not sparse:
        dense = rows.toarray() if is_sparse(rows) else rows
        return dense if dense.shape[1] == width else np.pad(dense, ((0, 0), (0, width - dense.shape[1])))
    from scipy.sparse import csr_matrix

    if is_sparse(rows):
        return csr_matrix((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))
    lengths = lengths_of(rows)
    inside = np.arange(rows.shape[1]) < lengths[:, None]
    places = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)[inside]
    return csr_matrix(
        (rows[inside], places, np.concatenate([[0], np.cumsum(lengths)])), shape=(len(rows), width)
    )


# -- rows that are read and forgotten --------------------------------------------------------------


class WindowReader:
    """Rows of views that stay in their source, read part by part in the order in which they lie there.

    views : all of one source.
    """

    def __init__(self, views: Mapping[Any, SourceView]):
        self.views = dict(views)
        self.some = next(iter(self.views.values()))
        self.kinds = {key: view.kind for key, view in self.views.items()}
        self.tables, self.at, self.rest = None, -1, None

    def __getstate__(self) -> dict:
        return {**vars(self), "tables": None, "at": -1, "rest": None}

    def read(self, first: int, last: int) -> dict:
        """Rows first <= i < last, counted from the views' own first row, as arrays by view key; from where
        the last ones ended, at best.
        """
        if self.at != first or self.tables is None:
            self.tables = self.some.source.stream(
                self.some.first + first, self.some.last, _columns(self.kinds)
            )
            self.at, self.rest = first, None
        filled = _Filled(self.kinds, last - first)
        while self.at < last:
            table = next(self.tables) if self.rest is None else self.rest
            here, self.rest = table.slice(0, last - self.at), None
            if here.num_rows < table.num_rows:
                self.rest = table.slice(here.num_rows)
            start = self.some.first + self.at
            filled.add(
                slice(self.at - first, self.at - first + here.num_rows),
                here,
                range(start, start + here.num_rows),
            )
            self.at += here.num_rows
        return filled.arrays()

    def parts(self, size: int) -> Iterator[tuple[slice, dict]]:
        """All rows, at most `size` at a time, with their numbers."""
        for start in range(0, len(self.some), size):
            part = slice(start, min(start + size, len(self.some)))
            yield part, self.read(part.start, part.stop)
        self.tables = None
