"""The files of a kernel store (see `store` for what is in them): their names and description, and whether
they are sound.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from .plain_arrow import DAMAGE, open_plain

FORMAT = 1
DESCRIPTION = "store.json"
COLUMN = "kernels"
EXTENSIONS = frozenset({b"arrow.fixed_shape_tensor"})
DTYPES = ("float32", "float64")
# Arrow counts the values of one tensor in 32 bits.
MAX_TENSOR_VALUES = 2**31 - 1


def is_store(path: Any) -> bool:
    """Whether `path` is the path of a directory that calls itself a kernel store (`KernelStore` says whether
    it is a sound one).
    """
    if not isinstance(path, str | os.PathLike):
        return False
    try:
        return os.path.isfile(os.path.join(path, DESCRIPTION))
    except (OSError, TypeError, ValueError):  # e.g. a path of bytes, or with a null character
        return False


class BlockFile:
    """An open block file.

    It closes when nobody refers to it any more, so never under the hands of a thread that reads.
    """

    def __init__(self, path: Path, data_offset: int):
        self.path = path
        self.data_offset = data_offset
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self):
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def read_into(self, target: np.ndarray, offset: int) -> None:
        """Fill the contiguous array `target` with the bytes from `offset` of the tensors on; several threads
        may do so at once.
        """
        remaining = target.reshape(-1).view(np.uint8).data
        position = self.data_offset + offset
        while remaining:  # one call gives 2 GB at most, and may give less
            count = os.preadv(self.descriptor, [remaining], position)
            if count == 0:
                raise ValueError(
                    f"the kernel store's file {self.path} ends before its data do: it has been cut since the "
                    "store was opened"
                )
            remaining = remaining[count:]
            position += count


def file_name(start: int, stop: int) -> str:
    return f"rows-{start:06d}-{stop:06d}.arrow"


def read_description(path: Path) -> dict:
    """What store.json says, checked to be whole and consistent."""
    file = path / DESCRIPTION
    if not path.exists():
        raise FileNotFoundError(f"there is no kernel store at {path}")
    if not file.is_file():
        raise FileNotFoundError(f"{path} is not a kernel store: it has no {DESCRIPTION}")
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
        version = description["format"]
        if isinstance(version, int) and version > FORMAT:
            raise ValueError(
                f"it has format {version}, of a later version of raymkl; this one reads formats up to "
                f"{FORMAT}"
            )
        if version != FORMAT:
            raise ValueError(f"it has the unknown format {version!r}")
        _check_description(description)
    except KeyError as error:
        raise ValueError(f"{file} cannot be used: {error} is missing") from error
    except DAMAGE as error:  # what is not JSON is a ValueError too
        raise ValueError(f"{file} cannot be used: {error}") from error
    return description


def _check_description(description: Mapping) -> None:
    n, depth, blocks, names = (
        description["n_rows"],
        description["n_kernels"],
        description["blocks"],
        description.get("names"),
    )
    numbers = [n, depth, *(block[key] for block in blocks for key in ("start", "stop", "bytes"))]
    if not all(type(number) is int for number in numbers) or n < 1 or depth < 1:
        raise ValueError("numbers of rows, kernels and bytes must be positive integers")
    if description["dtype"] not in DTYPES:
        raise ValueError(f"dtype {description['dtype']!r} is none of {DTYPES}")
    edges = [0, *(block["stop"] for block in blocks)]
    if (
        [block["start"] for block in blocks] != edges[:-1]
        or edges[-1] != n
        or any(a >= b for a, b in pairwise(edges))
    ):
        raise ValueError(f"the row ranges of its files do not cover the rows 0:{n} once each, in order")
    item = np.dtype(description["dtype"]).itemsize
    for block in blocks:
        if block["bytes"] < (block["stop"] - block["start"]) * n * depth * item:
            raise ValueError(
                f"{block['bytes']} bytes are too few for rows {block['start']}:{block['stop']} of {depth} "
                "kernels"
            )
    if names is not None and (len(names) != depth or not all(isinstance(name, str) for name in names)):
        raise ValueError(f"it must have {depth} names, one for each kernel")


def check_size(file: Path, size: int) -> None:
    try:
        found = file.stat().st_size
    except FileNotFoundError:
        raise FileNotFoundError(
            f"the kernel store {file.parent} is incomplete: {file.name} is missing"
        ) from None
    if found != size:
        raise ValueError(
            f"the kernel store {file.parent} is damaged: {file.name} has {found} bytes, but {size} were "
            "written"
        )


def find_data(file: Path, rows: int, shape: tuple[int, int], dtype: np.dtype) -> int:
    """Where in a block file the tensors begin, in bytes.

    The file is mapped for the time of the call, and hardly read.
    """
    try:
        expected = pa.fixed_shape_tensor(pa.from_numpy_dtype(dtype), shape)
        with pa.memory_map(str(file)) as source:
            whole = source.read_buffer()
            reader = open_plain(whole, EXTENSIONS)
            if (
                reader.schema.names != [COLUMN]
                or reader.schema.field(0).type != expected
                or reader.num_record_batches != 1
            ):
                raise ValueError(
                    f"it must hold one record batch with the column {COLUMN!r} of type {expected}, but has "
                    f"{reader.schema}"
                )
            batch = reader.get_batch(0)
            batch.validate()
            column = batch.column(0)
            if len(column) != rows or column.null_count:
                raise ValueError(
                    f"it must hold {rows} rows without nulls, but has {len(column)} with {column.null_count} "
                    "nulls"
                )
            # Arrow's buffers are windows into the map unless they are compressed or of another byte order.
            data = column.storage.values.buffers()[1]
            offset = data.address - whole.address
            if not 0 <= offset <= whole.size - rows * shape[0] * shape[1] * dtype.itemsize:
                raise ValueError("its data are compressed, or not stored as one piece")
            return offset
    except FileNotFoundError:
        raise
    except DAMAGE as error:  # Arrow reports bad metadata as OSError
        raise ValueError(f"the kernel store's file {file} cannot be used: {error}") from error
