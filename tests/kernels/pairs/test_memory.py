"""Large arrays that take memory only where they are used."""

import os
from pathlib import Path

import numpy as np
import pytest

from raymkl.kernels.pairs.memory import LARGE_BYTES, untouched

STATUS = Path("/proc/self/statm")
watched = pytest.mark.skipif(
    not STATUS.exists(), reason="resident memory is read from /proc, which this system does not have"
)


def resident_bytes() -> int:
    return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 4), (LARGE_BYTES // 8, 2, 3), (LARGE_BYTES + 1,)])
def test_arrays_are_plain_and_writable(shape, dtype):
    array = untouched(shape, dtype)
    assert type(array) is np.ndarray and array.shape == shape and array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
    array[...] = 3
    assert (array == 3).all()


@watched
def test_memory_is_taken_only_where_it_is_written():
    before = resident_bytes()
    array = untouched((100_000, 1_000), np.float32)
    array[::50_000] = 1.0  # two rows of 4 kB in 400 MB
    assert resident_bytes() - before < 20 * 2**20
    assert array[50_000].sum() == 1_000


@watched
def test_memory_goes_back_with_the_last_view():
    before = resident_bytes()
    array = untouched((50, 2**20), np.uint8)
    array[...] = 1
    part = array[3]
    del array
    assert part.sum() == 2**20  # a view keeps it alive
    del part
    assert resident_bytes() - before < 20 * 2**20


def test_no_room_is_a_memory_error():
    with pytest.raises(MemoryError, match="no room for an array"):
        untouched((2**40, 2**6), np.float64)
