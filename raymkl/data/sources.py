"""Row sources: tables that stay where they are (Parquet files, Arrow files, blocks of a `ray.data.Dataset`)
and are read in parts.

| source | over | read by |
|---|---|---|
| ParquetSource | a Parquet file, a directory of them, a list of files | row groups, page by page |
| ArrowSource | an Arrow IPC (Feather) file, a directory of them, a list | record batches, memory-mapped |
| DatasetSource | a `ray.data.Dataset` (see `ray_dataset`) | blocks, fetched one at a time |

A source is small and can be pickled: it holds names, sizes and row counts, never rows. So it travels to the
shards, and each shard reads its own rows. Columns of vectors (fixed-shape tensors of any shape, fixed-size
lists, lists of one length) come out as fixed-size lists.

Not by `pyarrow.dataset`: its scanner holds whole row groups (160 MB in one of them: 560 MB against 58 page by
page), cannot begin at a record batch (three rows of 20,000, compressed: 350 ms against 12), and its import
takes 0.3 s in every shard (pyarrow 26).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from .packed import digest
from .vector_columns import has_fixed_width, plain_schema, plain_table, row_bytes
from .views import shown

# Rows are streamed in batches of about this size.
BATCH_BYTES = 4 * 2**20
MOST_BATCH_ROWS = 65_536
# Rows that tell how long texts and lists are.
LOOK_ROWS = 64
# Parquet pages are read through a buffer of this size, so that a column chunk is never in memory as a whole.
BUFFER_BYTES = 2**20
PARQUET_SUFFIXES = (".parquet", ".pq")
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
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


class FileSource(RowSource):
    """Files of one schema, one after the other. files : (path, bytes, time of change, rows of each portion)
    of every file.

    Subclasses open a file, say what is in it, and read some of its portions.
    """

    suffixes: tuple[str, ...] = ()

    def __init__(self, path: Any):
        """path : a file, a directory of files, or a list of files; paths or URIs that `pyarrow.fs` opens."""
        paths, self.name = _files(path, self.suffixes, self.kind)
        self.files, schema = [], None
        for text in paths:
            info = _info(text, f"there is no file {text}")
            with self._open(text) as opened, _plain_words(f"{text} is damaged"):
                counts, own = self._describe(opened)
            schema = own if schema is None else schema
            _compare(schema, own, paths[0], text)
            self.files.append((text, int(info.size), int(info.mtime_ns or 0), counts))
        self.counts = np.concatenate(
            [np.zeros(0, np.int64), *(np.asarray(counts, np.int64) for *_, counts in self.files)]
        )
        self._complete(schema)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}: {self.n_rows} rows, {len(self.column_names)} columns)"

    def fingerprint(self) -> str:
        return json.dumps(
            [self.kind, digest(repr([(field.name, str(field.type)) for field in self.schema])), self.files]
        )

    def _open(self, path: str, columns: list[str] | None = None) -> Any:
        """A reader of a file (of some of its columns), to be used as a context."""
        raise TypeError(f"{type(self).__name__} opens no files")

    def _describe(self, opened: Any) -> tuple[list[int], pa.Schema]:
        """Rows of every portion of a file, and its schema."""
        raise TypeError(f"{type(self).__name__} opens no files")

    def _batches(
        self, opened: Any, numbers: list[int], columns: list[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the portions of these numbers."""
        raise TypeError(f"{type(self).__name__} opens no files")

    def _tables(self, portions, columns, batch_rows):
        start = 0
        for path, size, _, counts in self.files:
            numbers = [portion - start for portion in portions if start <= portion < start + len(counts)]
            start += len(counts)
            if not numbers:
                continue
            info = _info(
                path,
                f"there is no file {path} on node {os.uname().nodename}; all nodes must see the files that "
                "rows are read from",
            )
            if int(info.size) != size:
                raise ValueError(
                    f"{path} has {info.size} bytes and had {size} when it was opened first: it has changed "
                    "since"
                )
            with self._open(path, columns) as opened, _plain_words(f"{path} is damaged"):
                for batch in self._batches(opened, numbers, columns, batch_rows):
                    yield from cut(pa.Table.from_batches([batch]).select(columns), batch_rows)


class ParquetSource(FileSource):
    """Rows of Parquet files, read by row groups.

    >>> source = ParquetSource("train.parquet")                    # doctest: +SKIP
    >>> source.read(1000, 2000, ["age", "height"]).num_rows        # doctest: +SKIP
    1000
    """

    kind, suffixes = "Parquet", PARQUET_SUFFIXES

    def _open(self, path, columns=None):
        from pyarrow import parquet

        files, name = file_system(path)
        with _plain_words(f"{path} is not a Parquet file that can be read"):
            return parquet.ParquetFile(name, filesystem=files, buffer_size=BUFFER_BYTES, pre_buffer=False)

    def _describe(self, opened):
        return [
            opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)
        ], opened.schema_arrow

    def _batches(self, opened, numbers, columns, batch_rows):
        return opened.iter_batches(batch_size=batch_rows, row_groups=numbers, columns=columns)


