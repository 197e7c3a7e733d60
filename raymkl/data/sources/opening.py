"""The row source behind what a user passes."""

from __future__ import annotations

import os
from typing import Any

from pyarrow import fs

from .files import ARROW_SUFFIXES, PARQUET_SUFFIXES, ArrowSource, ParquetSource
from .paths import file_system, listed
from .source import RowSource


def is_dataset(data: Any) -> bool:
    """Whether `data` is a `ray.data.Dataset`, without importing Ray for those who do not use it."""
    return type(data).__module__.startswith("ray.data") and hasattr(data, "materialize")


def open_source(data: Any) -> RowSource | None:
    """The row source behind a path, a URI, a `ray.data.Dataset` or a row source; None for anything else."""
    if isinstance(data, RowSource):
        return data
    if is_dataset(data):
        from ..ray_dataset import DatasetSource

        return DatasetSource(data)
    if not isinstance(data, str | os.PathLike):
        return None
    files, name = file_system(data)
    kind = files.get_file_info(name).type
    if kind == fs.FileType.NotFound:
        raise FileNotFoundError(f"X is the path {os.fspath(data)!r}, but there is no such file or directory")
    if kind == fs.FileType.Directory:
        found = {os.path.splitext(path)[1].lower() for path in listed(files, name)}
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
