"""Large arrays that take memory only where they are used."""

import numpy as np
import pytest

from raymkl.kernels.memory import LARGE_BYTES, untouched


def resident_pages() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 4), (LARGE_BYTES // 8, 2, 3), (LARGE_BYTES + 1,)])
def test_arrays_are_plain_and_writable(shape, dtype):
    array = untouched(shape, dtype)
    assert type(array) is np.ndarray and array.shape == shape and array.dtype == dtype
    assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
    array[...] = 3
    assert (array == 3).all()


def test_memory_is_taken_only_where_it_is_written():
    before = resident_pages()
    array = untouched((100_000, 1_000), np.float32)
    array[::50_000] = 1.0  # two rows of 4 kB in 400 MB
    assert (resident_pages() - before) * 4096 < 20 * 2**20
    assert array[50_000].sum() == 1_000


def test_memory_goes_back_with_the_last_view():
    before = resident_pages()
    array = untouched((50, 2**20), np.uint8)
    array[...] = 1
    part = array[3]
    del array
    assert part.sum() == 2**20  # a view keeps it alive
    del part
    assert (resident_pages() - before) * 4096 < 20 * 2**20


def test_no_room_is_a_memory_error():
    with pytest.raises(MemoryError, match="no room for an array"):
        untouched((2**40, 2**6), np.float64)
