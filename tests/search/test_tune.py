"""Ray Tune over heads: light trials, one service, schedulers that can act, failures that stay where they
are.
"""

import joblib
import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from raymkl import MKLClassifier, RayParams, kernels, load, search
from raymkl.search import tuning
from tests.processes import wait_for
from tests.reference import noisy_problem

pytest.importorskip("ray.tune")

BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0)]
X, Y = noisy_problem(80)
SPLITS = list(StratifiedKFold(3).split(X, Y))


def model(**params):
    return MKLClassifier(**{"kernels": BANK, "tol": 1e-6, **params})


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Tune's tables are not what is tested here."""
    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "0")


@pytest.fixture
def run_config(tmp_path):
    from ray import tune

    return tune.RunConfig(storage_path=str(tmp_path), verbose=0)


def all_cpus_are_free(ray):
    """Actors hold CPUs; those that ended give them back a moment later."""
    return wait_for(lambda: ray.available_resources().get("CPU", 0.0) == ray.cluster_resources()["CPU"], 30)


def model_in(checkpoint):
    with checkpoint.as_directory() as folder:
        return load(f"{folder}/model.raymkl")


def test_trials_that_a_scheduler_may_stop(ray_cluster, run_config):
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    config = tune.TuneConfig(
        num_samples=5, metric="score", mode="max", scheduler=ASHAScheduler(grace_period=2)
    )
    space = {"C": tune.loguniform(0.01, 100), "p": tune.uniform(1.0, 2.0)}
    found = search.tune(
        model(), X, Y, space, cv=SPLITS, tune_config=config, run_config=run_config, scoring="roc_auc"
    )
    frame = found.get_dataframe()
    assert len(frame) == 5 and found.num_errors == 0
    assert {"score", "score_std", "gap", "training_iteration", "config/C", "config/p"} <= set(frame.columns)
    assert frame["training_iteration"].max() > 1
    # A trial that was not stopped has the score of a cross-validation with its setting.
    finished = [result for result in found if result.metrics["gap"] <= 1e-6]
    assert finished
    for result in finished[:2]:
        expected = cross_val_score(
            model(engine="local", **result.config), X, Y, cv=SPLITS, scoring="roc_auc"
        ).mean()
        assert result.metrics["score"] == pytest.approx(expected, abs=0.01)
    # Whatever a trial came to, it leaves a model.
    for result in found:
        kept = model_in(result.checkpoint)
        assert result.config["C"] == kept.C and kept.p == result.config["p"]
    best = found.get_best_result()
    direct = model(engine="local", **best.config).fit(X, Y)
    assert np.abs(model_in(best.checkpoint).decision_function(X) - direct.decision_function(X)).max() < 0.05
    assert all_cpus_are_free(ray_cluster)


def test_a_tuner_of_the_users_own(ray_cluster, run_config, monkeypatch):
    """`trainable` with shards of Ray: they have their place before the trials come, and leave it some time
    after the last one.

    One of the trials cannot work, which is its own affair. The others are paused once.
    """
    from ray import tune
    from ray.tune.schedulers import FIFOScheduler, TrialScheduler

    class PausesOnce(FIFOScheduler):
        paused: set = set()

        def on_trial_result(self, tune_controller, trial, result):
            if trial.trial_id in self.paused:
                return TrialScheduler.CONTINUE
            self.paused.add(trial.trial_id)
            return TrialScheduler.PAUSE

    monkeypatch.setattr(tuning, "IDLE_S", 1.0)
    kind = search.trainable(
        model(engine="ray", ray_params=RayParams(num_shards=1)), X, Y, SPLITS, scoring="macro_auc"
    )
    assert wait_for(lambda: ray_cluster.available_resources().get("CPU") == 1.0, 30)
    config = tune.TuneConfig(scheduler=PausesOnce())
    tuner = tune.Tuner(
        kind, param_space={"C": tune.grid_search([0.1, -1.0, 1.0])}, run_config=run_config, tune_config=config
    )
    found = tuner.fit()
    assert found.num_errors == 1 and "C must be" in str(found.errors[0])
    assert len(PausesOnce.paused) == 2
    scores = {result.config["C"]: result.metrics["score"] for result in found if result.error is None}
    assert set(scores) == {0.1, 1.0}
    for result in found:
        if result.error is None:
            direct = model(engine="local", **result.config)
            assert result.metrics["score"] == pytest.approx(
                cross_val_score(direct, X, Y, cv=SPLITS, scoring="roc_auc").mean(), abs=0.01
            )
            kept = model_in(result.checkpoint)
            assert (
                kept.engine == "ray"
                and np.abs(kept.decision_function(X) - direct.fit(X, Y).decision_function(X)).max() < 0.05
            )
    assert all_cpus_are_free(ray_cluster)  # and nobody has closed anything
    kind.raymkl_close()
    assert wait_for(lambda: is_gone(ray_cluster, kind.raymkl_service), 60)  # Ray is told, and takes its time


