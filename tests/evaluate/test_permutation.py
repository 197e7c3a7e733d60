"""Permutation tests against scikit-learn's, which fits every permutation and fold anew."""

import gc
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    permutation_test_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from raymkl import MKLClassifier, MKLRegressor, RayParams, evaluate, kernels
from raymkl.search import cases as cases_module
from tests.checks import fails
from tests.engine.faults.interrupted_runs import Interrupted, files, interrupt
from tests.reference import noisy_problem

X, Y = noisy_problem(60, seed=7)
IRIS = load_iris()
GROUPS = np.arange(60) % 5


def model(cls=MKLClassifier, **more):
    return cls(**{"kernels": kernels.rbf([0.05, 0.5]), "engine": "local", "tol": 1e-6, **more})


@pytest.mark.parametrize(
    "estimator, data, target, more",
    [
        (model(), X, Y, {"cv": StratifiedKFold(3)}),
        (model(), X, Y, {"cv": 3, "scoring": "roc_auc"}),
        (model(), X, Y, {"cv": StratifiedShuffleSplit(3, random_state=3), "scoring": "roc_auc"}),
        (model(), X, Y, {"cv": GroupKFold(3), "groups": GROUPS}),
        (model(tol=1e-4), IRIS.data[::2], np.array(["a", "b", "c"])[IRIS.target[::2]], {"cv": 3}),
        (model(MKLRegressor), X, X[:, 0], {"cv": KFold(3, shuffle=True, random_state=1), "scoring": "r2"}),
        (make_pipeline(StandardScaler(), model()), X, Y, {"cv": 3}),
        (LogisticRegression(), X, Y, {"cv": 3}),
    ],
)
def test_null_scores_are_those_of_scikit_learn(estimator, data, target, more):
    found = evaluate.permutation(estimator, data, target, n=4, random_state=5, **more)
    score, null, p = permutation_test_score(estimator, data, target, n_permutations=4, random_state=5, **more)
    assert found.score == pytest.approx(score, abs=1e-3) and found.null == pytest.approx(null, abs=1e-3)
    assert found.p_value == pytest.approx(p) and null.std() > 0


def test_memory_does_not_grow_with_the_permutations(monkeypatch):
    """Nine times the batches, and no collection of garbage between them: heads and their arrays go with their
    batch.
    """
    monkeypatch.setattr(cases_module, "MOST_IN_BATCH", 16)
    peaks = {}
    for n in (7, 7, 63):  # the first one loads what is needed
        gc.collect()
        tracemalloc.start()
        gc.disable()
        evaluate.permutation(model(tol=1e-1), X, Y, n=n, cv=2, random_state=0)
        gc.enable()
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[63] < 1.8 * peaks[7]


def test_null_scores_do_not_depend_on_the_batches(monkeypatch):
    few = evaluate.permutation(model(), X, Y, n=5, cv=3, random_state=1, scoring="roc_auc")
    monkeypatch.setattr(cases_module, "MOST_IN_BATCH", 4)
    many = evaluate.permutation(model(), X, Y, n=9, cv=3, random_state=1, scoring="roc_auc")
    assert few.score == many.score and np.array_equal(few.null, many.null[:5])


@pytest.mark.parametrize("error", [Interrupted, KeyboardInterrupt])
def test_an_interrupted_study_goes_on(tmp_path, monkeypatch, error):
    monkeypatch.setattr(cases_module, "MOST_IN_BATCH", 4)
    where = RayParams(checkpoint_dir=str(tmp_path), checkpoint_every_s=1e-9, num_shards=2)

    def test(**more):
        return evaluate.permutation(model(**more), X, Y, n=4, cv=3, random_state=2)

    expected = test(ray_params=RayParams(num_shards=2))
    original, runs = cases_module.train, []

    def third_run_fails(*arguments):
        runs.append(arguments[4].checkpoint_dir)
        if len(runs) == 3:
            raise error
        return original(*arguments)

    monkeypatch.setattr(cases_module, "train", third_run_fails)
    with pytest.raises(error):
        test(ray_params=where)
    assert files(tmp_path) == ["permutation-0", "permutation-1"]
    resumed = []

    def count(*arguments):
        trained = original(*arguments)
        resumed.append(trained.resumed_from)
        return trained

    monkeypatch.setattr(cases_module, "train", count)
    found = test(ray_params=where)
    assert [at is None for at in resumed] == [False, False, True, True]
    np.testing.assert_allclose(found.null, expected.null)
    assert files(tmp_path) == []


def test_a_study_that_is_interrupted_in_a_round_keeps_it(tmp_path, monkeypatch, small_working_sets):
    where = RayParams(checkpoint_dir=str(tmp_path), checkpoint_every_s=1e-9)
    back = interrupt(monkeypatch, 2, where=cases_module)
    with pytest.raises(Interrupted):
        evaluate.permutation(model(ray_params=where), X, Y, n=1, cv=2, random_state=2)
    back()
    assert files(tmp_path) == ["permutation-0"]
    fails(
        ["checkpoint_dir", "labels"],
        lambda: evaluate.permutation(model(ray_params=where), X, Y, n=1, cv=2, random_state=3),
    )
    found = evaluate.permutation(model(ray_params=where), X, Y, n=1, cv=2, random_state=2)
    assert found.null == pytest.approx(evaluate.permutation(model(), X, Y, n=1, cv=2, random_state=2).null)


def test_table_latex_file_and_picture(tmp_path):
    found = evaluate.permutation(model(), X, Y, n=3, cv=2, random_state=0)
    table = found.table()
    assert (
        len(table) == 1 and table["p_value"].iloc[0] == found.p_value and table["permutations"].iloc[0] == 3
    )
    assert r"\begin{tabular}" in found.to_latex() and r"p\_value" in found.to_latex()
    found.to_csv(tmp_path / "a.csv")
    assert "random_state: 0" in (tmp_path / "a.csv").read_text()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv", comment="#"), table)
    display = found.plot()
    assert type(display) is evaluate.PermutationDisplay and display.ax_.figure is display.figure_


def test_errors():
    fails(["n must"], lambda: evaluate.permutation(model(), X, Y, n=0))
    fails(["nice"], lambda: evaluate.permutation(model(), X, Y, scoring="nice"))
    fails(["scoring"], lambda: evaluate.permutation(model(), X, Y, scoring=["accuracy"]))
    fails(["estimator"], lambda: evaluate.permutation("mkl", X, Y))
    fails(["lengths"], lambda: evaluate.permutation(model(), X, Y[:-1]))
    fails(["groups"], lambda: evaluate.permutation(model(), X, Y, groups=np.zeros(3)))


def test_on_ray(ray_cluster):
    where = {"engine": "ray", "ray_params": RayParams(num_shards=2, cpus_per_shard=0.5)}
    here, far = (
        evaluate.permutation(model(**more), X, Y, n=2, cv=2, random_state=0, scoring="roc_auc")
        for more in ({}, where)
    )
    np.testing.assert_allclose(here.null, far.null, atol=1e-3)
