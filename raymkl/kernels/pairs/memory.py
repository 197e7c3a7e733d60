"""Memory for large arrays of which only a part may ever be used."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np

# Smaller arrays come from numpy, which asks for huge pages from here on.
LARGE_BYTES = 4 * 2**20


def untouched(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of any content whose memory the operating system hands out as it is first written to, in small
    pages.

    numpy asks for pages of 2 MiB for large arrays. Clearing one of them takes long, and by the time it is
    written to nothing of it is left in the processor's cache: filling a new cache of columns took up to three
    times as long that way. It also takes memory next to what is used.
    """
    dtype = np.dtype(dtype)
    size = prod(shape) * dtype.itemsize
    if size < LARGE_BYTES or not hasattr(mmap, "MAP_PRIVATE"):
        return np.empty(shape, dtype)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no room for an array of shape {shape} and dtype {dtype}") from error
    return np.frombuffer(pages, dtype).reshape(shape)
