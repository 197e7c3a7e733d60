"""Arrow files from anybody, read as data alone: no code runs, and no number in a file decides how much memory
is taken.

Three things in an Arrow file could make a reader do more than read, and are looked for before Arrow itself
opens the file: extension types (libraries that are loaded may unpickle what a schema says about theirs),
compressed buffers (which say themselves how much memory to take) and dictionaries. What is left are windows
into the bytes that there are, whose offsets Arrow then validates.

Layout of an Arrow IPC file, as far as it is followed here:

    "ARROW1" .. messages .. footer (flatbuffer: schema, places of the record batches) .. int32 length of the
    footer .. "ARROW1"

`plain_array` is the one way from stored bytes to an array: shape x item size must be the bytes that there
are, and the type one of numbers, truth values, dates or text.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

# What reading a file of wrong content may raise, anywhere on the way; readers turn it into one clear
# ValueError or a warning.
DAMAGE = (
    pa.ArrowException,
    OSError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    struct.error,
)

MAGIC = b"ARROW1"
# Fields of a schema, nested ones included, beyond which a file is none of ours.
MAX_FIELDS = 64
MAX_DIMENSIONS = 32
_CONTINUATION = -1
_RECORD_BATCH = 3
_EXTENSION = b"ARROW:extension:name"
_DTYPE = re.compile(r"[<>|=]?(?:[biufcSU]\d{1,9}|[mM]8(?:\[\d{0,9}[a-zA-Z]{1,2}\])?)")


def open_plain(data: pa.Buffer, extensions: frozenset[bytes] = frozenset()) -> pa.RecordBatchFileReader:
    """A reader of an Arrow IPC file in a buffer, once nothing but plain data was found in it.

    extensions : names of Arrow's own extension types that may occur. Raises one of DAMAGE for anything else.
    The caller still has to check schema and types, and to `validate` what it reads.
    """
    view = memoryview(data)
    if len(view) < 2 * len(MAGIC) + 6 or view[: len(MAGIC)] != MAGIC or view[-len(MAGIC) :] != MAGIC:
        raise ValueError("it is not an Arrow file, or was cut short")
    (length,) = struct.unpack_from("<i", view, len(view) - len(MAGIC) - 4)
    start = len(view) - len(MAGIC) - 4 - length
    if length <= 0 or start < len(MAGIC):
        raise ValueError("its footer is not where it should be")
    footer = _Table.root(view[start : start + length])
    _check_extensions(footer, extensions)
    if next(footer.blocks(2), None) is not None:
        raise ValueError("it holds dictionaries, which none of these files has")
    for offset, metadata_length in footer.blocks(3):
        if not 0 <= offset <= offset + metadata_length <= len(view):
            raise ValueError("a record batch lies outside of the file")
        message = view[offset : offset + metadata_length]
        prefix, length = struct.unpack_from("<ii", message)
        if prefix != _CONTINUATION or not 0 < length <= metadata_length - 8:
            raise ValueError("a record batch does not begin as it should")
        header = _Table.root(message[8 : 8 + length])
        batch = header.table(2)
        if header.number(1, "<B") != _RECORD_BATCH or batch is None or batch.place(3) is not None:
            raise ValueError("its record batches are compressed, or are none")
    return pa.ipc.open_file(data)


def plain_array(data: Any, dtype: Any, shape: Any) -> np.ndarray:
    """An array of its own out of stored bytes.

    data : buffer of exactly shape x item size bytes. dtype : string such as "<f8"; no objects, no structures.
    shape : list of sizes.
    """
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError(
            f"an array has the type {str(dtype)[:60]!r}, which is none of numbers, dates or text"
        )
    kind = np.dtype(dtype)
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(size) is int and size >= 0 for size in shape)
    ):
        raise ValueError(f"an array has the shape {str(shape)[:60]}")
    count, stored = math.prod(shape), memoryview(data).nbytes
    if count * kind.itemsize != stored or (count and not stored):
        raise ValueError(f"an array of shape {str(shape)[:60]} and type {dtype} is stored in {stored} bytes")
    if count == 0:
        return np.empty(shape, kind)
    array = np.frombuffer(data, kind)
    if kind.kind == "b" and array.view(np.uint8).max() > 1:
        raise ValueError("an array of truth values holds something else")
    if kind.kind == "U" and array.view(np.dtype(np.uint32).newbyteorder(kind.byteorder)).max() > 0x10FFFF:
        raise ValueError("an array of text holds something that is no letter")
    return array.reshape(shape).copy()


def _check_extensions(footer: _Table, allowed: frozenset[bytes]) -> None:
    schema = footer.table(1)
    if schema is None:
        raise ValueError("it has no schema")
    waiting, seen = list(schema.tables(1)), 0
    while waiting:
        field = waiting.pop()
        seen += 1
        if seen > MAX_FIELDS:
            raise ValueError(f"its schema has more than {MAX_FIELDS} fields")
        for pair in field.tables(6):
            if pair.text(0) == _EXTENSION and pair.text(1) not in allowed:
                raise ValueError(
                    f"it holds the extension type {str(pair.text(1))[:60]}, which is not accepted"
                )
        waiting.extend(field.tables(5))


class _Table:
    """A flatbuffer table: enough of the format to look up fields by number.

    Reading outside of the bytes is a struct.error.
    """

    def __init__(self, data: memoryview, position: int):
        self.data, self.position = data, position
        self.layout = position - struct.unpack_from("<i", data, position)[0]
        if self.layout < 0:
            raise ValueError("a table has no layout")
        (self.layout_length,) = struct.unpack_from("<H", data, self.layout)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, struct.unpack_from("<I", data)[0])

    def place(self, field: int) -> int | None:
        """Where a field is stored, or None when it is not."""
        entry = 4 + 2 * field
        if entry + 2 > self.layout_length:
            return None
        (offset,) = struct.unpack_from("<H", self.data, self.layout + entry)
        return self.position + offset if offset else None

    def number(self, field: int, form: str) -> int | None:
        place = self.place(field)
        return None if place is None else struct.unpack_from(form, self.data, place)[0]

    def _target(self, field: int) -> int | None:
        place = self.place(field)
        return None if place is None else place + struct.unpack_from("<I", self.data, place)[0]

    def table(self, field: int) -> _Table | None:
        target = self._target(field)
        return None if target is None else _Table(self.data, target)

    def text(self, field: int) -> bytes:
        target = self._target(field)
        if target is None:
            return b""
        (length,) = struct.unpack_from("<I", self.data, target)
        return bytes(self.data[target + 4 : target + 4 + length])

    def tables(self, field: int) -> Iterator[_Table]:
        """The tables of a vector of tables."""
        target = self._target(field)
        if target is None:
            return
        (count,) = struct.unpack_from("<I", self.data, target)
        if count > MAX_FIELDS:
            raise ValueError(f"its schema has a list of {count} entries")
        for place in range(target + 4, target + 4 + 4 * count, 4):
            yield _Table(self.data, place + struct.unpack_from("<I", self.data, place)[0])

    def blocks(self, field: int) -> Iterator[tuple[int, int]]:
        """Offset and length of the metadata of every block of a footer's list."""
        target = self._target(field)
        if target is None:
            return
        (count,) = struct.unpack_from("<I", self.data, target)
        for number in range(count):  # ends at the end of the bytes at the latest
            yield struct.unpack_from("<qi", self.data, target + 4 + 24 * number)
