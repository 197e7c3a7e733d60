"""Checkpoints and kernel stores are data: whatever is in them, reading ends in the written content or in a
clear ValueError.
"""

import json
import warnings

import numpy as np
import pytest

from raymkl.data.packed import pack
from raymkl.data.store import KernelStore
from raymkl.engine.faults import checkpoint
from raymkl.kernels import write_store
from tests.files.damage import damaged, written

# -- checkpoints -----------------------------------------------------------------------------------

IDENTITY = {"data": "1234", "C": "1.0"}


def state(round_number):
    rng = np.random.default_rng(round_number)
    part = {"a": rng.normal(size=40), "theta": rng.random(3), "stage": 0, "rounds": round_number}
    history = [{"round": 1, "gap": np.inf}]
    return {
        "round": round_number,
        "seconds": 1.5,
        "history": history,
        "results": {},
        "finished": [],
        "heads": {"0": part},
    }


def read_quietly(checkpoints):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return checkpoints.read(), [str(one.message) for one in caught]


def test_damaged_checkpoints_give_way_to_the_one_before(tmp_path):
    checkpoints, rng, passed_over = (
        checkpoint.Checkpoints(str(tmp_path), IDENTITY),
        np.random.default_rng(3),
        0,
    )
    for number in (1, 2):
        checkpoints.write(state(number))
    newest = tmp_path / "raymkl-2.checkpoint"
    whole = newest.read_bytes()
    for _ in range(300):
        newest.write_bytes(damaged(whole, rng))
        found, messages = read_quietly(checkpoints)
        assert messages == [] if found["round"] == 2 else "raymkl-2.checkpoint is damaged" in messages[0]
        np.testing.assert_equal(found, state(found["round"]))
        passed_over += found["round"] == 1
    assert passed_over > 200


@pytest.mark.parametrize(
    "change",
    [
        {"value": json.dumps({"array": 0, "dtype": "<f8", "shape": [2**61]})},
        {"value": json.dumps({"array": 0, "dtype": "O", "shape": [40]})},
        {"value": json.dumps({"array": 0, "dtype": "<f8", "shape": [-40]})},
        {"value": json.dumps({"array": -1, "dtype": "<f8", "shape": [40]})},
        {"value": json.dumps({"array": "0", "dtype": "<f8", "shape": [40]})},
        {"value": json.dumps([{"array": 0, "dtype": "<f8", "shape": [40]}] * 1000)},
        {"value": json.dumps({"surprise": 1})},
        {"value": json.dumps({"dict": [[[1], 2]]})},
        {"value": json.dumps({"dict": 5})},
        {"value": json.dumps({"float": "code"})},
        {"value": "[" * 100 + "]" * 100},
        {"value": "[" * 200_000},
        {"value": "no json"},
        {"raymkl-checkpoint": "no json"},
        {"raymkl-checkpoint": json.dumps([1])},
        {"raymkl-checkpoint": json.dumps({"format": "1", "identity": IDENTITY})},
        {"raymkl-checkpoint": json.dumps({"format": 1, "identity": [1]})},
        {"raymkl-checkpoint": json.dumps({"format": 1})},
    ],
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values()))[:30]}",
)
def test_crafted_checkpoints_are_passed_over(change, tmp_path):
    """With a digest that is right, since anybody can compute it."""
    checkpoints = checkpoint.Checkpoints(str(tmp_path), IDENTITY)
    table = pack(state(3), {"raymkl-checkpoint": json.dumps({"format": 1, "identity": IDENTITY, "round": 3})})

    def finished(table):
        return table.replace_schema_metadata(
            {**table.schema.metadata, "digest": checkpoint._digest_of_table(table)}
        )

    path = written(finished(table), tmp_path / "raymkl-3.checkpoint")
    assert read_quietly(checkpoints)[1] == []  # so far it is a good one
    change = {name.encode(): text for name, text in change.items()}
    written(finished(table.replace_schema_metadata({**table.schema.metadata, **change})), path)
    found, messages = read_quietly(checkpoints)
    assert found is None and "raymkl-3.checkpoint is damaged and not used" in messages[0]


# -- kernel stores ---------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(5)
    stack = rng.normal(size=(24, 24, 3))
    write_store(
        tmp_path / "store", stack + stack.transpose(1, 0, 2), block_rows=10, dtype=np.float64, progress=False
    )
    return tmp_path / "store"


def contents(path):
    with KernelStore(path) as opened:
        return opened.row_segments(np.arange(24), 0, 24)


def test_damaged_descriptions_of_stores(store):
    file, want, refused, rng = store / "store.json", contents(store), 0, np.random.default_rng(7)
    whole = file.read_bytes()
    for _ in range(300):
        file.write_bytes(damaged(whole, rng))
        try:
            found = contents(store)
        except ValueError as error:
            assert "store" in str(error)
            refused += 1
        else:
            np.testing.assert_array_equal(found, want)
    assert refused > 200


def test_damaged_files_of_stores(store):
    """Values are not hashed (a store may be larger than memory): a changed one is read as it is, and nothing
    else changes.
    """
    file, want, refused, rng = (
        next(iter(sorted(store.glob("rows-*")))),
        contents(store),
        0,
        np.random.default_rng(8),
    )
    whole = file.read_bytes()
    values = want[:10].tobytes()
    start = whole.index(values)
    for _ in range(300):
        data = bytearray(whole)
        frame = [at for at in rng.integers(len(data), size=200) if not start <= at < start + len(values)][:2]
        for at in frame or [0]:
            data[at] ^= int(rng.integers(1, 256))
        data[start + int(rng.integers(len(values)))] ^= 1
        file.write_bytes(bytes(data))
        try:
            found = contents(store)
        except ValueError as error:
            assert file.name in str(error)
            refused += 1
        else:
            assert found.shape == want.shape and (found.view(np.int64) != want.view(np.int64)).sum() == 1
    assert refused > 100


def test_cut_files_of_stores(store):
    file, rng = next(iter(sorted(store.glob("rows-*")))), np.random.default_rng(9)
    whole = file.read_bytes()
    for length in rng.integers(len(whole), size=50):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="damaged"):
            KernelStore(store)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_kernels": 2**40}, "too few"),
        ({"n_kernels": -3}, "positive"),
        ({"dtype": "object"}, "dtype"),
        ({"dtype": "float64,float64"}, "dtype"),
        ({"dtype": ["float64"]}, "dtype"),
        ({"n_rows": 24.0}, "integers"),
        ({"n_rows": True}, "integers"),
        ({"blocks": [{"start": 0, "stop": 24, "bytes": -1}]}, "too few"),
        ({"blocks": {"start": 0}}, "cannot be used"),
        ({"blocks": [[0, 24]]}, "cannot be used"),
        ({"names": {"a": 1, "b": 2, "c": 3, "d": 4}}, "3 names"),
        ({"names": 3}, "cannot be used"),
    ],
)
def test_crafted_descriptions_of_stores(change, message, store):
    description = json.loads((store / "store.json").read_text())
    (store / "store.json").write_text(json.dumps({**description, **change}))
    with pytest.raises(ValueError, match=message):
        KernelStore(store)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "3", "null", '"store"', "{}", b"\xff\xfe"], ids=lambda text: repr(text[:9])
)
def test_descriptions_of_stores_that_are_something_else(text, store):
    (store / "store.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=r"store\.json cannot be used"):
        KernelStore(store)
