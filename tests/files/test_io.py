"""Model files: predictions come back to the bit, without pickle, and anything else than a model is
refused.
"""

import json
import pickle
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import raymkl
from raymkl import MKLClassifier, RayParams
from raymkl.baselines import SimpleMKL
from raymkl.kernels import (
    RBF,
    Chi2,
    Custom,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    rbf,
)
from raymkl.models.table_model import Preparation, TableModel
from tests.reference import gram, noisy_problem

X, Y = noisy_problem(60, seed=31)
X_TEST, _ = noisy_problem(30, seed=32)
BANK = [*rbf([0.05, 0.5]), Linear(), Polynomial(degree=2, coef0=1.0)]
FRAME = pd.DataFrame(X, columns=list("abcdef"))
FRAME_TEST = pd.DataFrame(X_TEST, columns=list("abcdef"))
WORDS = np.where(Y > 0, "yes", "nö")


def case(train=X, test=X_TEST, y=Y, **params):
    return train, test, y, {"kernels": BANK, "engine": "local", **params}


CASES = {
    "dense": case(),
    "float32": case(X.astype(np.float32), X_TEST.astype(np.float32), dtype="float32"),
    "sparse": case(sp.csr_matrix(X), sp.csr_matrix(X_TEST)),
    "frame": case(
        FRAME, FRAME_TEST, kernels=[Linear(view=["a", "f"]), RBF(view="b"), Linear(view=slice(0, 3))]
    ),
    "columns": case(
        kernels=[Linear(view=[0, 2]), RBF(view=np.array([1, 3])), RBF(view=[True] * 3 + [False] * 3)]
    ),
    "dict of views": case(
        {"a": X, "b": sp.csr_matrix(X)},
        {"a": X_TEST, "b": sp.csr_matrix(X_TEST)},
        kernels=[RBF(view=("a", [0, 1])), Linear(view="b")],
    ),
    "precomputed": case(gram(BANK, X), gram(BANK, X_TEST, X), kernels="precomputed"),
    "matrix and vectors": case(
        {"v": X, "m": gram(BANK[:2], X)},
        {"v": X_TEST, "m": gram(BANK[:2], X_TEST, X)},
        kernels=[Linear(view="v"), Precomputed(view="m"), Precomputed(view="m", index=1)],
    ),
    "composite": case(
        kernels=[
            RBF(gamma=0.1) + Linear(),
            3.0 * (RBF(gamma=0.2) * Polynomial(degree=2, coef0=1.0)),
            Laplacian(),
        ]
    ),
    "histograms": case(np.abs(X), np.abs(X_TEST), kernels=[Chi2(gamma=0.3), HistogramIntersection()]),
    "string labels": case(y=WORDS),
    "object labels": case(y=WORDS.astype(object)),
    "boolean labels": case(y=Y > 0),
    "several classes": case(y=np.array(["a", "b", "c"])[np.arange(60) % 3]),
    "p=inf": case(p=np.inf, tol=5e-3),
    "p=1": case(p=1),
    "default bank": case(kernels=None),
    "one kernel": case(kernels=RBF(gamma=0.1)),
    "multiplicative": case(normalize="multiplicative"),
    "spherical": case(normalize="spherical"),
    "class weights": case(class_weight={-1: 2.0, 1: 0.5}),
    "ray params": case(ray_params=RayParams(num_shards=2, memory_per_shard=10**7)),
}


@pytest.fixture(scope="module")
def fitted():
    models = {}

    def of(name):
        if name not in models:
            train, _, y, params = CASES[name]
            models[name] = MKLClassifier(**params).fit(train, y)
        return models[name]

    return of


@pytest.mark.parametrize("name", CASES)
def test_a_model_comes_back_to_the_bit(name, fitted, tmp_path, monkeypatch):
    model, test = fitted(name), CASES[name][1]
    path = tmp_path / "model.raymkl"
    model.save(path)

    def refuse(*args, **kwargs):
        raise AssertionError("a model file must not hold pickle")

    with monkeypatch.context() as patch:
        for attribute in ("loads", "load", "Unpickler"):
            patch.setattr(pickle, attribute, refuse)
        again = raymkl.load(path)
    np.testing.assert_array_equal(again.decision_function(test), model.decision_function(test))
    predicted = again.predict(test)
    np.testing.assert_array_equal(predicted, model.predict(test))
    assert predicted.dtype == model.predict(test).dtype


