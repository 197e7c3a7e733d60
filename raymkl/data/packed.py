"""Values on their way to a file: nested dicts, lists, numbers and arrays as JSON and bytes; digests; files
that appear whole or not at all.

Arrays stand in the JSON text as {"array": name, "dtype": ..., "shape": [...]}, their bytes beside it, dicts
as {"dict": [[key, value]]}, numbers that JSON does not know as {"float": "inf"}. Model files (`raymkl.io`)
add entries of their own, checkpoints are plain.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from .plain_arrow import plain_array

# How deeply a value may be nested.
MAX_DEPTH = 64


class Packer:
    """Turns values into JSON, and arrays into bytes. what : for errors, such as "a model file"."""

    def __init__(self, what: str = "a checkpoint", max_depth: int = MAX_DEPTH):
        self.what, self.max_depth = what, max_depth
        self.data: list[bytes] = []
        self.depth = 0

    def __call__(self, value: Any) -> Any:
        self.depth += 1
        if self.depth > self.max_depth:
            raise ValueError(
                f"kernels, lists or dicts are nested more than {self.max_depth} deep, too deep for "
                f"{self.what}"
            )
        entry = self.entry(value)
        self.depth -= 1
        return entry

    def name(self, number: int) -> Any:
        """What the file calls an array."""
        return number

    def entry(self, value: Any) -> Any:
        """The JSON of a value."""
        if isinstance(value, np.ndarray):
            self.data.append(np.ascontiguousarray(value).tobytes())
            return {
                "array": self.name(len(self.data) - 1),
                "dtype": value.dtype.str,
                "shape": list(value.shape),
            }
        if isinstance(value, np.generic):
            return self(value.item())
        if isinstance(value, dict):
            return {"dict": [[self(key), self(inner)] for key, inner in value.items()]}
        if isinstance(value, list | tuple):
            return [self(inner) for inner in value]
        if isinstance(value, float) and not np.isfinite(value):
            return {"float": repr(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"cannot pack a {type(value).__name__} ({value!r}) into {self.what}")


class Unpacker:
    """The reverse of `Packer`.

    arrays : bytes by name; each is taken once, so that a file cannot grow by naming one again and again.
    """

    def __init__(self, arrays: Mapping[Any, Any], what: str = "a checkpoint", max_depth: int = MAX_DEPTH):
        self.arrays, self.what, self.max_depth = dict(arrays), what, max_depth
        self.depth = 0

    def __call__(self, entry: Any) -> Any:
        self.depth += 1
        if self.depth > self.max_depth:
            raise ValueError(f"entries are nested more than {self.max_depth} deep")
        value = (
            [self(inner) for inner in entry]
            if isinstance(entry, list)
            else self.value(entry)
            if isinstance(entry, dict)
            else entry
        )
        self.depth -= 1
        return value

    def value(self, entry: dict) -> Any:
        """What an entry stands for. Raises one of `plain_arrow.DAMAGE` for one that stands for nothing."""
        if "array" in entry:
            return plain_array(self.arrays.pop(entry["array"]), entry["dtype"], entry["shape"])
        if "dict" in entry:
            return {self.key(key): self(inner) for key, inner in entry["dict"]}
        if "float" in entry:
            if entry["float"] not in ("nan", "inf", "-inf"):
                raise ValueError(f"{entry['float']!r} is not written as a float")
            return float(entry["float"])
        raise ValueError(f"unknown entry in {self.what}: {sorted(entry)}")

    def key(self, entry: Any) -> Any:
        """The key of a dict; lists are none."""
        return self(entry)


def pack(value: Any, metadata: dict[str, str]) -> pa.Table:
    """A table from which `unpack` gets the value back: arrays as rows of bytes, the rest as JSON in the
    metadata.
    """
    packer = Packer()
    text = json.dumps(packer(value))
    return pa.table({"data": pa.array(packer.data, pa.large_binary())}).replace_schema_metadata(
        {**metadata, "value": text}
    )


def unpack(table: pa.Table) -> Any:
    """The value that was packed. Raises one of `plain_arrow.DAMAGE` for a table that does not hold one."""
    arrays = {number: cell.as_buffer() for number, cell in enumerate(table["data"])}
    return Unpacker(arrays)(json.loads(table.schema.metadata[b"value"]))


def digest(*parts: Any, size: int = 12) -> str:
    """A hash (2 * size letters) of texts, bytes and arrays, as if they were one piece; it finds damage, not
    malice.
    """
    total = hashlib.blake2b(digest_size=size)
    for part in parts:
        if isinstance(part, np.ndarray):
            part = memoryview(np.ascontiguousarray(part)).cast("B") if part.size else b""
        total.update(part.encode() if isinstance(part, str) else part)
    return total.hexdigest()


@contextlib.contextmanager
def whole_file(path: str, files: fs.FileSystem | None = None) -> Iterator[Any]:
    """A stream to write a file through: under its name it appears whole, when the block ends without an
    error, or not at all.

    files : file system of the path, the local one if None.
    """
    files = fs.LocalFileSystem() if files is None else files
    unfinished = f"{path}.{os.getpid()}.part"
    try:
        with files.open_output_stream(unfinished, compression=None) as sink:
            yield sink
        files.move(unfinished, path)
    except BaseException:  # also an interrupt from the keyboard
        with contextlib.suppress(OSError):
            files.delete_file(unfinished)
        raise


def write_table(table: pa.Table, path: str, files: fs.FileSystem | None = None) -> None:
    """Write an Arrow file in one piece, see `whole_file`."""
    with whole_file(path, files) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
