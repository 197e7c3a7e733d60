"""Callbacks: scikit-learn's protocol over the rounds of all estimators, errors in them, and fits that they
end.
"""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import raymkl
from raymkl import baselines, kernels
from tests.reference import noisy_problem

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")

BANK = kernels.rbf([0.05, 0.5])
X, Y = noisy_problem(120)
LINEAR = {"kernels": BANK, "tol": 1e-10, "C": 30.0}
STOCHASTIC = {"kernels": BANK, "tol": 1e-10, "max_iter": 6, "random_state": 0}
MODELS = {
    "classifier": raymkl.MKLClassifier(**LINEAR),
    "classes": raymkl.MKLClassifier(**LINEAR, shared_weights=True),
    "joint": raymkl.MKLClassifier(**LINEAR, multi_class="joint"),
    "regressor": raymkl.MKLRegressor(**LINEAR),
    "one class": raymkl.MKLOneClass(kernels=BANK, tol=1e-10),
    "stochastic": raymkl.StochasticMKLClassifier(**STOCHASTIC),
    "landmarks": raymkl.StochasticMKLClassifier(**STOCHASTIC, n_landmarks=20),
    "convex": raymkl.ConvexLocalizedMKLClassifier(**LINEAR, n_clusters=2, random_state=0),
    "convex regressor": raymkl.ConvexLocalizedMKLRegressor(**LINEAR, n_clusters=2, random_state=0),
    "gated": raymkl.LocalizedMKLClassifier(kernels=BANK, max_iter=3, n_init=2, random_state=0),
    "clustered": raymkl.ClusteredMKLClassifier(n_clusters=3, max_iter=3, random_state=0),
    "clustered, labels last": raymkl.ClusteredMKLClassifier(
        n_clusters=3, max_iter=3, label_weight=0.0, random_state=0
    ),
    "gibbs": raymkl.DirichletProcessMixture(n_clusters=3, max_iter=4, inference="gibbs", random_state=0),
    "SimpleMKL": baselines.SimpleMKL(kernels=BANK, tol=1e-10, max_iter=5),
    "BEMKL": baselines.BEMKL(kernels=BANK, max_iter=5),
    "mixture": raymkl.DirichletProcessMixture(n_clusters=3, max_iter=4, random_state=0),
}


class Listener:
    """Writes down what it hears. stop : the round to end the fit in. fail : the one to raise in."""

    def __init__(self, stop=None, fail=None):
        self.stop, self.fail = stop, fail
        self.heard, self.rounds = [], []

    def setup(self, estimator, context):
        self.heard.append("setup")

    def teardown(self, estimator, context):
        self.heard.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, metadata=None):
        self.heard.append(f"end {context.task_name}")
        if context.task_name != "round":
            return None
        self.rounds.append(metadata["rows"])
        if len(self.rounds) == self.fail:
            raise LookupError("this callback has failed")
        return len(self.rounds) == self.stop


# Rounds that whole fits take at least.
ROUNDS = {
    "classifier": 6,
    "classes": 6,
    "joint": 6,
    "regressor": 6,
    "stochastic": 6,
    "landmarks": 6,
    "gated": 20,
}


def labels_of(name):
    return np.arange(len(X)) % 3 if name in ("classes", "joint") else Y


def made(name, engine="local", **params):
    """Baselines have no engine."""
    model = clone(MODELS[name])
    return model.set_params(**({"engine": engine} if hasattr(model, "engine") else {}), **params)


def fitted(name, listener, engine="local", **params):
    model = made(name, engine, **params).set_callbacks(listener)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, labels_of(name))


@pytest.mark.usefixtures("small_working_sets")
@pytest.mark.parametrize("name", MODELS)
def test_every_round_is_heard_of_once(name):
    listener = Listener()
    model = fitted(name, listener)
    rounds = ["begin round", "end round"] * len(listener.rounds)
    assert (
        listener.heard == ["setup", "begin fit", *rounds, "end fit", "teardown"] and len(listener.rounds) > 1
    )
    if (
        hasattr(model, "history_") and name != "gated"
    ):  # whose history has a row per step, and several rounds in each
        assert [row for rows in listener.rounds for row in rows] == model.history_
    # Nothing is left of it in the model.
    assert not {"_callback_fit_ctx", "_parent_callback_ctx"} & set(vars(model))


def test_listening_changes_nothing():
    model, silent = (
        fitted("classifier", Listener()),
        clone(MODELS["classifier"]).set_params(engine="local").set_callbacks(),
    )
    assert np.array_equal(model.decision_function(X), silent.fit(X, Y).decision_function(X))


@pytest.mark.usefixtures("small_working_sets")
@pytest.mark.parametrize("name", MODELS)
def test_a_callback_may_end_the_fit(name):
    listener = Listener(stop=2)
    model = made(name).set_callbacks(listener)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # it is as it was wished
        model.fit(X, labels_of(name))
    assert len(listener.rounds) >= 2 and listener.heard[-2:] == ["end fit", "teardown"]
    if name in ROUNDS:  # of the whole fit, and no more than a round or two after the word
        assert len(listener.rounds) <= 4 < ROUNDS[name]
    assert (model.predict if hasattr(model, "predict") else model.membership)(X).shape[0] == len(X)