@pytest.mark.parametrize("name", CASES)
def test_attributes_and_parameters_come_back(name, fitted, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "m")
    again = raymkl.load(str(tmp_path / "m"))
    assert type(again) is type(model)
    assert repr(again.get_params()) == repr(model.get_params())
    assert set(vars(again)) == set(vars(model))
    for attribute in (
        "classes_",
        "kernel_weights_",
        "support_",
        "dual_coef_",
        "intercept_",
        "duality_gap_",
        "dual_objective_",
    ):
        np.testing.assert_array_equal(getattr(again, attribute), getattr(model, attribute))
    assert again.history_ == model.history_
    assert (
        again.n_iter_ == model.n_iter_
        and again.converged_ == model.converged_
        and again.n_features_in_ == model.n_features_in_
    )
    again.set_params(tol=1e-2).fit(*CASES[name][0:3:2])  # it is a whole estimator, not only a predictor


def test_feature_names_are_checked_after_loading(fitted, tmp_path):
    fitted("frame").save(tmp_path / "m")
    again = raymkl.load(tmp_path / "m")
    np.testing.assert_array_equal(again.feature_names_in_, list("abcdef"))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(FRAME_TEST.rename(columns={"a": "z"}))


def test_a_loaded_model_can_be_saved_again(fitted, tmp_path):
    fitted("dense").save(tmp_path / "first")
    raymkl.load(tmp_path / "first").save(tmp_path / "second")
    np.testing.assert_array_equal(
        raymkl.load(tmp_path / "second").decision_function(X_TEST), fitted("dense").decision_function(X_TEST)
    )


def test_a_function_cannot_be_saved(tmp_path):
    def linear(A, B):
        return A @ B.T

    for kernel in (Custom(linear), Custom(linear) + RBF()):
        model = MKLClassifier(kernels=[RBF(), kernel], engine="local").fit(X, Y)
        with pytest.raises(TypeError, match=r"Custom\(linear\).*pickle"):
            model.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()  # no half a file


def test_what_cannot_be_written_as_data_is_a_type_error(tmp_path):
    model = MKLClassifier(kernels=BANK, engine="local", random_state=np.random.RandomState(0)).fit(X, Y)
    with pytest.raises(TypeError, match="RandomState"):
        model.save(tmp_path / "model")


def test_models_that_files_do_not_hold_are_refused_before_anything_is_written(tmp_path):
    model = SimpleMKL(kernels=BANK).fit(X, Y)
    with pytest.raises(TypeError, match=r"SimpleMKL has no file format .* files hold MKLClassifier"):
        raymkl.io.save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_an_unfitted_model_cannot_be_saved(tmp_path):
    with pytest.raises(NotFittedError):
        MKLClassifier(kernels=BANK).save(tmp_path / "model")


def test_a_file_says_the_oldest_version_that_can_read_it(fitted, tmp_path):
    """A model with the preparation of its columns is version 2; others are what they were."""
    prepared = TableModel(
        fitted("dense"), Preparation({None: list("abcdef")}, dict.fromkeys("abcdef", 1), target="label")
    )
    for model, version in ((fitted("dense"), 1), (prepared, 2)):
        model.save(tmp_path / "m")
        with pa.memory_map(str(tmp_path / "m")) as source:
            head = json.loads(pa.ipc.open_file(source).schema.metadata[b"raymkl"])
        assert head["format"] == version and head["class"] == "MKLClassifier"
        assert ("preparation" in head) is (version == 2)
    np.testing.assert_array_equal(
        raymkl.load(tmp_path / "m").decision_function(FRAME_TEST), fitted("dense").decision_function(X_TEST)
    )


