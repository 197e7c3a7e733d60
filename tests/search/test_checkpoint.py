"""A search that was killed goes on from its checkpoints, and does not do again what was done."""

import numpy as np
import pytest

from raymkl.engine import run as train_module
from raymkl.search import MKLSearchCV
from raymkl.search import grid as grid_module
from tests.engine.faults.interrupted_runs import BANK, Interrupted, X, Y, files, interrupt, model

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
    monkeypatch.setattr(
        train_module, "_train_here", lambda *arguments: local_runs.append(1) or here(*arguments)
    )
    found = search(tmp_path).fit(X, Y)
    assert [at for at, _ in resumed] == [resumed[0][0], 3] and resumed[0][0] > 3
    assert len(local_runs) == 2  # the second run and the refit; the first one was over
    for name in ("mean_test_score", "split0_test_score"):
        np.testing.assert_allclose(found.cv_results_[name], expected.cv_results_[name], atol=1e-9)
    assert found.best_params_ == expected.best_params_
    assert files(tmp_path) == []


@pytest.mark.usefixtures("small_working_sets")
def test_a_killed_refit_goes_on(tmp_path, monkeypatch):
    back = interrupt(monkeypatch, 3)
    with pytest.raises(Interrupted):
        search(tmp_path).fit(X, Y)
    back()
    assert files(tmp_path) == ["refit", "search-0", "search-1"]
    found = search(tmp_path).fit(X, Y)
    assert found.best_estimator_.resumed_from_ == 2 and files(tmp_path) == []


@pytest.mark.usefixtures("small_working_sets")
def test_another_search_is_refused(tmp_path, monkeypatch):
    back = interrupt(monkeypatch, 3)
    with pytest.raises(Interrupted):
        search(tmp_path).fit(X, Y)
    back()
    with pytest.raises(ValueError, match="of another run"):
        MKLSearchCV(model(tmp_path, tol=1e-4), {**GRID, "C": [0.3, 2.0]}, cv=3).fit(X, Y)


def test_fold_by_fold(tmp_path):
    """Estimators whose folds are no heads, here inside a pipeline: their short runs write nothing, the refit
    does.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(StandardScaler(), model(tmp_path, tol=1e-4))
    found = MKLSearchCV(pipeline, {"mklclassifier__C": [0.3, 3.0]}, cv=3).fit(X, Y)
    assert files(tmp_path) == []
    assert found.best_estimator_.get_params()["mklclassifier__ray_params"].checkpoint_dir == str(tmp_path)
