"""Checkpoints: written whole or not at all, trusted only when they are right, and a run that goes on from one ends where it would have."""

import json
import os
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import fs

from raymkl import MKLClassifier, RayParams, kernels
from raymkl.engine import train as train_module
from raymkl.engine.arrow_state import pack, unpack
from raymkl.engine.checkpoint import FORMAT, Checkpoints, clear
from raymkl.models import base as base_module
from raymkl.search import MKLSearchCV
from raymkl.search import grid as grid_module
from tests.reference import apart, noisy_problem

X, Y = noisy_problem(60, seed=41)
X_TEST, _ = noisy_problem(30, seed=42)
BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0)]
CLASSES = np.array(["a", "b", "c"])[np.arange(60) % 3]
IDENTITY = {"data": "1", "tol": "2"}
STATE = {
    "round": 3,
    "x": np.arange(5.0),
    "nested": [{"y": np.ones((2, 3), np.int32)}, float("inf"), None, "text"],
    "empty": np.empty((0, 2)),
}


def params(folder, **more):
    return RayParams(**{"checkpoint_dir": str(folder), "checkpoint_every_s": 1e-9, "num_shards": 2, **more})


def model(folder=None, **more):
    more = {"kernels": BANK, "tol": 1e-6, "C": 3.0, "engine": "local", **more}
    where = more.pop("ray_params", None) or (params(folder) if folder else RayParams(num_shards=2))
    return MKLClassifier(**more, ray_params=where)


def files(folder):
    return sorted(os.listdir(folder))


class Interrupted(Exception):
    pass


def interrupt(monkeypatch, rounds, error=Interrupted, where=base_module):
    """Runs end with an error when they report the given round; what they write until then stays."""

    def stop(row):
        if row.get("round") == rounds:
            raise error

    original = train_module.train

    def limited(*arguments):
        rows, problem, heads, engine, ray_params, *more = arguments
        return original(rows, problem, heads, engine, ray_params, stop, *more[1:])

    monkeypatch.setattr(where, "train", limited)
    return lambda: monkeypatch.setattr(where, "train", original)


def stopped(monkeypatch, folder, rounds, y=Y, error=Interrupted, **more):
    """Checkpoints of a run that was ended in some round."""
    back = interrupt(monkeypatch, rounds, error)
    with pytest.raises(error):
        model(folder, **more).fit(X, y)
    back()
    assert files(folder)


# -- files ------------------------------------------------------------------------------------------------------------


def test_what_was_written_comes_back(tmp_path):
    Checkpoints(tmp_path, IDENTITY).write(STATE)
    state = Checkpoints(tmp_path, IDENTITY).read()
    assert state["round"] == 3 and state["nested"][1:] == [np.inf, None, "text"]
    for found, written in ((state["x"], STATE["x"]), (state["nested"][0]["y"], STATE["nested"][0]["y"]), (state["empty"], STATE["empty"])):
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
    """A changed file is the state that was written (padding), or it is not used; never something in between, never a crash."""
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
        from raymkl.engine.checkpoint import _digest_of_table

        path = checkpoints.names()[0]
        table = pa.ipc.open_file(path).read_all()
        described = {**json.loads(table.schema.metadata[b"raymkl-checkpoint"]), **head}
        table = table.replace_schema_metadata({**table.schema.metadata, b"raymkl-checkpoint": json.dumps(described)})
        table = table.replace_schema_metadata({**table.schema.metadata, b"digest": _digest_of_table(table)})
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return checkpoints


def test_a_later_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=rf"has format {FORMAT + 1}, this version of raymkl reads up to {FORMAT}; update raymkl"):
        forged(tmp_path, {}, format=FORMAT + 1).read()


def test_what_differs_is_said(tmp_path):
    Checkpoints(tmp_path, IDENTITY).write({"round": 1})
    with pytest.raises(ValueError, match=r"of another run: tol was 2, is now 5\. Give another directory, or remove the file"):
        Checkpoints(tmp_path, {**IDENTITY, "tol": "5"}).read()


