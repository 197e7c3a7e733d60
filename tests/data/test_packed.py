"""One way to write values down: what goes in comes out, digests tell values apart, and files are whole or not
there.
"""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from raymkl.data.packed import MAX_DEPTH, Packer, Unpacker, digest, pack, unpack, whole_file, write_table

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
)


@given(values)
@settings(max_examples=100, deadline=None)
def test_what_goes_in_comes_out(value):
    assert unpack(pack(value, {})) == value


def test_arrays_come_back_to_the_bit():
    value = {
        "a": [np.arange(6.0).reshape(2, 3)[:, ::-1], np.zeros((0, 4), np.int32)],
        3: np.array(["x", "yz"]),
        "n": np.float32(1.5),
    }
    again = unpack(pack(value, {"head": "x"}))
    for ours, theirs in (
        (value["a"][0], again["a"][0]),
        (value["a"][1], again["a"][1]),
        (value[3], again[3]),
    ):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.tolist() == theirs.tolist()
    assert again["n"] == 1.5 and np.isnan(unpack(pack(float("nan"), {})))


def test_an_array_is_handed_out_once():
    packer = Packer()
    entry = packer(np.arange(3))
    with pytest.raises(KeyError):
        Unpacker(dict(enumerate(packer.data)))([entry, entry])


@pytest.mark.parametrize(
    "entry",
    [{"float": "1e5"}, {"strange": 1}, {"dict": [[[1], 2]]}, {"array": 7, "dtype": "<f8", "shape": [1]}],
)
def test_entries_that_stand_for_nothing(entry):
    with pytest.raises((ValueError, TypeError, LookupError)):
        Unpacker({})(entry)


def test_nesting_is_limited():
    deep = []
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} deep, too deep for a checkpoint"):
        pack(deep, {})
    with pytest.raises(ValueError, match=f"more than {MAX_DEPTH} deep"):
        Unpacker({})(deep)
    with pytest.raises(TypeError, match=r"cannot pack a function .* into a model file"):
        Packer("a model file")(len and test_nesting_is_limited)


def test_digests():
    assert digest("ab", b"c") == digest(b"abc") == hashlib.blake2b(b"abc", digest_size=12).hexdigest()
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert digest(array.T) == digest(np.ascontiguousarray(array.T).tobytes()) != digest(array)
    assert digest(np.zeros((0, 3))) == digest() and len(digest(size=16)) == 32
    assert digest(pa.py_buffer(b"abc")) == digest("abc")


@pytest.mark.parametrize("files", [None, fs.LocalFileSystem()])
def test_a_file_is_whole_or_not_there(tmp_path, files):
    path = tmp_path / "file"
    with whole_file(str(path), files) as sink:
        sink.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"

    def half(error):
        with whole_file(str(path), files) as sink:
            sink.write(b"half of the second")
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            half(error)
    assert path.read_bytes() == b"first" and list(tmp_path.iterdir()) == [path]
    write_table(pa.table({"a": [1]}), str(path), files)
    assert pa.ipc.open_file(path).read_all()["a"].to_pylist() == [1] and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        write_table(pa.table({"a": [1]}), str(tmp_path / "nowhere" / "file"), files)
