"""Reading kernel stores: parts equal slices, files are opened and closed as they should, and nothing damaged
is taken for whole.
"""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from raymkl.data import store as store_module
from raymkl.data.store import KernelStore
from raymkl.kernels.store_writer import write_store
from tests.data.stores import DEPTH, STACK, STACK32, N, whole


@pytest.fixture
def small(tmp_path):
    """A store of the stack in float32, five rows per file."""
    return write_store(tmp_path / "small", STACK, block_rows=5, progress=False)


# -- parts -----------------------------------------------------------------------------------------

ID_LISTS = [
    [],
    [0],
    [N - 1],
    [4, 5],
    [3, 4, 5, 6, 7, 12, 13],
    [9, 8, 7],
    [2, 2, 2],
    list(range(N)),
    [22, 0, 11, 10],
]


@pytest.mark.parametrize("ids", ID_LISTS, ids=str)
@pytest.mark.parametrize("bounds", [(0, N), (0, 1), (N - 1, N), (4, 17), (6, 6)], ids=str)
@pytest.mark.parametrize(
    "kind", [list, np.array, lambda ids: np.array(ids, np.uint8)], ids=["list", "array", "unsigned"]
)
def test_row_segments_equal_slices(small, ids, bounds, kind):
    found = small.row_segments(kind(ids), *bounds)
    expected = STACK32[np.array(ids, int)][:, slice(*bounds)]
    assert found.shape == expected.shape and found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", ID_LISTS, ids=str)
@pytest.mark.parametrize("columns", [[], [0], [N - 1, 0], [5, 5, 3, 8], np.arange(N)], ids=str)
def test_entries_equal_slices(small, rows, columns):
    expected = STACK32[np.ix_(np.array(rows, int), np.array(columns, int))]
    found = small.entries(rows, columns)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("start, stop", [(0, N), (0, 0), (4, 6), (N - 1, N)])
def test_diagonal(small, start, stop):
    found = small.diagonal(start, stop)
    assert found.shape == (stop - start, DEPTH)
    np.testing.assert_array_equal(found, STACK32[np.arange(start, stop), np.arange(start, stop)])


def test_results_belong_to_the_caller(small):
    found = whole(small)
    found[:] = 0
    np.testing.assert_array_equal(whole(small), STACK32)


def test_consecutive_whole_rows_are_one_read(small, monkeypatch):
    calls = []
    real = os.preadv
    monkeypatch.setattr(
        os,
        "preadv",
        lambda descriptor, buffers, offset: calls.append(offset) or real(descriptor, buffers, offset),
    )
    small.row_segments([1, 2, 3, 4, 5, 6, 12], 0, N)
    assert len(calls) == 3  # rows 1-4 and 5-6 of two files, and row 12
    calls.clear()
    small.row_segments([1, 2, 3], 0, N - 1)
    assert len(calls) == 3


def test_short_reads_are_continued(small, monkeypatch):
    real = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda descriptor, buffers, offset: real(descriptor, [buffers[0][:100]], offset)
    )
    np.testing.assert_array_equal(whole(small), STACK32)


@pytest.mark.parametrize(
    "ask, error",
    [
        (lambda s: s.row_segments([N], 0, 1), IndexError),
        (lambda s: s.row_segments([-1], 0, 1), IndexError),
        (lambda s: s.row_segments([0], 0, N + 1), IndexError),
        (lambda s: s.row_segments([0], 3, 2), IndexError),
        (lambda s: s.row_segments([0], -1, 2), IndexError),
        (lambda s: s.row_segments([0.5], 0, 2), TypeError),
        (lambda s: s.row_segments(np.ones(N, bool), 0, 2), TypeError),
        (lambda s: s.row_segments([[0]], 0, 2), TypeError),
        (lambda s: s.entries([0], [N]), IndexError),
        (lambda s: s.entries([-1], [0]), IndexError),
        (lambda s: s.diagonal(0, N + 1), IndexError),
    ],
)
def test_places_outside_are_refused(small, ask, error):
    with pytest.raises(error):
        ask(small)


# -- life of a store -------------------------------------------------------------------------------


def test_pickle_takes_the_path_only(small):
    small.row_segments([0], 0, N)
    data = pickle.dumps(small)
    assert len(data) < 200 + len(str(small.path))
    again = pickle.loads(data)
    assert again.path == small.path and again.shape == small.shape
    np.testing.assert_array_equal(whole(again), STACK32)


def test_paths_are_absolute(small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = KernelStore("small")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(whole(opened), STACK32)
    assert repr(opened).startswith("KernelStore(") and str(small.path) in repr(opened)


@pytest.mark.parametrize("open_files", [1, 2, 128])
def test_many_threads_read_at_once(tmp_path, monkeypatch, open_files):
    """With fewer open files than blocks, files close and open while others are being read."""
    monkeypatch.setattr(store_module, "MAX_OPEN_FILES", open_files)
    store = write_store(tmp_path / "k", STACK, block_rows=3, progress=False)

    def read(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            ids, start = rng.integers(0, N, 6), int(rng.integers(0, N))
            if not np.array_equal(store.row_segments(ids, start, N), STACK32[ids, start:]):
                return False
            if not np.array_equal(store.entries(ids, ids[::-1]), STACK32[np.ix_(ids, ids[::-1])]):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))
    assert len(store._files) <= open_files


def descriptors_of(path):
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("open files are counted in /proc/self/fd, which this system does not have")
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # the descriptor of the listing itself
            continue
    return [link for link in links if link.startswith(str(path))]


