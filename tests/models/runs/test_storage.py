"""Runs with a name: what they leave, that they go on where they were cut off, and what is refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import GridSearchCV

import raymkl
from raymkl import MKLClassifier, MKLRegressor, RayParams, StochasticMKLClassifier, kernels, search
from tests.reference import noisy_problem

BANK = kernels.rbf([0.05, 0.5])
X, Y = noisy_problem(60)


def params(tmp_path, **more):
    return RayParams(name="first", storage_path=tmp_path, **more)


def files_of(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "model",
    [
        MKLClassifier(kernels=BANK, engine="local"),
        MKLRegressor(kernels=BANK, engine="local"),
        StochasticMKLClassifier(kernels=BANK, engine="local", max_iter=3, tol=1.0),
        raymkl.LocalizedMKLClassifier(
            kernels=BANK, engine="local", max_iter=2, tol=0.5, n_init=1, random_state=0
        ),
        raymkl.ClusteredMKLClassifier(n_clusters=2, max_iter=2, tol=1.0, engine="local", random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_run_leaves_its_model_its_history_and_its_facts(tmp_path, model):
    model.set_params(ray_params=params(tmp_path)).fit(X, Y)
    folder = tmp_path / "first"
    assert files_of(folder) == ["history.parquet", "model.raymkl", "run.json"] and [
        path.name for path in tmp_path.iterdir()
    ] == ["first"]
    loaded = raymkl.load(folder / "model.raymkl")
    assert np.array_equal(loaded.predict(X), model.predict(X)) and loaded.ray_params == model.ray_params
    history = pq.read_table(folder / "history.parquet").to_pylist()
    assert len(history) == len(model.history_) and [row["seconds"] for row in history] == [
        row["seconds"] for row in model.history_
    ]
    facts = json.loads((folder / "run.json").read_text())
    assert (
        facts["name"] == "first"
        and facts["estimator"] == type(model).__name__
        and facts["model"] == "model.raymkl"
    )
    assert facts["sizes"]["rows"] == 60 and facts["failures"] == 0 and facts["engine"] == "local"
    assert (
        facts["versions"]["raymkl"] == raymkl.__version__
        and facts["seconds"] == model.history_[-1]["seconds"]
    )
    assert facts.get("gap") == getattr(model, "duality_gap_", None)


def test_several_classes_have_several_gaps_and_a_later_run_takes_the_place(tmp_path):
    model = MKLClassifier(kernels=BANK, engine="local", ray_params=params(tmp_path)).fit(X, Y)
    y = np.arange(60) % 3
    model.fit(X, y)
    facts = json.loads((tmp_path / "first" / "run.json").read_text())
    assert facts["gap"] == model.duality_gap_.tolist() and facts["sizes"]["classes"] == 3
    assert np.array_equal(raymkl.load(tmp_path / "first" / "model.raymkl").predict(X), model.predict(X))


@pytest.mark.usefixtures("small_working_sets")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch, elsewhere):
    """Its checkpoints are with its name, or in `checkpoint_dir` where one is given; a finished run has
    none.
    """
    from raymkl.engine.rounds.coordinator import Coordinator

    chosen = tmp_path / "chosen"
    where = params(tmp_path, checkpoint_every_s=1e-9, checkpoint_dir=str(chosen) if elsewhere else None)
    model = MKLClassifier(kernels=BANK, C=30.0, tol=1e-9, engine="local", ray_params=where)
    real, rounds = Coordinator.round_once, []

    def breaks(self, *arguments):
        rounds.append(0)
        if len(rounds) == 5:
            raise KeyboardInterrupt
        return real(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "round_once", breaks)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    checkpoints = chosen if elsewhere else tmp_path / "first" / "checkpoints"
    assert files_of(checkpoints) and all(name.endswith(".checkpoint") for name in files_of(checkpoints))
    assert not (tmp_path / "first" / "model.raymkl").exists()
    model.fit(X, Y)
    assert model.resumed_from_ == 4 and files_of(tmp_path / "first") == [
        "history.parquet",
        "model.raymkl",
        "run.json",
    ]
    assert not files_of(chosen) if elsewhere else not checkpoints.exists()
    assert json.loads((tmp_path / "first" / "run.json").read_text())["resumed_from"] == 4


def test_a_search_names_its_best_model_alone(tmp_path):
    model = MKLClassifier(kernels=BANK, engine="local", ray_params=params(tmp_path))
    found = search.MKLSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, Y)
    assert files_of(tmp_path) == ["history.parquet", "model.raymkl", "run.json"]
    assert found.best_params_["C"] == raymkl.load(tmp_path / "first" / "model.raymkl").C
    assert found.best_estimator_.ray_params == model.ray_params
    GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(
        X, Y
    )  # every fit of it takes the place of the one before


def test_a_model_that_holds_a_function_leaves_the_rest(tmp_path):
    custom = kernels.Custom(lambda A, B: A @ B.T)
    MKLClassifier(kernels=[custom], engine="local", ray_params=params(tmp_path)).fit(X, Y)
    assert files_of(tmp_path) == ["history.parquet", "run.json"]
    assert "holds a function of yours" in json.loads((tmp_path / "first" / "run.json").read_text())["model"]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"name": "a"}, "belong together"),
        ({"storage_path": "/tmp/a"}, "belong together"),
        ({"name": "a/b", "storage_path": "/tmp/a"}, "without slashes"),
        ({"name": "..", "storage_path": "/tmp/a"}, "without slashes"),
        ({"name": "", "storage_path": "/tmp/a"}, "without slashes"),
        ({"name": 3, "storage_path": "/tmp/a"}, "name must be"),
        ({"name": "a", "storage_path": 3}, "storage_path must be"),
        ({"name": "a", "storage_path": ""}, "storage_path must be"),
    ],
)
def test_names_that_are_none(wrong, message):
    with pytest.raises(ValueError, match=message):
        RayParams(**wrong)


def test_a_place_that_cannot_be_written_to_is_found_before_the_work(tmp_path):
    (tmp_path / "file").write_text("no folder")
    for storage in (str(tmp_path / "file"), "nowhere://there"):
        where = RayParams(name="first", storage_path=storage)
        for kind in (MKLClassifier, StochasticMKLClassifier):
            model = kind(kernels=BANK, engine="local", ray_params=where)
            with pytest.raises(ValueError, match="storage_path"):
                model.fit(X, Y)
            assert not hasattr(model, "history_")
