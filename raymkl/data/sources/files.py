"""Row sources over files, read by row groups or record batches.

Not by `pyarrow.dataset`: its scanner holds whole row groups (160 MB in one of them: 560 MB against 58 page by
page), cannot begin at a record batch (three rows of 20,000, compressed: 350 ms against 12), and its import
takes 0.3 s in every shard (pyarrow 26).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from ..packed import digest
from .paths import compare, file_system, files_of, info_of, plain_words
from .source import RowSource, cut

# Parquet pages are read through a buffer of this size, so that a column chunk is never in memory as a whole.
BUFFER_BYTES = 2**20
PARQUET_SUFFIXES = (".parquet", ".pq")
ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")


class FileSource(RowSource):
    """Files of one schema, one after the other. files : (path, bytes, time of change, rows of each portion)
    of every file.

    Subclasses open a file, say what is in it, and read some of its portions.
    """

    suffixes: tuple[str, ...] = ()

    def __init__(self, path: Any):
        """path : a file, a directory of files, or a list of files; paths or URIs that `pyarrow.fs` opens."""
        paths, self.name = files_of(path, self.suffixes, self.kind)
        self.files, schema = [], None
        for text in paths:
            info = info_of(text, f"there is no file {text}")
            with self._open(text) as opened, plain_words(f"{text} is damaged"):
                counts, own = self._describe(opened)
            schema = own if schema is None else schema
            compare(schema, own, paths[0], text)
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
            info = info_of(
                path,
                f"there is no file {path} on node {os.uname().nodename}; all nodes must see the files that "
                "rows are read from",
            )
            if int(info.size) != size:
                raise ValueError(
                    f"{path} has {info.size} bytes and had {size} when it was opened first: it has changed "
                    "since"
                )
            with self._open(path, columns) as opened, plain_words(f"{path} is damaged"):
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
        with plain_words(f"{path} is not a Parquet file that can be read"):
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
        with plain_words(f"{path} is not an Arrow IPC file that can be read"):
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
