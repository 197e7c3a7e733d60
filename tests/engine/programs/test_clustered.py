"""The program of mixtures with machines: every step raises the bound, shards may be many and may be lost,
runs can be taken up again.
"""

from functools import cache

import numpy as np
import pytest

from raymkl import ClusteredMKLClassifier, DirichletProcessMixture, RayParams
from raymkl.engine import run as train_module
from raymkl.engine.events import Outcome
from raymkl.engine.faults.policy import FailurePolicy
from raymkl.engine.programs.clustered import on_shards
from raymkl.engine.programs.clustered import program as module
from raymkl.engine.rounds.coordinator import Coordinator
from tests.engine.lossy_pool import Fault, LossyPool, travelled

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RANDOM = np.random.default_rng(2)
CENTERS = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.0]])
GROUP = RANDOM.integers(3, size=180)
NOISE = RANDOM.normal(size=(180, 2))
X = CENTERS[GROUP] + NOISE
Y = (NOISE[np.arange(180), GROUP % 2] > 0) + (GROUP == 2)
T = CENTERS[RANDOM.integers(3, size=50)] + RANDOM.normal(size=(50, 2))
WEIGHT = RANDOM.choice([0.0, 0.5, 1.0, 2.0], size=180)


def classifier(**more):
    return ClusteredMKLClassifier(
        **{
            "n_clusters": 6,
            "C": 3.0,
            "n_features": 24,
            "max_iter": 4,
            "final_epochs": 2,
            "engine": "local",
            "random_state": 0,
            **more,
        }
    )


def mixture(**more):
    return DirichletProcessMixture(**{"n_clusters": 6, "engine": "local", "random_state": 0, **more})


MODELS = {
    "labels": classifier(),
    "labels count double": classifier(label_weight=2.0, learn_scales=False),
    "no labels": classifier(label_weight=0.0),
    "mixture": mixture(),
    "gibbs": classifier(inference="gibbs"),
}


def fitted(model, X=X, y=Y, weight=None):
    return model.fit(X, y, sample_weight=weight)


def values(model):
    """What one model has in common with another one that is the same."""
    arrays = [model.membership(T), np.array([model.lower_bound_]), model.labels_]
    return arrays + ([model.predict_proba(T)] if hasattr(model, "coef_") else [])


# -- the bound -------------------------------------------------------------------------------------


class Watched(module.MixtureProgram):
    """Measures the bound after every single step: posteriors, orders, merges, machines."""

    def _renewed(self, statistics, machines):
        posterior, machines = super()._renewed(statistics, machines)
        if self.place is not None:
            self.measure(posterior, machines)
        return posterior, machines

    def _settle(self, phase):
        super()._settle(phase)
        if phase != "final":
            self.measure(self.place.posterior, self.place.machines)

    def measure(self, posterior, machines):
        beta = self.settings.label_weight
        found = module.sum_of(self.crew.apply(on_shards.expect, posterior, machines, beta))
        value = found.value - module.divergence(posterior, self.frame.prior)
        if beta > 0:
            value -= beta / (2 * self.settings.machines.C) * float(machines.squared_norms.sum())
        SEEN.append(value)


SEEN: list = []


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["alike", "weights"])
@pytest.mark.parametrize(
    "model",
    [
        classifier(),
        classifier(concentration=0.01),
        classifier(concentration=30.0, n_clusters=9),
        classifier(n_clusters=1),
        classifier(label_weight=3.0, C=0.1),
        mixture(n_clusters=12),
        mixture(n_clusters=12, concentration=30.0),
        mixture(n_clusters=1),
    ],
    ids=repr,
)
def test_no_step_lowers_the_bound(model, weight, monkeypatch):
    SEEN.clear()
    monkeypatch.setattr("raymkl.models.mixtures.base.MixtureProgram", Watched)
    fitted(model, weight=weight)
    assert len(SEEN) >= 10
    assert np.min(np.diff(SEEN)) > -1e-9 * abs(SEEN[0])
    history = [row["bound"] for row in model.history_ if row["phase"] != "final"]
    assert np.all(np.diff(history) > -1e-9 * abs(SEEN[0]))


def test_a_machine_that_got_worse_takes_its_old_self_back():
    """At such a rate every descent ends far away."""
    model = fitted(classifier(learning_rate=1e4, max_iter=3))
    assert not model.coef_.any() or model.history_[-1]["bound"] >= model.history_[0]["bound"]
    bounds = [row["bound"] for row in model.history_ if row["phase"] != "final"]
    assert np.all(np.diff(bounds) > -1e-9 * abs(bounds[0]))


def test_clusters_that_can_have_no_share_are_not_asked_for_their_losses(monkeypatch):
    asked = []
    loss_of = on_shards.MixtureRows.loss_of

    def counted(self, k, machines, numbers):
        asked.append(len(numbers))
        return loss_of(self, k, machines, numbers)

    monkeypatch.setattr(on_shards.MixtureRows, "loss_of", counted)
    far = X + 200.0 * CENTERS[GROUP]
    model = fitted(classifier(n_clusters=3, max_iter=3, final_epochs=0), far)
    # Each row has one cluster, and is asked once per machine: after the start, and after every descent.
    assert sum(asked) <= 180 * (model.n_iter_ + 3)


