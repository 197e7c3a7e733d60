"""What a row source is: a table whose rows are read when they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from ..vector_columns import has_fixed_width, plain_schema, plain_table, row_bytes
from ..views import shown

# Rows are streamed in batches of about this size.
BATCH_BYTES = 4 * 2**20
MOST_BATCH_ROWS = 65_536
# Rows that tell how long texts and lists are.
LOOK_ROWS = 64
# pandas writes the index of a frame as a column of such a name; it is not a feature.
INDEX_COLUMN = re.compile(r"__index_level_\d+__")


class RowSource:
    """A table with rows 0 <= i < n_rows that are read when they are asked for.

    schema : of the tables that are handed out. n_rows : int. counts : (k,) rows of each portion that is
    stored together (row group, record batch, block). Subclasses set them, call `_complete`, and give
    `_tables` and `fingerprint`. measured : bytes per row of columns without a fixed width.
    """

    schema: pa.Schema
    counts: np.ndarray
    measured: dict[str, float]
    kind = "table"

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @property
    def column_names(self) -> list[str]:
        """Names of the columns; indices that pandas has added are left out."""
        return [name for name in self.schema.names if not INDEX_COLUMN.fullmatch(name)]

    def fingerprint(self) -> str:
        """A text that is another one when the rows are other ones, without reading them where that can be
        avoided.
        """
        raise TypeError(f"{type(self).__name__} has no fingerprint")

    def _tables(self, portions: Sequence[int], columns: list[str], batch_rows: int) -> Iterator[pa.Table]:
        """All rows of some portions (ascending numbers), in order, in tables of at most `batch_rows` rows."""
        raise TypeError(f"{type(self).__name__} cannot be read")

    # -- reading -----------------------------------------------------------------------------------

    def row_bytes(self, columns: Sequence[str] | None = None) -> float:
        """About how many bytes a row of some columns takes in memory."""
        return row_bytes(self.schema, self.column_names if columns is None else columns, self.measured)

    def batch_rows(self, columns: Sequence[str] | None = None) -> int:
        """Rows of some columns that make up a batch of about `BATCH_BYTES`."""
        return int(min(MOST_BATCH_ROWS, max(1.0, BATCH_BYTES / max(self.row_bytes(columns), 1.0))))

    def iterate(
        self, columns: Sequence[str] | None = None, batch_rows: int | None = None
    ) -> Iterator[pa.Table]:
        """All rows in order, in tables of at most `batch_rows` rows; only one of them is in memory at a
        time.
        """
        return self.stream(0, self.n_rows, columns, batch_rows)

    def stream(
        self, first: int, last: int, columns: Sequence[str] | None = None, batch_rows: int | None = None
    ) -> Iterator[pa.Table]:
        """Rows first <= i < last in order, in tables of at most `batch_rows` rows.

        Portions without such rows are not touched.
        """
        edges = self._edges()
        if not 0 <= first <= last <= edges[-1]:
            raise ValueError(f"rows {first} to {last} were asked for, {self} has rows 0 to {edges[-1]}")
        if first == last:
            return
        portions = range(
            int(np.searchsorted(edges, first, "right")) - 1, int(np.searchsorted(edges, last, "left"))
        )
        for at, table in self._read_portions(portions, columns, batch_rows):
            start, stop = max(first - at, 0), min(last - at, table.num_rows)
            if start < stop:
                yield plain_table(table.slice(start, stop - start), self.schema, at + start, str(self))
            if at + table.num_rows >= last:
                return

    def read(self, first: int, last: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows first <= i < last as one table."""
        parts = list(self.stream(first, last, columns))
        return pa.concat_tables(parts) if parts else self._empty(columns)

    def take(self, ids: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of ascending numbers ids (k,) as one table."""
        found = [table for _, table in self.pick(ids, columns)]
        return pa.concat_tables(found) if found else self._empty(columns)

    def pick(self, ids: np.ndarray, columns: Sequence[str] | None = None) -> Iterator[tuple[slice, pa.Table]]:
        """Rows of ascending numbers ids (k,) in parts: which of them, and the table.

        Only portions that hold some of them are read.
        """
        ids, edges = np.asarray(ids, np.int64), self._edges()
        if len(ids) and not 0 <= ids[0] <= ids[-1] < edges[-1]:
            raise ValueError(
                f"rows {ids[0]} to {ids[-1]} were asked for, {self} has rows 0 to {edges[-1] - 1}"
            )
        holders = np.unique(np.searchsorted(edges, ids, "right") - 1)
        for _, run in groupby(enumerate(holders.tolist()), lambda pair: pair[1] - pair[0]):
            portions = [portion for _, portion in run]
            end = int(ids[np.searchsorted(ids, edges[portions[-1] + 1], "left") - 1])
            for at, table in self._read_portions(portions, columns, None):
                low, high = np.searchsorted(ids, [at, at + table.num_rows])
                if low < high:
                    # Copied out of the batch, which would stay in memory as a whole otherwise.
                    chosen = table.take(pa.array(ids[low:high] - at))
                    yield slice(int(low), int(high)), plain_table(chosen, self.schema, at, str(self))
                if at + table.num_rows > end:
                    break

    def _edges(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.counts)])

    def _read_portions(
        self, portions: Sequence[int], columns: Sequence[str] | None, batch_rows: int | None
    ) -> Iterator[tuple[int, pa.Table]]:
        """Tables of neighbouring portions, each with the number of its first row."""
        columns, at = self._known(columns), int(self._edges()[portions[0]])
        filled = [portion for portion in portions if self.counts[portion]]
        for table in self._tables(filled, columns, batch_rows or self.batch_rows(columns)):
            yield at, table
            at += table.num_rows

    def _known(self, columns: Sequence[str] | None) -> list[str]:
        """The columns to read; an error that names those that are not there."""
        if columns is None:
            return self.column_names
        missing = [name for name in columns if name not in self.schema.names]
        if missing:
            raise ValueError(
                f"{self} has no column {missing[0]!r}; its columns are {shown(self.column_names)}"
            )
        return list(columns)

    def _empty(self, columns: Sequence[str] | None) -> pa.Table:
        return pa.schema([self.schema.field(name) for name in self._known(columns)]).empty_table()

    def _complete(self, schema: pa.Schema) -> None:
        """Settle the schema of what is handed out; of lists, the first row says how long they are."""
        if self.n_rows == 0:
            raise ValueError(f"{self} has 0 rows; at least one example is needed")
        self.schema = schema
        variable = [field.name for field in schema if not has_fixed_width(field.type)]
        portion = int(np.flatnonzero(self.counts)[0])
        look = next(iter(self._tables([portion], variable, LOOK_ROWS))) if variable else None
        self.measured = {name: 2.0 * look.column(name).nbytes / look.num_rows for name in variable}
        self.schema = plain_schema(schema, look, str(self))


def cut(table: pa.Table, batch_rows: int) -> Iterator[pa.Table]:
    """A table in parts of at most `batch_rows` rows, not copied."""
    for start in range(0, table.num_rows, batch_rows):
        yield table.slice(start, batch_rows)