@pytest.mark.parametrize(
    "state", [{}, {"results": 3}, {"history": [], "results": {}, "finished": [7], "heads": {}, "seconds": 1.0}], ids=str
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
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_nested_value_comes_back(value):
    assert unpack(pack(value, {})) == value


# -- places -----------------------------------------------------------------------------------------------------------


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


# -- runs -------------------------------------------------------------------------------------------------------------


def assert_same(resumed, whole, limit=1e-3):
    np.testing.assert_allclose(resumed.dual_objective_, whole.dual_objective_, rtol=1e-5)
    np.testing.assert_allclose(resumed.kernel_weights_, whole.kernel_weights_, atol=limit)
    assert apart(resumed.decision_function(X_TEST), whole.decision_function(X_TEST)) < limit
    assert resumed.converged_


KINDS = {
    "two classes": (Y, {}),
    "three classes": (CLASSES, {}),
    "shared weights": (CLASSES, {"shared_weights": True, "tol": 1e-5}),
    "normalised": (Y, {"normalize": "multiplicative"}),
    "gated": (Y, {"normalize": "spherical"}),
    "wrapper": (Y, {"solver": "wrapper", "tol": 1e-5}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rounds", [2, 4])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, monkeypatch, capfd, kind, rounds):
    y, more = KINDS[kind]
    whole = model(**more).fit(X, y)
    assert whole.resumed_from_ is None
    stopped(monkeypatch, tmp_path, rounds, y, **more)
    capfd.readouterr()
    resumed = model(tmp_path, **more, verbose=1).fit(X, y)
    assert resumed.resumed_from_ == rounds - 1
    assert f"resumed from round {rounds - 1} of {tmp_path}" in capfd.readouterr().err
    assert_same(resumed, whole, 5e-3)
    assert files(tmp_path) == []
    assert model(tmp_path, **more).fit(X, y).resumed_from_ is None
    assert [row["round"] for row in resumed.history_] == sorted(row["round"] for row in resumed.history_)
    assert resumed.history_[0]["round"] == 1


def test_interrupted_again_and_again(tmp_path, monkeypatch):
    whole = model().fit(X, Y)
    for rounds in (2, 4, 5):
        stopped(monkeypatch, tmp_path, rounds)
    resumed = model(tmp_path).fit(X, Y)
    assert resumed.resumed_from_ == 4
    assert_same(resumed, whole)


def test_ctrl_c_writes_what_is_known(tmp_path):
    """A kernel that stands for somebody at the keyboard; no checkpoint was due yet."""
    calls, last = [], 0

    def impatient(A, B):
        calls.append(1)
        if len(calls) == last:
            raise KeyboardInterrupt
        return A @ B.T

    kernel = kernels.Custom(impatient, diag_function=lambda A: (A * A).sum(axis=1))
    slow = params(tmp_path, checkpoint_every_s=1e6)
    whole = model(kernels=[kernel, *BANK]).fit(X, Y)
    last, calls[:] = len(calls), []
    with pytest.raises(KeyboardInterrupt):
        model(kernels=[kernel, *BANK], ray_params=slow).fit(X, Y)
    assert len(files(tmp_path)) == 1
    resumed = model(kernels=[kernel, *BANK], ray_params=slow).fit(X, Y)
    assert resumed.resumed_from_ >= 1
    assert_same(resumed, whole)


@pytest.mark.parametrize(
    "change, what",
    [
        (lambda: model_and_data(C=1.0), "C and sample weights"),
        (lambda: model_and_data(p=2.0), "norm"),
        (lambda: model_and_data(tol=1e-3), "tol"),
        (lambda: model_and_data(kernels=BANK[:2]), "kernels"),
        (lambda: model_and_data(normalize="trace"), "normalize"),
        (lambda: model_and_data(solver="wrapper"), "solver"),
        (lambda: model_and_data(dtype="float32"), "dtype"),
        (lambda: model_and_data(X=X + 1e-9), "data"),
        (lambda: model_and_data(y=np.roll(Y, 1)), "labels"),
        (lambda: model_and_data(y=CLASSES), "problems was 1, is now 3"),
    ],
)
def test_other_data_or_parameters_are_refused(tmp_path, monkeypatch, change, what):
    stopped(monkeypatch, tmp_path, 3)
    before = files(tmp_path)
    more, rows, y = change()
    with pytest.raises(ValueError, match=f"holds a checkpoint .* of another run: .*{what}"):
        model(tmp_path, **more).fit(rows, y)
    assert files(tmp_path) == before


def model_and_data(X=X, y=Y, **more):
    return more, X, y


def test_where_a_run_goes_on_does_not_matter(tmp_path, monkeypatch):
    """Another number of shards is another place, not another problem."""
    whole = model().fit(X, Y)
    stopped(monkeypatch, tmp_path, 3)
    resumed = model(ray_params=params(tmp_path, num_shards=3, memory_per_shard=10**6)).fit(X, Y)
    assert resumed.resumed_from_ == 2
    assert_same(resumed, whole)


def test_localized_models_say_that_they_have_no_checkpoints(tmp_path):
    from raymkl import LocalizedMKLClassifier

    with pytest.raises(ValueError, match="checkpoint_dir must be None for this model"):
        LocalizedMKLClassifier(kernels=BANK, engine="local", ray_params=params(tmp_path)).fit(X, Y)


def test_on_ray(ray_cluster, tmp_path, monkeypatch):
    where = params(tmp_path, cpus_per_shard=0.5, timeout_s=60.0)
    whole = model().fit(X, Y)
    back = interrupt(monkeypatch, 1)
    with pytest.raises(Interrupted):
        model(ray_params=where, engine="ray").fit(X, Y)
    back()
    assert len(files(tmp_path)) >= 1
    resumed = model(ray_params=where, engine="ray").fit(X, Y)
    assert resumed.resumed_from_ == 1
    assert_same(resumed, whole)
    assert files(tmp_path) == []


# -- searches ---------------------------------------------------------------------------------------------------------

GRID = {"C": [0.3, 3.0], "kernels": [BANK[:2], BANK], "p": [1.5, 2.0]}


def search(folder=None, estimator=None, **more):
    return MKLSearchCV(estimator or model(folder, tol=1e-4), GRID, cv=3, **more)


def test_a_search_leaves_nothing(tmp_path):
    found = search(tmp_path / "runs").fit(X, Y)
    assert files(tmp_path / "runs") == []
    assert found.best_estimator_.ray_params.checkpoint_dir == str(tmp_path / "runs")
    expected = search().fit(X, Y)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


def test_a_killed_search_does_not_do_again_what_was_done(tmp_path, monkeypatch):
    expected = search().fit(X, Y)
    original, runs = train_module.train, []

    def second_run_fails(rows, problem, heads, engine, where, report, keep):
        runs.append(where.checkpoint_dir)
        if len(runs) == 2:

            def report(row):
                if row.get("round") == 4:
                    raise Interrupted

        return original(rows, problem, heads, engine, where, report, keep)

    monkeypatch.setattr(grid_module, "train", second_run_fails)
    with pytest.raises(Interrupted):
        search(tmp_path).fit(X, Y)
    assert files(tmp_path) == ["search-0", "search-1"]

    resumed = []

    def count(*arguments):
        trained = original(*arguments)
        resumed.append((trained.resumed_from, len(trained.history)))
        return trained

    monkeypatch.setattr(grid_module, "train", count)
    local_runs = []
    here = train_module._train_here
    monkeypatch.setattr(train_module, "_train_here", lambda *arguments: local_runs.append(1) or here(*arguments))
    found = search(tmp_path).fit(X, Y)
    assert [at for at, _ in resumed] == [resumed[0][0], 3] and resumed[0][0] > 3
    assert len(local_runs) == 2  # the second run and the refit; the first one was over
    for name in ("mean_test_score", "split0_test_score"):
        np.testing.assert_allclose(found.cv_results_[name], expected.cv_results_[name], atol=1e-9)
    assert found.best_params_ == expected.best_params_
    assert files(tmp_path) == []


def test_a_killed_refit_goes_on(tmp_path, monkeypatch):
    back = interrupt(monkeypatch, 3)
    with pytest.raises(Interrupted):
        search(tmp_path).fit(X, Y)
    back()
    assert files(tmp_path) == ["refit", "search-0", "search-1"]
    found = search(tmp_path).fit(X, Y)
    assert found.best_estimator_.resumed_from_ == 2 and files(tmp_path) == []


def test_another_search_is_refused(tmp_path, monkeypatch):
    back = interrupt(monkeypatch, 3)
    with pytest.raises(Interrupted):
        search(tmp_path).fit(X, Y)
    back()
    with pytest.raises(ValueError, match="of another run"):
        MKLSearchCV(model(tmp_path, tol=1e-4), {**GRID, "C": [0.3, 2.0]}, cv=3).fit(X, Y)


def test_fold_by_fold(tmp_path):
    """Estimators whose folds are no heads, here inside a pipeline: their short runs write nothing, the refit does."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), model(tmp_path, tol=1e-4))
    found = MKLSearchCV(pipeline, {"mklclassifier__C": [0.3, 3.0]}, cv=3).fit(X, Y)
    assert files(tmp_path) == []
    assert found.best_estimator_.get_params()["mklclassifier__ray_params"].checkpoint_dir == str(tmp_path)