# -- shards ----------------------------------------------------------------------------------------


@cache
def values_over(name, shards):
    model = MODELS[name]
    found = values(fitted(model.set_params(ray_params=RayParams(num_shards=shards)), weight=WEIGHT))
    model.set_params(ray_params=None)
    return found


@pytest.mark.parametrize(
    "name, shards",
    [*((name, shards) for name in MODELS if name != "gibbs" for shards in (2, 5)), ("labels", 180)],
)
def test_any_number_of_shards_gives_the_same_model(name, shards):
    for a, b in zip(values_over(name, 1), values_over(name, shards), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3, rtol=1e-3)


def test_the_same_partition_gives_the_same_bits():
    one, two = (fitted(classifier(ray_params=RayParams(num_shards=3))) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.lower_bound_ == two.lower_bound_


class Runs:
    """Fits over lossy pools. pool, policy : of the last one."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def fit(self, model, faults=()):
        def train_here(rows, problem, program, *_):
            program = travelled(program)
            self.pool, self.policy = LossyPool(rows, travelled(problem), 3, faults), FailurePolicy(1000)
            self.pool.coordinator = coordinator = Coordinator(
                self.pool, problem, policy=self.policy, threads=1
            )
            coordinator.crew.load()
            for _ in coordinator.rounds(program):
                pass
            assert not any(shard.scratch for shard in self.pool.shards), "something was left with a shard"
            return Outcome(coordinator.outcome(program), coordinator.journal.history, self.policy.total)

        self.monkeypatch.setattr(train_module, "_train_here", train_here)
        return values(fitted(model, weight=WEIGHT if model.inference != "gibbs" else None))


@pytest.mark.parametrize("name", MODELS)
def test_lost_shards_change_nothing(name, monkeypatch):
    runs, model = Runs(monkeypatch), MODELS[name]
    if name != "mixture":
        model = model.set_params(max_iter=2)
    undisturbed = runs.fit(model)
    calls = runs.pool.seen["apply"]
    some = np.unique(np.linspace(1, calls, 7).astype(int))
    schedules = [[Fault("apply", int(number), (int(number) % 3,), bool(number % 2))] for number in some]
    schedules.append([Fault("apply", calls // 2, (0, 1, 2), worked=True)])
    schedules.append(
        [Fault("apply", calls // 3 + more, (more % 3,), worked=more % 2 == 0) for more in range(6)]
    )
    for faults in schedules:
        found = runs.fit(model, faults)
        assert len(runs.pool.deaths) == runs.policy.total > 0, faults
        for a, b in zip(found, undisturbed, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-6, err_msg=str(faults))


# -- checkpoints -----------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def interrupt_after(monkeypatch, count):
    """Let the run end in the middle, after so many of its yields."""
    rounds = module.MixtureProgram.rounds

    def some(self, coordinator):
        for number, rows in enumerate(rounds(self, coordinator)):
            yield rows
            if number == count:
                raise Interrupted

    monkeypatch.setattr(module.MixtureProgram, "rounds", some)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_goes_on_from_its_checkpoint(name, tmp_path, monkeypatch):
    model = MODELS[name]
    whole = values(fitted(model))
    epochs = []
    for count in (0, 2, 4, 6, 9, 12, 17, 18, 19, 20, 21):  # also after the last step of the final phase
        params = RayParams(checkpoint_dir=str(tmp_path / str(count)), checkpoint_every_s=1e-9)
        model.set_params(ray_params=params)
        with monkeypatch.context() as patch:
            interrupt_after(patch, count)
            try:
                fitted(model)
            except Interrupted:
                epochs.append(count)
        resumed = values(fitted(model))
        assert not list((tmp_path / str(count)).glob("*.checkpoint"))
        for a, b in zip(resumed, whole, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-6, err_msg=f"after {count}")
    model.set_params(ray_params=None)
    assert len(epochs) >= 2


def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch):
    params = RayParams(checkpoint_dir=str(tmp_path), checkpoint_every_s=1e-9)
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        with pytest.raises(Interrupted):
            fitted(classifier(ray_params=params))
    for other, more in (
        ({"C": 4.0}, {}),
        ({"prior": {"spread": 0.2}}, {}),
        ({}, {"X": X + 1}),
        ({}, {"y": 1 - np.minimum(Y, 1)}),
    ):
        with pytest.raises(ValueError, match="another run"):
            fitted(classifier(ray_params=params, **other), **more)
    (newest, *_) = sorted(tmp_path.glob("*.checkpoint"))
    for path in tmp_path.glob("*.checkpoint"):
        path.write_bytes(newest.read_bytes()[:-200])
    with pytest.warns(UserWarning, match="damaged"):
        found = fitted(classifier(ray_params=params))
    np.testing.assert_array_equal(found.coef_, fitted(classifier()).coef_)
