"""Checkpoints: written whole or not at all, and trusted only when they are right."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from raymkl.data.packed import pack, unpack
from raymkl.engine import run as train_module
from raymkl.engine.faults.checkpoint import FORMAT, Checkpoints, clear
from tests.engine.faults.interrupted_runs import X, Y, files, model, stopped

pytestmark = pytest.mark.usefixtures("small_working_sets")
IDENTITY = {"data": "1", "tol": "2"}
STATE = {
    "round": 3,
    "x": np.arange(5.0),
    "nested": [{"y": np.ones((2, 3), np.int32)}, float("inf"), None, "text"],
    "empty": np.empty((0, 2)),
}


# -- files -----------------------------------------------------------------------------------------


def test_what_was_written_comes_back(tmp_path):
    Checkpoints(tmp_path, IDENTITY).write(STATE)
    state = Checkpoints(tmp_path, IDENTITY).read()
    assert state["round"] == 3 and state["nested"][1:] == [np.inf, None, "text"]
    for found, written in (
        (state["x"], STATE["x"]),
        (state["nested"][0]["y"], STATE["nested"][0]["y"]),
        (state["empty"], STATE["empty"]),
    ):
        np.testing.assert_array_equal(found, written)
        assert found.dtype == written.dtype and found.flags.writeable


def test_the_last_two_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    for number in (1, 2, 9, 10, 11):
        checkpoints.write({"round": number})
    assert files(tmp_path) == ["raymkl-10.checkpoint", "raymkl-11.checkpoint"]
    assert checkpoints.read() == {"round": 11}
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "raymkl-12.checkpoint.part").write_text("half")
    checkpoints.remove()
    assert files(tmp_path) == ["notes.txt"]


def test_a_write_that_is_cut_off_leaves_the_last_one(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.write({"round": 1})

    def cut_off(self, table):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pa.ipc.RecordBatchFileWriter, "write_table", cut_off)
        with pytest.raises(OSError, match="no space"):
            checkpoints.write({"round": 2})
    assert checkpoints.read() == {"round": 1}


def test_a_full_disk_does_not_end_a_run(tmp_path, monkeypatch):
    def full(self, state):
        raise OSError("no space left on device")

    monkeypatch.setattr(Checkpoints, "write", full)
    with pytest.warns(UserWarning, match="no checkpoint could be written.*no space"):
        fitted = model(tmp_path).fit(X, Y)
    assert fitted.converged_


def test_a_damaged_newest_one_is_passed_over(tmp_path):
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.write({"round": 1})
    checkpoints.write({"round": 2})
    (tmp_path / "raymkl-2.checkpoint").write_bytes(b"ARROW1 and nothing else")
    with pytest.warns(UserWarning, match="raymkl-2.checkpoint is damaged and not used"):
        assert checkpoints.read() == {"round": 1}


def test_nothing_but_damage_starts_anew(tmp_path):
    (tmp_path / "raymkl-1.checkpoint").write_bytes(b"")
    with pytest.warns(UserWarning, match="the run starts anew"):
        assert Checkpoints(tmp_path, IDENTITY).read() is None
    with pytest.warns(UserWarning, match="damaged"):
        fitted = model(tmp_path).fit(X, Y)
    assert fitted.converged_ and fitted.resumed_from_ is None and files(tmp_path) == []


def test_damaged_ones_do_not_stand_in_the_way_of_new_ones(tmp_path, monkeypatch):
    """A run that begins anew writes lower numbers than those that are there."""
    for number in (700, 800, 900):
        (tmp_path / f"raymkl-{number}.checkpoint").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="the run starts anew"):
        stopped(monkeypatch, tmp_path, 4)
    assert files(tmp_path) == ["raymkl-2.checkpoint", "raymkl-3.checkpoint"]
    (tmp_path / "raymkl-3.checkpoint").write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="damaged"):
        assert model(tmp_path).fit(X, Y).resumed_from_ == 2


WRITTEN: dict = {}


def written(folder):
    if not WRITTEN:
        Checkpoints(folder, IDENTITY).write(STATE)
        WRITTEN["bytes"] = (folder / "raymkl-3.checkpoint").read_bytes()
    return WRITTEN["bytes"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bytes_and_missing_ends_are_noticed(tmp_path, data):
    """A changed file is the state that was written (padding), or it is not used; never something in between,
    never a crash.
    """
    content = bytearray(written(tmp_path))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[at] ^= data.draw(st.integers(1, 255))
    del content[data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content)))) :]
    (tmp_path / "raymkl-3.checkpoint").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        state = Checkpoints(tmp_path, IDENTITY).read()
    if state is not None:
        assert state["round"] == 3 and state["nested"][1:] == [np.inf, None, "text"]
        np.testing.assert_array_equal(state["x"], STATE["x"])


def forged(folder, state, identity=IDENTITY, **head):
    """A file whose digest is right, with any content."""
    checkpoints = Checkpoints(folder, identity)
    checkpoints.write({"round": 1, **state})
    if head:
        from raymkl.engine.faults.checkpoint import _digest_of_table

        path = checkpoints.names()[0]
        table = pa.ipc.open_file(path).read_all()
        described = {**json.loads(table.schema.metadata[b"raymkl-checkpoint"]), **head}
        table = table.replace_schema_metadata(
            {**table.schema.metadata, b"raymkl-checkpoint": json.dumps(described)}
        )
        table = table.replace_schema_metadata({**table.schema.metadata, b"digest": _digest_of_table(table)})
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return checkpoints


def test_a_later_format_is_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match=rf"has format {FORMAT + 1}, this version of raymkl reads up to {FORMAT}; update raymkl",
    ):
        forged(tmp_path, {}, format=FORMAT + 1).read()


def test_what_differs_is_said(tmp_path):
    Checkpoints(tmp_path, IDENTITY).write({"round": 1})
    with pytest.raises(
        ValueError, match=r"of another run: tol was 2, is now 5\. Give another directory, or remove the file"
    ):
        Checkpoints(tmp_path, {**IDENTITY, "tol": "5"}).read()


@pytest.mark.parametrize(
    "state",
    [{}, {"results": 3}, {"history": [], "results": {}, "finished": [7], "heads": {}, "seconds": 1.0}],
    ids=str,
)
def test_a_state_of_something_else_is_not_used(tmp_path, monkeypatch, state):
    seen = {}
    original = train_module.identity_of

    def remember(*arguments):
        seen["identity"] = original(*arguments)
        return seen["identity"]

    monkeypatch.setattr(train_module, "identity_of", remember)
    model(tmp_path).fit(X, Y)
    forged(tmp_path, state, seen["identity"])
    with pytest.warns(UserWarning, match="damaged and not used"):
        fitted = model(tmp_path).fit(X, Y)
    assert fitted.resumed_from_ is None and fitted.converged_


@pytest.mark.parametrize("value", [{"a": object()}, [lambda: 1]], ids=["object", "function"])
def test_only_data_is_packed(value):
    with pytest.raises(TypeError, match="cannot pack"):
        pack(value, {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_any_nested_value_comes_back(value):
    assert unpack(pack(value, {})) == value


# -- places ----------------------------------------------------------------------------------------


def test_a_uri_is_a_place(tmp_path):
    checkpoints = Checkpoints(f"file://{tmp_path}/deep/er", IDENTITY)
    checkpoints.write({"round": 1})
    assert files(tmp_path / "deep" / "er") == ["raymkl-1.checkpoint"]
    assert Checkpoints(str(tmp_path / "deep" / "er"), IDENTITY).read() == {"round": 1}
    clear(f"file://{tmp_path}/deep/er")
    assert files(tmp_path / "deep") == []


def test_any_file_system_of_arrow(tmp_path):
    memory = fs._MockFileSystem()
    checkpoints = Checkpoints(tmp_path, IDENTITY)
    checkpoints.files, checkpoints.path = memory, "runs"
    memory.create_dir("runs")
    for number in (1, 2, 3):
        checkpoints.write({"round": number})
    assert len(checkpoints.names()) == 2 and checkpoints.read() == {"round": 3}
    checkpoints.remove()
    assert checkpoints.names() == []


@pytest.mark.parametrize("place", ["nosuch://bucket/runs", "{file}", "{file}/below", "/proc/nothing/here"])
def test_a_place_that_cannot_be_used(tmp_path, place):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"checkpoint_dir=.* cannot be used"):
        model(place.format(file=tmp_path / "file")).fit(X, Y)
    assert (tmp_path / "file").read_text() == "mine"
