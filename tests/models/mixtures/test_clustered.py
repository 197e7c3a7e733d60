"""ClusteredMKLClassifier: its bound, machines, probabilities, weights, sampling, containers and files."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

import raymkl
from raymkl import ClusteredMKLClassifier, RayParams, Session
from raymkl.kernels.features.random_features import features, frequencies, hinge
from tests.optim.mixture import reference as slow

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
CENTERS = np.array([[0.0, 0.0], [7.0, 0.0], [3.0, 6.0]])
WAYS = np.array([[1.0, 0.0], [0.0, 1.0], [-0.7, -0.7]])


def problem(n, seed=0, classes=2):
    """Three groups with a rule each."""
    random = np.random.default_rng(seed)
    z, noise = random.integers(3, size=n), random.normal(size=(n, 2))
    side = np.einsum("ni,ni->n", noise, WAYS[z])
    y = (side > 0).astype(int) if classes == 2 else np.digitize(side, [-0.5, 0.5])
    return CENTERS[z] + noise, y, z


X, Y, Z = problem(240)
X3, Y3, _ = problem(240, seed=1, classes=3)
T, U, _ = problem(400, seed=9)


def model(**more):
    return ClusteredMKLClassifier(
        **{
            "n_clusters": 6,
            "C": 5.0,
            "n_features": 32,
            "max_iter": 5,
            "final_epochs": 5,
            "engine": "local",
            "random_state": 0,
            **more,
        }
    )


MODEL = model().fit(X, Y)


@pytest.mark.parametrize(
    "more, rows, labels",
    [
        ({}, X, Y),
        ({"label_weight": 2.0, "C": 0.5, "learn_scales": False}, X3, Y3),
        ({"label_weight": 0.0}, X3, Y3),
        ({"inference": "gibbs", "max_iter": 3}, X, Y),
    ],
)
def test_bound_and_probabilities_are_those_of_the_public_arrays(more, rows, labels):
    found = model(final_epochs=0, n_features=8, **more).fit(rows[:70], labels[:70])
    assert slow.bound(found, rows[:70], labels[:70]) == pytest.approx(found.lower_bound_, abs=1e-4)
    exact = np.array([slow.probabilities(found, x) for x in T[:20]])
    np.testing.assert_allclose(found.predict_proba(T[:20]), exact, atol=1e-7)
    own = [
        slow.row_logs(found, x, y, found.label_weight).argmax()
        for x, y in zip(rows[:70], labels[:70], strict=True)
    ]
    np.testing.assert_array_equal(found.labels_, own)


def test_a_rule_for_every_cluster():
    assert MODEL.score(T, U) > 0.94
    assert LinearSVC().fit(X, Y).score(T, U) < 0.7
    assert 3 <= MODEL.n_clusters_ <= 6
    K = len(MODEL.means_)
    assert (
        MODEL.scales_.shape == (K, 2) and MODEL.noise_.shape == (K, 32, 2) and MODEL.coef_.shape == (K, 2, 64)
    )


def test_answers_fit_each_other():
    proba = MODEL.predict_proba(T)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_allclose(MODEL.decision_function(T), np.log(proba[:, 1] / proba[:, 0]), atol=1e-9)
    np.testing.assert_array_equal(MODEL.predict(T), proba.argmax(axis=1))
    np.testing.assert_array_equal(MODEL.cluster(T), MODEL.membership(T).argmax(axis=1))
    np.testing.assert_allclose(
        np.vstack([MODEL.predict_proba(row[None]) for row in T[:30]]), proba[:30], atol=1e-12
    )
    three = model(max_iter=2).fit(X3, Y3)
    np.testing.assert_allclose(three.decision_function(T), np.log(three.predict_proba(T)), atol=1e-9)


def test_rows_far_away_get_an_answer():
    found = MODEL.predict_proba([[1e7, -1e7], [0.0, 1e3]])
    assert np.isfinite(found).all() and np.allclose(found.sum(axis=1), 1)


def test_the_final_phase_changes_machines_alone():
    without = model(final_epochs=0).fit(X, Y)
    for name in ("means_", "scatter_", "weight_concentration_", "labels_", "lower_bound_", "noise_"):
        np.testing.assert_array_equal(getattr(MODEL, name), getattr(without, name))
    assert MODEL.history_[-1]["phase"] == "final" and without.history_[-1]["phase"] == "machines"
    assert not np.array_equal(MODEL.coef_, without.coef_)


@pytest.mark.parametrize("learn_scales", [False, True])
def test_machines_come_near_the_optimum_on_their_features(learn_scales):
    found = model(n_clusters=1, C=2.0, learn_scales=learn_scales, final_epochs=150, max_iter=2).fit(X3, Y3)
    phi = features(X3, frequencies(found.noise_[0], found.scales_[0]))
    best = LinearSVC(
        C=2.0, multi_class="crammer_singer", fit_intercept=False, tol=1e-6, max_iter=100_000
    ).fit(phi, Y3)
    ours, least = (
        0.5 * np.sum(coef**2) + 2.0 * hinge(phi @ coef.T, Y3)[0].sum()
        for coef in (found.coef_[0], best.coef_)
    )
    assert least * (1 - 1e-3) < ours < 1.04 * least


def test_scales_start_by_the_spread_of_columns_and_learn_which_are_useless():
    fixed = model(learn_scales=False, scale=3.0, n_clusters=1).fit(X, Y)
    np.testing.assert_allclose(fixed.scales_[0], 3.0 / X.std(axis=0), rtol=1e-6)
    random = np.random.default_rng(0)
    rows = random.normal(size=(500, 6))
    labels = (np.sin(2 * rows[:, 0]) > 0.3 * rows[:, 1]).astype(int)
    found = model(n_clusters=1, C=10.0, n_features=64).fit(rows, labels)
    assert found.scales_[0, 2:].max() < 0.8 * found.scales_[0, :1].min()


def test_columns_in_other_units_far_from_zero():
    change = lambda rows: rows * [1e4, 1e-3] + [1e6, 5.0]
    found = model().fit(change(X), Y)
    assert found.score(change(T), U) == pytest.approx(MODEL.score(T, U), abs=0.01)
    bounds = [row["bound"] for row in found.history_[:-1]]
    assert np.min(np.diff(bounds)) > -1e-6 * len(X)


def test_weights_of_rows():
    weight = np.r_[np.zeros(40), np.full(50, 2.0), np.full(150, 0.5)]
    found, cut = (
        model(final_epochs=0).fit(X, Y, weight),
        model(final_epochs=0).fit(X[40:], Y[40:], weight[40:]),
    )
    np.testing.assert_allclose(found.coef_, cut.coef_, atol=1e-6)
    np.testing.assert_array_equal(found.labels_[40:], cut.labels_)
    assert len(found.labels_) == 240
    short = model(final_epochs=0, n_features=6, max_iter=2).fit(X, Y, weight)
    assert slow.bound(short, X, Y, weight) == pytest.approx(short.lower_bound_, abs=1e-4)


def test_gibbs_sampling_with_machines():
    found = model(inference="gibbs", max_iter=8).fit(X, Y, sample_weight=np.r_[0.0, np.full(239, 3.0)])
    assert found.samples_.shape == (8, 239) and len(found.labels_) == 240
    assert found.score(T, U) > 0.9


def test_containers_files_and_searches(tmp_path):
    names = np.array(["no", "yes"])[Y]
    table = pd.DataFrame(X, columns=["u", "v"])
    table.assign(label=names).to_parquet(tmp_path / "rows.parquet", row_group_size=60)
    path = str(tmp_path / "rows.parquet")
    for worded in (model().fit(table, names), model().fit(path, "label")):
        assert worded.classes_.tolist() == ["no", "yes"] and worded.feature_names_in_.tolist() == ["u", "v"]
        np.testing.assert_allclose(worded.coef_, MODEL.coef_, atol=1e-9)
        assert worded.score(path, "label") == MODEL.score(X, Y)
        worded.save(tmp_path / "m.raymkl")
        for other in (raymkl.load(tmp_path / "m.raymkl"), pickle.loads(pickle.dumps(worded))):
            np.testing.assert_array_equal(other.predict_proba(table), worded.predict_proba(table))
            assert other.get_params().keys() == worded.get_params().keys()
    with Session("local") as session:
        np.testing.assert_array_equal(model(engine=session).fit(session.put(X), Y).coef_, MODEL.coef_)
    assert cross_val_score(model(max_iter=2), X, Y, cv=3).mean() > 0.9


def test_odd_rows():
    rare = np.where(np.arange(240) == 5, 7, Y)
    assert model(max_iter=2).fit(X, rare).predict_proba(T).shape == (400, 3)
    few = model(n_clusters=30, max_iter=2).fit(X[:12], Y[:12])
    assert few.n_clusters_ <= 12
    flat = np.c_[X, np.full(len(X), 3.0), X[:, 0]]
    assert model(max_iter=3).fit(flat, Y).score(flat, Y) > 0.9


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: model().fit(X, None), "y"),
        (lambda: model().fit(X, Y, sample_weight=(Y == 0).astype(float)), "class 1"),
        (lambda: model(learning_rate=np.inf).fit(X, Y), "learning_rate"),
        (lambda: model(batch_size=1.5).fit(X, Y), "batch_size"),
        (lambda: MODEL.predict(X[:, :1]), "features"),
        (lambda: model().fit(["ACGT", "TTGA"], [0, 1]), "strings"),
    ],
)
def test_bad_input_is_named(call, word):
    with pytest.raises((ValueError, TypeError), match=word):
        call()


def test_nothing_is_drawn_before_parameters_are_checked():
    with pytest.raises(ValueError, match="epochs"):
        model(epochs=0).fit(None, None)


MEMORY = """
import numpy as np
from raymkl import ClusteredMKLClassifier
random = np.random.default_rng(0)
X = random.normal(size=({n}, 8))
y = (X[:, 0] > 0).astype(int)
model = ClusteredMKLClassifier(n_clusters=4, n_features=256, epochs=1, final_epochs=1, max_iter=2, tol=1.0, engine="local", random_state=0)
model.fit(X, y)
print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_features_are_never_kept():
    """512 features of a row would take 4,096 bytes."""
    peaks = []
    for n in (10_000, 60_000):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", MEMORY.format(n=n)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        peaks.append(1024 * int(run.stdout))
    assert (peaks[1] - peaks[0]) / 50_000 < 1_000


@pytest.mark.ray
def test_a_cluster_gives_the_same_model(ray_cluster, tmp_path):
    pd.DataFrame(np.c_[X, Y], columns=["u", "v", "label"]).to_parquet(
        tmp_path / "rows.parquet", row_group_size=50
    )
    there = {"engine": "ray", "ray_params": RayParams(num_shards=2, cpus_per_shard=0.5)}
    for data in ((X, Y), (ray_cluster.data.read_parquet(str(tmp_path / "rows.parquet")), "label")):
        found = model(**there).fit(*data)
        np.testing.assert_allclose(found.predict_proba(T), MODEL.predict_proba(T), atol=1e-3)
        assert found.lower_bound_ == pytest.approx(MODEL.lower_bound_, abs=0.01 * len(X))
        assert found.engine_used_ == "ray"