class ArrowSource(FileSource):
    """Rows of Arrow IPC files (Feather version 2), memory-mapped and read by record batches.

    >>> source = ArrowSource("train.arrow")                        # doctest: +SKIP
    >>> source.n_rows, source.column_names                         # doctest: +SKIP
    (60000, ['pixels', 'digit'])
    """

    kind, suffixes = "Arrow IPC", ARROW_SUFFIXES

    def _open(self, path, columns=None):
        files, name = file_system(path)
        with _plain_words(f"{path} is not an Arrow IPC file that can be read"):
            file = (
                pa.memory_map(name) if isinstance(files, fs.LocalFileSystem) else files.open_input_file(name)
            )
            reader = pa.ipc.open_file(file)
            if columns is None:
                return reader
            wanted = sorted(reader.schema.get_field_index(name) for name in columns)
            return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=wanted))

    def _describe(self, opened):
        return [
            opened.get_batch(number).num_rows for number in range(opened.num_record_batches)
        ], opened.schema

    def _batches(self, opened, numbers, columns, batch_rows):
        return map(opened.get_batch, numbers)


@contextmanager
def _plain_words(what: str) -> Iterator[None]:
    """What Arrow finds wrong with a file as a ValueError that says `what` first."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{what}: {_first_line(error)}") from None


def cut(table: pa.Table, batch_rows: int) -> Iterator[pa.Table]:
    """A table in parts of at most `batch_rows` rows, not copied."""
    for start in range(0, table.num_rows, batch_rows):
        yield table.slice(start, batch_rows)


def is_dataset(data: Any) -> bool:
    """Whether `data` is a `ray.data.Dataset`, without importing Ray for those who do not use it."""
    return type(data).__module__.startswith("ray.data") and hasattr(data, "materialize")


def open_source(data: Any) -> RowSource | None:
    """The row source behind a path, a URI, a `ray.data.Dataset` or a row source; None for anything else."""
    if isinstance(data, RowSource):
        return data
    if is_dataset(data):
        from .ray_dataset import DatasetSource

        return DatasetSource(data)
    if not isinstance(data, str | os.PathLike):
        return None
    files, name = file_system(data)
    kind = files.get_file_info(name).type
    if kind == fs.FileType.NotFound:
        raise FileNotFoundError(f"X is the path {os.fspath(data)!r}, but there is no such file or directory")
    if kind == fs.FileType.Directory:
        found = {os.path.splitext(path)[1].lower() for path in _listed(files, name)}
        return (
            ArrowSource(data)
            if found & set(ARROW_SUFFIXES) and not found & set(PARQUET_SUFFIXES)
            else ParquetSource(data)
        )
    with files.open_input_stream(name, compression=None) as stream:
        magic = stream.read(6)
    if magic.startswith(b"PAR1"):
        return ParquetSource(data)
    if magic == b"ARROW1":
        return ArrowSource(data)
    raise ValueError(
        f"X is the path {os.fspath(data)!r}, which is neither a Parquet file nor an Arrow IPC (Feather) "
        f"file: it begins with {magic!r}"
    )


# -- files -----------------------------------------------------------------------------------------


def file_system(path: Any) -> tuple[fs.FileSystem, str]:
    """File system and path of a path or URI."""
    text = os.fspath(path)
    if "://" in text:
        try:
            return fs.FileSystem.from_uri(text)
        except (pa.ArrowInvalid, ValueError) as error:
            raise ValueError(f"{text!r} cannot be opened: {_first_line(error)}") from None
    return fs.LocalFileSystem(), os.path.abspath(text)


def _info(path: str, missing: str) -> fs.FileInfo:
    """Size and time of a file; FileNotFoundError with the text `missing` when there is none."""
    files, name = file_system(path)
    info = files.get_file_info(name)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(missing)
    return info


def _files(path: Any, suffixes: tuple[str, ...], kind: str) -> tuple[list[str], str]:
    """Files behind a path, directory or list of files, and what to call all of them."""
    if isinstance(path, list | tuple):
        if not path:
            raise ValueError(f"an empty list of {kind} files; at least one is needed")
        paths = [_absolute(part) for part in path]
        return paths, paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more files"
    text = _absolute(path)
    files, name = file_system(text)
    if files.get_file_info(name).type != fs.FileType.Directory:
        return [text], text
    found = [part for part in _listed(files, name) if part.lower().endswith(suffixes)]
    if not found:
        raise ValueError(
            f"the directory {text} holds no {kind} files (names that end in {', '.join(suffixes)})"
        )
    folders = {os.path.dirname(part) for part in found} - {name.rstrip("/")}
    if folders:
        raise ValueError(
            f"{text} has files in the folder {sorted(folders)[0]}; files of one table must lie in one folder "
            "(or be given as a list)"
        )
    prefix = text[: -len(name)] if text.endswith(name) else ""
    return [prefix + part for part in sorted(found)], text


def _absolute(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"files must be given as paths, got a {type(path).__name__}")
    text = os.fspath(path)
    return text if "://" in text else os.path.abspath(text)


def _listed(files: fs.FileSystem, directory: str) -> list[str]:
    """Files below a directory, without hidden ones and the notes of other tools (_SUCCESS)."""
    infos = files.get_file_info(fs.FileSelector(directory, recursive=True))
    return [
        info.path
        for info in infos
        if info.type == fs.FileType.File and not info.base_name.startswith((".", "_"))
    ]


def _compare(schema: pa.Schema, other: pa.Schema, path: str, other_path: str) -> None:
    """Raise ValueError unless two files have the same columns of the same types (in any order)."""
    ours, theirs = ({field.name: field.type for field in part} for part in (schema, other))
    for name in [*ours, *theirs]:
        if ours.get(name) != theirs.get(name):
            has = [
                f"has no column {name!r}" if kind is None else f"has column {name!r} of type {kind}"
                for kind in (ours.get(name), theirs.get(name))
            ]
            raise ValueError(
                f"files of one table must have the same columns, but {path} {has[0]} and {other_path} "
                f"{has[1]}"
            )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