@pytest.mark.usefixtures("small_working_sets")
def test_the_model_of_an_ended_fit_is_the_best_point_with_its_true_gap():
    for stop in (3, 6):
        listener = Listener(stop=stop)
        model = fitted("classifier", listener)
        assert not model.converged_ and stop <= len(listener.rounds) <= stop + 2
        assert model.duality_gap_ <= min(row["gap"] for rows in listener.rounds[:stop] for row in rows) * (
            1 + 1e-9
        )
        primal, dual = primal_and_dual(model)
        assert model.primal_objective_ == pytest.approx(primal, rel=1e-9)
        assert model.duality_gap_ == pytest.approx((primal - dual) / abs(primal), rel=1e-6)


def primal_and_dual(model):
    """Both objectives of the hinge loss at the block norm p, from the model's public parts and the kernels'
    formulas.
    """
    y, p = np.where(model.classes_[1] == Y, 1.0, -1.0), float(model.p)
    a = np.zeros(len(X))
    a[model.support_] = model.dual_coef_[0]
    s = np.array([a @ kernel(X) @ a for kernel in BANK])
    lengths = model.kernel_weights_ * np.sqrt(s)
    f = (
        sum(weight * (kernel(X) @ a) for weight, kernel in zip(model.kernel_weights_, BANK, strict=True))
        + model.intercept_[0]
    )
    primal = 0.5 * np.sum(lengths**p) ** (2 / p) + model.C * np.maximum(1 - y * f, 0).sum()
    q = p / (2 * p - 2)  # p* / 2
    return primal, float(y @ a) - 0.5 * np.sum(s**q) ** (1 / q)


@pytest.mark.parametrize("name", ["classifier", "stochastic", "gated", "clustered"])
def test_an_error_in_a_callback_ends_the_fit(name):
    listener = Listener(fail=1)
    model = made(name).set_callbacks(listener)
    with pytest.raises(LookupError, match="this callback has failed"):
        model.fit(X, Y)
    assert listener.heard[-2:] == ["end round", "teardown"]
    fitted(name, Listener())  # and another one works


def test_on_ray(ray_cluster):
    """Rounds of a cluster are heard of, each of them; errors and ends leave a session as it was."""
    heard = Listener()
    with raymkl.Session("ray", raymkl.RayParams(num_shards=2)) as session:
        for name in ("classifier", "stochastic"):
            heard = Listener()
            model = fitted(name, heard, session)
            assert [row for rows in heard.rounds for row in rows] == model.history_
        with pytest.raises(LookupError, match="this callback has failed"):
            fitted("stochastic", Listener(fail=1), session)
        ended = Listener(stop=1)
        model = fitted("stochastic", ended, session, max_iter=100_000)
        assert len(ended.rounds) < 100_000 and model.n_iter_ == len(model.history_) == len(ended.rounds)
        ended = Listener(stop=1)
        model = fitted("classifier", ended, session)
        assert model.duality_gap_ < 1 and model.predict(X).shape == Y.shape


def test_the_progress_bar_and_the_monitor_of_scikit_learn(capsys):
    pytest.importorskip("rich")
    monitor = callback.ScoringMonitor(scoring="accuracy")
    for name in ("classifier", "clustered", "gated"):
        model = made(name).set_callbacks(callback.ProgressBar(), monitor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, Y)
        assert f"{type(model).__name__} - fit" in capsys.readouterr().out
        (entry,) = monitor.get_logs().data
        assert entry["accuracy"] == pytest.approx(model.score(X, Y))


def test_a_step_of_a_pipeline_has_callbacks_of_its_own():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    listener = Listener()
    make_pipeline(
        StandardScaler(), clone(MODELS["classifier"]).set_params(engine="local").set_callbacks(listener)
    ).fit(X, Y)
    assert listener.heard[0] == "setup" and listener.heard[-1] == "teardown" and listener.rounds


def test_a_model_with_callbacks_is_saved_without_them(tmp_path):
    model = fitted("classifier", Listener())
    model.save(tmp_path / "m.raymkl")
    loaded = raymkl.load(tmp_path / "m.raymkl")
    assert not hasattr(loaded, "_skl_callbacks")
    assert np.array_equal(loaded.predict(X), pickle.loads(pickle.dumps(model)).predict(X))


def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match="FitCallback"):
        clone(MODELS["classifier"]).set_callbacks("no callback")


def test_without_the_protocol_there_is_no_method():
    """As with scikit-learn before 1.9: nothing is half there, and fits work."""
    code = """
import builtins
real = builtins.__import__
def older(name, globals=None, *more):
    if name == "sklearn.callback" and (globals or {}).get("__name__", "").startswith("raymkl"):
        raise ImportError(name)
    return real(name, globals, *more)
builtins.__import__ = older
import numpy as np, raymkl
from raymkl import kernels
X = np.random.default_rng(0).normal(size=(30, 2))
for kind in (raymkl.MKLClassifier, raymkl.StochasticMKLClassifier, raymkl.ClusteredMKLClassifier, raymkl.DirichletProcessMixture):
    assert not hasattr(kind, "set_callbacks")
model = raymkl.MKLClassifier(kernels=kernels.rbf([1.0]), engine="local").fit(X, X[:, 0] > 0)
assert model.converged_
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