def test_a_preparation_that_says_something_else(fitted, tmp_path):
    TableModel(fitted("dense"), Preparation({None: ["a"]}, {"a": 6})).save(tmp_path / "good")
    rewritten(
        tmp_path / "good", tmp_path / "strange", lambda head: head["preparation"].update(code="import os")
    )
    with pytest.raises(ValueError, match=r"strange is damaged or was not written by raymkl.*code"):
        raymkl.load(tmp_path / "strange")


def test_a_file_holds_support_vectors_and_no_other_rows(tmp_path):
    """Easy data, few support vectors: the file hardly grows with the number of rows."""
    sizes = []
    for n in (100, 2000):
        rng = np.random.default_rng(0)
        y = np.arange(n) % 2
        model = MKLClassifier(kernels=[Linear()], engine="local").fit(
            rng.normal(size=(n, 50)) + 10.0 * y[:, None], y
        )
        model.save(tmp_path / "m")
        bound = 8 * 50 * len(model.support_) + 20_000
        sizes.append((tmp_path / "m").stat().st_size)
        assert len(model.support_) < 60 and sizes[-1] < bound
    assert sizes[1] < 8 * 2000 * 50 / 10


def test_an_interrupted_save_leaves_the_old_file(fitted, tmp_path, monkeypatch):
    fitted("dense").save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    monkeypatch.setattr(pa.ipc, "new_file", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        fitted("sparse").save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before and [path.name for path in tmp_path.iterdir()] == ["m"]


def test_loading_and_predicting_needs_no_ray(fitted, tmp_path):
    model = fitted("ray params")
    model.save(tmp_path / "m")
    np.save(tmp_path / "x.npy", X_TEST)
    code = (
        "import sys, numpy as np, raymkl\n"
        f"values = raymkl.load({str(tmp_path / 'm')!r}).decision_function(np.load({str(tmp_path / 'x.npy')!r}))\n"
        f"np.save({str(tmp_path / 'f.npy')!r}, values)\n"
        "print('ray' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.stdout.strip() == "False", result.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), model.decision_function(X_TEST))


def test_the_file_is_arrow_and_json(fitted, tmp_path):
    fitted("dense").save(tmp_path / "m")
    with pa.memory_map(str(tmp_path / "m")) as source:
        table = pa.ipc.open_file(source).read_all()
    head = json.loads(table.schema.metadata[b"raymkl"])
    assert head["format"] == 1 and head["class"] == "MKLClassifier"
    assert not any(value.startswith((b"\x80\x04", b"\x80\x05")) for value in table["data"].to_pylist())


# -- files that are not models ---------------------------------------------------------------------


def rewritten(source, target, change):
    """The model file with its JSON head changed."""
    with pa.memory_map(str(source)) as file:
        table = pa.ipc.open_file(file).read_all()
    head = json.loads(table.schema.metadata[b"raymkl"])
    change(head)
    table = table.replace_schema_metadata({"raymkl": json.dumps(head)})
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def older(head):
    """A description as versions before `Expansion` wrote it."""
    attributes = head["attributes"]
    attributes["_engine_used"] = attributes.pop("engine_used_")
    if set(attributes["_gate_of_entry"]) == {-1}:
        attributes["_gate_of_entry"] = None
    if not attributes["_stack_depths"]["dict"]:
        del attributes["_stack_depths"]  # as the oldest did


@pytest.mark.parametrize(
    "name", ["dense", "sparse", "precomputed", "matrix and vectors", "several classes", "spherical"]
)
def test_older_files_are_read(name, fitted, tmp_path):
    model, test = fitted(name), CASES[name][1]
    model.save(tmp_path / "new")
    rewritten(tmp_path / "new", tmp_path / "old", older)
    again = raymkl.load(tmp_path / "old")
    np.testing.assert_array_equal(again.decision_function(test), model.decision_function(test))
    np.testing.assert_array_equal(again.contributions(test), model.contributions(test))
    assert set(vars(again)) == set(vars(model)) and again.engine_used_ == "local"
    assert again.expansion_.gate_of_entry == model.expansion_.gate_of_entry


def test_parts_of_the_expansion_are_written_under_the_names_they_always_had(fitted, tmp_path):
    """So that versions before `Expansion` read new files."""
    fitted("spherical").save(tmp_path / "m")
    with pa.memory_map(str(tmp_path / "m")) as source:
        attributes = json.loads(pa.ipc.open_file(source).schema.metadata[b"raymkl"])["attributes"]
    names = {
        "_effective_weights",
        "_gate_of_entry",
        "_support_rows",
        "_support_gates",
        "_n_train",
        "_stack_depths",
    }
    assert (
        names | {"kernels_", "dual_coef_", "support_"} <= set(attributes) and "expansion_" not in attributes
    )


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        raymkl.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"ARROW1\x00\x00" + b"\x00" * 100, b"\x80\x04N." * 50],
    ids=["empty", "text", "zeros", "pickle"],
)
def test_garbage(content, tmp_path):
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match="bad is not a raymkl model"):
        raymkl.load(tmp_path / "bad")


