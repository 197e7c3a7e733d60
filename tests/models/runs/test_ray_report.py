"""`RayReport` inside functions of Ray Tune and Ray Train, and outside of any."""

import numpy as np
import pytest

import raymkl
from raymkl import MKLClassifier, RayReport, kernels
from raymkl.models.runs.ray_report import metrics_of
from tests.reference import noisy_problem

pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")

X, Y = noisy_problem(60)


def model(**params):
    return MKLClassifier(**{"kernels": kernels.rbf([0.05, 0.5]), "engine": "local", **params})


def loaded(checkpoint):
    with checkpoint.as_directory() as folder:
        return raymkl.load(f"{folder}/model.raymkl")


def test_in_a_function_of_tune(ray_cluster, tmp_path, monkeypatch):
    from ray import tune

    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "0")

    def trial(config):
        model(C=config["C"]).set_callbacks(RayReport()).fit(X, Y)

    config = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(trial, param_space={"C": tune.grid_search([0.7])}, run_config=config).fit()
    expected = model(C=0.7).fit(X, Y)
    assert result.error is None and result.metrics["converged"]
    assert (
        result.metrics["gap"] == expected.duality_gap_
        and result.metrics["training_iteration"] == len(expected.history_) + 1
    )
    assert result.metrics_dataframe["round"].tolist()[:-1] == [row["round"] for row in expected.history_]
    assert np.array_equal(loaded(result.checkpoint).decision_function(X), expected.decision_function(X))


def test_in_a_function_of_train(ray_cluster, tmp_path, monkeypatch):
    """Without Train's own watchers: one of them asks any Ray of the machine whether the controller is alive,
    and ends the run where another one answers that it knows of none.
    """
    from ray import train
    from ray.train.v2._internal.execution.callback import ControllerCallback
    from ray.train.v2.api import data_parallel_trainer

    monkeypatch.setattr(
        data_parallel_trainer, "PlacementGroupCleanerCallback", ControllerCallback, raising=False
    )
    monkeypatch.setenv("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")

    def work():
        model().set_callbacks(RayReport(every_s=3600)).fit(X, Y)

    config = train.RunConfig(storage_path=str(tmp_path), name="fit")
    result = data_parallel_trainer.DataParallelTrainer(
        work, scaling_config=train.ScalingConfig(num_workers=1), run_config=config
    ).fit()
    expected = model().fit(X, Y)
    assert result.metrics["gap"] == expected.duality_gap_
    assert np.array_equal(loaded(result.checkpoint).decision_function(X), expected.decision_function(X))


def test_outside_of_any_it_says_so_before_the_fit():
    fit = model().set_callbacks(RayReport())
    with pytest.raises(RuntimeError, match="RayReport reports from inside"):
        fit.fit(X, Y)
    assert not hasattr(fit, "history_")


def test_metrics_are_numbers_of_the_worst_problem():
    rows = [
        {"round": 3, "head": h, "gap": gap, "precision": "proved", "primal": 10.0 * h}
        for h, gap in enumerate((0.1, 0.5, 0.2))
    ]
    assert metrics_of(rows) == {"round": 3, "gap": 0.5, "primal": 10.0, "problems": 3}
    assert metrics_of([{"iteration": 1, "bound": -3.0, "phase": "merge"}]) == {
        "iteration": 1,
        "bound": -3.0,
        "problems": 1,
    }


@pytest.mark.parametrize(
    "wrong", [{"every_s": -1}, {"every_s": "often"}, {"every_s": True}, {"checkpoint": "yes"}], ids=str
)
def test_bad_values(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RayReport(**wrong)
