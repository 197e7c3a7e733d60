"""A run that goes on from a checkpoint ends where it would have ended."""

import numpy as np
import pytest

from raymkl import kernels
from tests.engine.faults.interrupted_runs import (
    BANK,
    CLASSES,
    X_TEST,
    Interrupted,
    X,
    Y,
    files,
    interrupt,
    model,
    params,
    stopped,
)
from tests.reference import apart

pytestmark = pytest.mark.usefixtures("small_working_sets")


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


@pytest.mark.slow
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


@pytest.mark.parametrize("later", [-1, 2, 4], ids=["before the folds", "their first round", "later"])
def test_folds_beside_a_fit_go_on_where_they_were(tmp_path, monkeypatch, later):
    more = {"probability": "sigmoid", "cv": 3}
    whole = model(**more).fit(X, Y)
    stopped(monkeypatch, tmp_path, whole.history_[-1]["round"] + later, **more)
    resumed = model(tmp_path, **more).fit(X, Y)
    assert resumed.resumed_from_ is not None and files(tmp_path) == []
    np.testing.assert_allclose(resumed.held_out_decision_, whole.held_out_decision_, atol=1e-3)
    np.testing.assert_allclose(resumed.predict_proba(X_TEST), whole.predict_proba(X_TEST), atol=1e-3)


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