def is_gone(ray, service):
    try:
        ray.get(service.active_heads.remote(), timeout=600)
    except ray.exceptions.RayActorError:
        return True
    return False


def test_a_search_that_was_cut_off_is_restored(ray_cluster, tmp_path):
    from ray import tune

    def kind_of():
        return search.trainable(model(tol=1e-9), X, Y, SPLITS)

    class Cut(tune.Callback):
        """Ends the service behind the trial's back."""

        def on_trial_save(self, iteration, trials, trial, **info):
            if trial.last_result["training_iteration"] == 2:
                kind.raymkl_close()

    kind = kind_of()
    config = tune.RunConfig(
        name="cut",
        storage_path=str(tmp_path),
        verbose=0,
        callbacks=[Cut()],
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
    )
    cut = tune.Tuner(kind, param_space={"C": tune.grid_search([30.0])}, run_config=config).fit()
    assert cut.num_errors == 1
    kind = kind_of()
    try:
        found = tune.Tuner.restore(str(tmp_path / "cut"), trainable=kind, resume_errored=True).fit()
    finally:
        kind.raymkl_close()
    assert found.num_errors == 0
    last = found[0].metrics
    assert last["done"] and last["gap"] <= 1e-9 and last["training_iteration"] > 2
    assert model_in(found[0].checkpoint).duality_gap_ <= 1e-9


def test_estimators_without_heads_go_fold_by_fold(ray_cluster, run_config):
    from ray import tune

    pipe = make_pipeline(StandardScaler(), model(engine="local"))
    space = {"mklclassifier__C": tune.grid_search([0.1])}
    found = search.tune(pipe, X, Y, space, cv=SPLITS, run_config=run_config)
    assert found.num_errors == 0
    best = found.get_best_result()
    assert best.metrics["training_iteration"] == 3
    expected = cross_val_score(pipe.set_params(mklclassifier__C=0.1), X, Y, cv=SPLITS).mean()
    assert best.metrics["score"] == pytest.approx(expected)
    with best.checkpoint.as_directory() as folder:  # a pipeline is not ours to write
        kept = joblib.load(f"{folder}/model.joblib")
    assert np.array_equal(kept.predict(X), pipe.fit(X, Y).predict(X))


def test_the_users_choice_about_actors_is_respected(ray_cluster, monkeypatch):
    from ray import tune

    seen = []
    monkeypatch.setattr(
        tune.Tuner, "fit", lambda self: seen.append(self._local_tuner._tune_config.reuse_actors)
    )
    pipe = make_pipeline(StandardScaler(), model())  # which needs no service
    for config in (None, tune.TuneConfig(reuse_actors=False), tune.TuneConfig(reuse_actors=True)):
        search.tune(pipe, X, Y, {"mklclassifier__C": 1.0}, cv=SPLITS, tune_config=config)
    assert seen == [True, False, True]


@pytest.mark.parametrize(
    "more, message",
    [
        ({"param_space": {"Q": 1}}, "'Q'"),
        ({"scoring": ["accuracy", "roc_auc"]}, "a trial has one score"),
        ({"scoring": "no such score"}, "no such score"),
        ({"cv": 70}, "n_splits=70"),
        ({"y": Y[:-1]}, "inconsistent|different lengths"),
        ({"X": np.where(X > 2, np.nan, X)}, "NaN"),
        ({"estimator": model(p=0.5)}, "p must be"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
    ],
    ids=["parameter", "scores", "score", "cv", "y", "X", "estimator", "weights"],
)
def test_bad_input_starts_nothing(more, message, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "remote", lambda *arguments, **options: pytest.fail("an actor was made"))
    arguments = {"estimator": model(), "X": X, "y": Y, "param_space": {"C": 1.0}, "cv": 3, **more}
    with pytest.raises(ValueError, match=message):
        search.tune(**arguments)


def test_shards_must_leave_room_for_trials(ray_cluster):
    with pytest.raises(ValueError, match="2 shards of 1 CPU leave nothing of the 2 CPUs"):
        search.trainable(model(engine="ray", ray_params=RayParams(num_shards=2)), X, Y, SPLITS)
    assert all_cpus_are_free(ray_cluster)
