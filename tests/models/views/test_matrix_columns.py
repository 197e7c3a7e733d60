"""Models over rows of ready-made matrices that know their columns, against matrices cut by hand."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import raymkl
from raymkl import (
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    RayParams,
    StochasticMKLClassifier,
    Views,
    kernels,
    search,
)

RNG = np.random.default_rng(2)
N = 40
X = RNG.normal(size=(N, 3))
Y = np.where(X[:, 0] + 0.3 * RNG.normal(size=N) > 0, 1, -1)
GRAM = X @ X.T
CUBE = np.stack([kernels.RBF(0.2)(X), (GRAM + 1) ** 2], axis=2)
BANK = [
    kernels.RBF(0.5, view="x"),
    kernels.Precomputed(view="gram"),
    kernels.Precomputed(index=1, view="cube"),
    kernels.Precomputed(index=0, view="cube"),
]
V = Views({"x": X, "gram": GRAM, "cube": CUBE}, matrices=["gram", "cube"])
TRAIN, TEST = np.arange(0, N, 2)[::-1].copy(), np.arange(1, N, 2)


def by_hand(rows, columns):
    return {"x": X[rows], "gram": GRAM[np.ix_(rows, columns)], "cube": CUBE[np.ix_(rows, columns)]}


def local(cls=MKLClassifier, **more):
    return cls(kernels=BANK, engine="local", **{"normalize": "multiplicative", "tol": 1e-5, **more})


MODELS = {
    "classifier": (MKLClassifier, {}),
    "shards": (MKLClassifier, {"ray_params": RayParams(num_shards=3)}),
    "regressor": (MKLRegressor, {}),
    "one class": (MKLOneClass, {}),
    "convex": (ConvexLocalizedMKLClassifier, {"n_clusters": 2, "random_state": 0}),
    "gates by another matrix": (
        LocalizedMKLClassifier,
        {
            "gating": "kernel",
            "gating_kernel": kernels.Precomputed(view="other"),
            "random_state": 0,
            "max_iter": 2,
            "tol": 1e-2,
        },
    ),
    "stochastic": (StochasticMKLClassifier, {"random_state": 0}),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_fit_takes_its_own_columns_and_predict_those_of_training(kind):
    cls, more = MODELS[kind]
    views = Views({"x": X, "gram": GRAM, "cube": CUBE, "other": GRAM}, matrices=["gram", "cube", "other"])
    model = local(cls, **more).fit(views[TRAIN], Y[TRAIN])
    hand = local(cls, **more).fit({**by_hand(TRAIN, TRAIN), "other": GRAM[np.ix_(TRAIN, TRAIN)]}, Y[TRAIN])
    new = {**by_hand(TEST, TRAIN), "other": GRAM[np.ix_(TEST, TRAIN)]}
    ask = "decision_function" if hasattr(model, "decision_function") else "predict"
    expected = getattr(hand, ask)(new)
    assert np.allclose(getattr(model, ask)(views[TEST]), expected, atol=1e-12)
    assert np.allclose(
        getattr(model, ask)(new), expected, atol=1e-12
    )  # columns in the order of training rows, as ever
    back = pickle.loads(pickle.dumps(model))
    assert np.allclose(getattr(back, ask)(pickle.loads(pickle.dumps(views[TEST]))), expected, atol=1e-12)


@settings(max_examples=15)
@given(
    train=st.lists(st.integers(0, N - 1), min_size=12, max_size=30),
    test=st.lists(st.integers(0, N - 1), min_size=1, max_size=9),
)
def test_rows_may_be_drawn_twice_and_in_any_order(train, test):
    train = np.array([*train, int(np.argmax(Y)), int(np.argmin(Y))])
    ours = local(tol=1e-3).fit(V[train], Y[train]).decision_function(V[test])
    hand = (
        local(tol=1e-3).fit(by_hand(train, train), Y[train]).decision_function(by_hand(np.array(test), train))
    )
    assert np.allclose(ours, hand, atol=1e-10)


def test_cross_validation_over_rows():
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, Y))
    expected = np.empty(N)
    for train, test in folds:
        expected[test] = local().fit(by_hand(train, train), Y[train]).decision_function(by_hand(test, train))
    assert np.allclose(
        cross_val_predict(local(), V, Y, cv=folds, method="decision_function"), expected, atol=1e-10
    )
    heads = search.MKLSearchCV(local(), {"C": [0.1, 1.0]}, cv=folds).fit(V, Y)
    for fold, (_, test) in enumerate(folds):
        assert (
            abs(
                heads.cv_results_[f"split{fold}_test_score"][1]
                - np.mean(np.where(expected[test] > 0, 1, -1) == Y[test])
            )
            < 1e-9
        )
    assert heads.best_estimator_.predict(V[TEST]).shape == (len(TEST),)


@pytest.mark.parametrize("kind", ["map", "store", "path"])
def test_matrices_out_of_memory(tmp_path, kind):
    """Parts of a kernel store are read where it lies, by several shards too."""
    np.save(tmp_path / "map.npy", CUBE)
    store = kernels.write_store(tmp_path / "store", CUBE, dtype="float64")
    source = {
        "map": np.load(tmp_path / "map.npy", mmap_mode="r"),
        "store": store,
        "path": tmp_path / "store",
    }[kind]
    views = Views({"x": X, "gram": GRAM, "cube": source}, matrices=["gram", "cube"])
    expected = local().fit(by_hand(TRAIN, TRAIN), Y[TRAIN]).decision_function(by_hand(TEST, TRAIN))
    for more in ({}, {"ray_params": RayParams(num_shards=3)}, {"normalize": "trace"}):
        model = local(**more).fit(views[TRAIN], Y[TRAIN])
        if "normalize" in more:
            expected = (
                local(**more).fit(by_hand(TRAIN, TRAIN), Y[TRAIN]).decision_function(by_hand(TEST, TRAIN))
            )
        assert np.allclose(model.decision_function(views[TEST]), expected, atol=1e-4)
    assert np.allclose(
        local().fit(views, Y).decision_function(views), local().fit(V, Y).decision_function(V), atol=1e-4
    )
    twice = np.concatenate([TRAIN, TRAIN[:4]])
    hand = local().fit(by_hand(twice, twice), Y[twice]).decision_function(by_hand(TEST, twice))
    assert np.allclose(local().fit(views[twice], Y[twice]).decision_function(views[TEST]), hand, atol=1e-3)


def test_new_examples_bring_columns_in_order(tmp_path):
    """Of all training rows or of support vectors: as a dict, in a container of their own, and for a model out
    of a file.
    """
    model = local().fit(V[TRAIN], Y[TRAIN])
    expected = model.decision_function(V[TEST])
    model.save(tmp_path / "model")
    support = TRAIN[model.support_]
    for who in (model, raymkl.load(tmp_path / "model")):
        for columns in (TRAIN, support):
            new = by_hand(TEST, columns)
            assert np.allclose(who.decision_function(new), expected, atol=1e-12)
            assert np.allclose(
                who.decision_function(Views(new, matrices=["gram", "cube"])), expected, atol=1e-12
            )
    with pytest.raises(ValueError, match=r"shape \(20, 40, 1\)"):
        raymkl.load(tmp_path / "model").decision_function(V[TEST])


def test_another_fit_forgets_the_matrix():
    model = local().fit(V[TRAIN], Y[TRAIN])
    model.fit(by_hand(TRAIN, TRAIN), Y[TRAIN])
    with pytest.raises(ValueError, match="shape"):
        model.decision_function(V[TEST])
    assert not clone(model).get_params(deep=False).get("_training_columns")


def test_what_is_refused():
    with pytest.raises(ValueError, match="columns are not its rows"):
        local().fit(Views({**by_hand(TRAIN, np.arange(N))}, matrices=["gram", "cube"]), Y[TRAIN])
    with pytest.raises(ValueError, match="shape"):  # rows of a matrix that was not named in matrices
        local().fit(Views({"x": X, "gram": GRAM, "cube": CUBE})[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match="asks for matrix 2"):
        MKLClassifier([kernels.Precomputed(index=2, view="cube")], engine="local").fit(V[TRAIN], Y[TRAIN])


@pytest.mark.ray
def test_shards_on_ray(ray_session, tmp_path):
    store = kernels.write_store(tmp_path / "store", CUBE, dtype="float64")
    views = Views({"x": X, "gram": GRAM, "cube": store}, matrices=["gram", "cube"])
    model = MKLClassifier(BANK, engine=ray_session, normalize="multiplicative", tol=1e-5)
    expected = local().fit(V[TRAIN], Y[TRAIN]).decision_function(V[TEST])
    assert np.allclose(model.fit(views[TRAIN], Y[TRAIN]).decision_function(views[TEST]), expected, atol=1e-4)