def test_files_are_closed(small):
    assert descriptors_of(small.path) == []  # nothing is open before the first read
    whole(small)
    assert len(descriptors_of(small.path)) == len(small.row_ranges)
    small.close()
    assert descriptors_of(small.path) == []
    np.testing.assert_array_equal(small.diagonal(3, 4), STACK32[[3], [3]])  # opens again
    with KernelStore(small.path) as other:
        whole(other)
        assert len(descriptors_of(small.path)) > 1
    small.close()
    assert descriptors_of(small.path) == []
    third = KernelStore(small.path)
    whole(third)
    del third
    assert descriptors_of(small.path) == []


def test_reading_does_not_map_the_files(small):
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("mapped files are listed in /proc/self/maps, which this system does not have")
    for start in range(0, N, 4):
        for row in range(N):
            small.row_segments([row], start, min(start + 4, N))
    with open("/proc/self/maps") as maps:
        assert "rows-" not in maps.read()


def test_module_does_not_import_ray():
    code = "import sys, raymkl.data.store; print('ray' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "False", result.stderr


# -- what cannot be read ---------------------------------------------------------------------------


def rewrite(store, **changes):
    file = store.path / "store.json"
    description = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in description.items() if value != "remove"}))


BLOCKS = [{"start": 0, "stop": 10, "bytes": 1}, {"start": 11, "stop": N, "bytes": 1}]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": 2}, "format 2, of a later version of raymkl; this one reads formats up to 1"),
        ({"format": "one"}, "unknown format 'one'"),
        ({"format": 0}, "unknown format 0"),
        ({"format": "remove"}, "'format' is missing"),
        ({"n_rows": "remove"}, "'n_rows' is missing"),
        ({"blocks": "remove"}, "'blocks' is missing"),
        ({"n_rows": N + 1}, "do not cover the rows 0:24"),
        ({"blocks": BLOCKS}, "do not cover"),
        ({"blocks": []}, "do not cover"),
        ({"blocks": 3}, "cannot be used"),
        ({"n_kernels": 0}, "positive integers"),
        ({"n_kernels": "3"}, "positive integers"),
        ({"dtype": "object"}, "dtype 'object'"),
        ({"names": ["one"]}, "3 names"),
    ],
)
def test_unusable_descriptions(small, changes, message):
    rewrite(small, **changes)
    with pytest.raises(ValueError, match=message) as caught:
        KernelStore(small.path)
    assert str(small.path / "store.json") in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"format": 1', "\x00"])
def test_damaged_descriptions(small, text):
    (small.path / "store.json").write_text(text)
    with pytest.raises(ValueError, match=r"store\.json cannot be used"):
        KernelStore(small.path)


def test_missing_stores(tmp_path):
    with pytest.raises(FileNotFoundError, match="no kernel store at"):
        KernelStore(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"not a kernel store: it has no store\.json"):
        KernelStore(tmp_path)


def test_missing_files(small):
    (small.path / "rows-000005-000010.arrow").unlink()
    with pytest.raises(FileNotFoundError, match=r"rows-000005-000010\.arrow is missing"):
        KernelStore(small.path)
    with pytest.raises(FileNotFoundError, match="rows-000005-000010"):  # gone after the store was opened
        small.row_segments([6], 0, N)


def test_truncated_files(small):
    whole(small)
    file = small.path / "rows-000010-000015.arrow"
    size = file.stat().st_size
    with open(file, "r+b") as handle:
        handle.truncate(size // 2)
    with pytest.raises(
        ValueError, match=rf"rows-000010-000015\.arrow has {size // 2} bytes, but {size} were written"
    ):
        KernelStore(small.path)
    with pytest.raises(
        ValueError, match=r"rows-000010-000015\.arrow ends before its data do"
    ):  # cut after the file was opened
        small.row_segments([14], 0, N)


@pytest.mark.parametrize("damage", ["noise", "head", "foot"])
def test_files_with_other_bytes(small, damage):
    file = small.path / "rows-000010-000015.arrow"
    data = bytearray(file.read_bytes())
    places = {"noise": slice(0, len(data)), "head": slice(8, 200), "foot": slice(len(data) - 200, len(data))}[
        damage
    ]
    data[places] = np.random.default_rng(1).bytes(len(data[places]))
    file.write_bytes(data)
    store = KernelStore(small.path)  # the size is right
    np.testing.assert_array_equal(store.row_segments([0], 0, N), STACK32[[0]])
    if (
        damage != "head"
    ):  # Arrow reads the schema from the foot of the file and does not need the one at its head
        with pytest.raises(ValueError, match=r"rows-000010-000015\.arrow cannot be used"):
            store.row_segments([12], 0, N)


@pytest.mark.parametrize(
    "what", ["another type", "two batches", "compressed", "too few rows", "another column"]
)
def test_files_with_other_content(small, what):
    """Arrow files that are sound but are not what the description says."""
    start, stop = 10, 14 if what == "too few rows" else 15
    array = STACK32[start:stop].astype(np.float64 if what == "another type" else np.float32)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(array))
    batch = pa.record_batch([column], names=["others" if what == "another column" else "kernels"])
    file = small.path / "rows-000010-000015.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd" if what == "compressed" else None)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        for part in (batch.slice(0, 2), batch.slice(2)) if what == "two batches" else (batch,):
            writer.write_batch(part)
    description = json.loads((small.path / "store.json").read_text())
    description["blocks"][2]["bytes"] = file.stat().st_size
    rewrite(small, **description)
    with pytest.raises(ValueError, match=r"rows-000010-000015\.arrow cannot be used"):
        KernelStore(small.path).row_segments([12], 0, N)