@pytest.mark.parametrize("part", [0.05, 0.3, 0.7, 0.95, 0.999])
def test_truncated_files(part, fitted, tmp_path):
    fitted("dense").save(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    (tmp_path / "cut").write_bytes(data[: int(len(data) * part)])
    with pytest.raises(ValueError, match="cut is not a raymkl model"):
        raymkl.load(tmp_path / "cut")


def test_arrow_files_of_others(tmp_path):
    table = pa.table({"a": [1, 2]})
    for name, metadata in (
        ("none", None),
        ("other", {"raymkl": "no json"}),
        ("list", {"raymkl": "[1]"}),
        ("empty", {"raymkl": "{}"}),
    ):
        with pa.OSFile(str(tmp_path / name), "wb") as sink:
            written = table.replace_schema_metadata(metadata)
            with pa.ipc.new_file(sink, written.schema) as writer:
                writer.write_table(written)
        with pytest.raises(ValueError, match=f"{name} is not a raymkl model"):
            raymkl.load(tmp_path / name)


def test_a_directory_is_not_a_model(tmp_path):
    with pytest.raises((ValueError, OSError)):
        raymkl.load(tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda head: head.update(format=99), "format 99"),
        (lambda head: head.update({"class": "Popen"}), "Popen"),
        (lambda head: head["params"].update(kernels=[{"kernel": "Popen", "params": {}}]), "Popen"),
        (
            lambda head: head["attributes"].update(
                dual_coef_={"array": "array999", "dtype": "<f8", "shape": [1]}
            ),
            "array999",
        ),
        (lambda head: head["attributes"].update(dual_coef_={"surprise": 1}), "surprise"),
        (lambda head: head["params"].update(magic=1), "magic"),
        (lambda head: head.pop("params"), "params"),
    ],
    ids=[
        "later format",
        "unknown class",
        "unknown kernel",
        "missing array",
        "unknown entry",
        "unknown parameter",
        "no parameters",
    ],
)
def test_heads_that_say_something_else(change, message, fitted, tmp_path):
    """Names in the file choose among known classes; they never reach the importer."""
    fitted("dense").save(tmp_path / "good")
    rewritten(tmp_path / "good", tmp_path / "strange", change)
    with pytest.raises(ValueError, match=message):
        raymkl.load(tmp_path / "strange")


def test_saving_over_a_model_that_is_in_use(fitted, tmp_path):
    """Arrays of a loaded model are its own, not views of the file."""
    fitted("dense").save(tmp_path / "m")
    first = raymkl.load(tmp_path / "m")
    before = first.decision_function(X_TEST)
    fitted("sparse").save(tmp_path / "m")
    (tmp_path / "m").unlink()
    np.testing.assert_array_equal(first.decision_function(X_TEST), before)
    assert first.dual_coef_.flags.writeable


def test_threads_may_load_at_once(fitted, tmp_path):
    fitted("dense").save(tmp_path / "m")
    values = []
    threads = [
        threading.Thread(target=lambda: values.append(raymkl.load(tmp_path / "m").decision_function(X_TEST)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(values) == 4
    assert all(np.array_equal(v, values[0]) for v in values)
