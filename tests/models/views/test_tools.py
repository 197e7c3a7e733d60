"""Estimators and scikit-learn's tools over a `Views`: the same as over one array, or over a dict, of the same
columns.
"""

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    permutation_test_score,
)
from sklearn.multiclass import OneVsRestClassifier

import raymkl
from raymkl import (
    ClusteredMKLClassifier,
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    Session,
    StochasticMKLClassifier,
    Views,
    diagnostics,
    kernels,
    search,
)

RNG = np.random.default_rng(1)
N = 48
DATA = {"a": RNG.normal(size=(N, 4)), "b": RNG.normal(size=(N, 3)).astype(np.float32)}
GLUED = np.hstack([DATA["a"], DATA["b"]])
Y = (DATA["a"][:, 0] + DATA["b"][:, 0] > 0).astype(int)
V = Views(DATA)


def bank(a, b):
    return [kernels.RBF(0.2, view=a), kernels.Linear(view=b)]


NAMED, COLUMNS = bank("a", "b"), bank(slice(0, 4), slice(4, 7))


def local(named=True, cls=MKLClassifier, **more):
    return cls(kernels=NAMED if named else COLUMNS, engine="local", tol=1e-4, **more)


TOOLS = {
    "cross_val_score": lambda model, X: cross_val_score(model, X, Y, cv=3),
    "cross_val_predict": lambda model, X: cross_val_predict(model, X, Y, cv=3, method="decision_function"),
    "GridSearchCV": lambda model, X: (
        GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, Y).cv_results_["mean_test_score"]
    ),
    "RandomizedSearchCV": lambda model, X: (
        RandomizedSearchCV(model, {"C": [0.1, 1.0]}, n_iter=2, cv=2, random_state=0).fit(X, Y).best_score_
    ),
    "MKLSearchCV": lambda model, X: (
        search.MKLSearchCV(model, {"C": [0.1, 1.0]}, cv=3).fit(X, Y).cv_results_["mean_test_score"]
    ),
    "blocks of their own": lambda model, X: (
        search.MKLSearchCV(model, {"kernels": [model.kernels]}, cv=3).fit(X, Y).decision_function(X)
    ),
    "calibration": lambda model, X: CalibratedClassifierCV(model, cv=3).fit(X, Y).predict_proba(X),
    "frozen": lambda model, X: (
        CalibratedClassifierCV(FrozenEstimator(model.fit(X, Y))).fit(X, Y).predict_proba(X)
    ),
    "permutations": lambda model, X: permutation_test_score(
        model, X, Y, cv=2, n_permutations=2, random_state=0
    )[1],
    "learning_curve": lambda model, X: learning_curve(model, X, Y, cv=2, train_sizes=[0.5, 1.0])[2],
    "threshold": lambda model, X: TunedThresholdClassifierCV(model, cv=2).fit(X, Y).best_threshold_,
    "one against the rest": lambda model, X: OneVsRestClassifier(model).fit(X, Y).predict(X),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_give_what_they_give_for_the_same_columns(tool):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.allclose(TOOLS[tool](local(), V), TOOLS[tool](local(named=False), GLUED), atol=1e-4)


@pytest.mark.slow
def test_folds_in_processes():
    assert np.allclose(cross_val_score(local(), V, Y, cv=3, n_jobs=2), cross_val_score(local(), V, Y, cv=3))


MODELS = {
    "classifier": (MKLClassifier, {}),
    "regressor": (MKLRegressor, {}),
    "one class": (MKLOneClass, {}),
    "convex": (ConvexLocalizedMKLClassifier, {"n_clusters": 2, "random_state": 0}),
    "gated": (LocalizedMKLClassifier, {"gating_view": "a", "random_state": 0, "max_iter": 3}),
    "stochastic": (StochasticMKLClassifier, {"random_state": 0}),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_models_are_those_of_a_dict_to_the_bit(kind):
    cls, more = MODELS[kind]
    train, test = np.arange(0, N, 2), np.arange(1, N, 2)
    answers = []
    for pick in (lambda rows: V[rows], lambda rows: {name: view[rows] for name, view in DATA.items()}):
        model = cls(kernels=NAMED, engine="local", **more).fit(pick(train), Y[train])
        values = (
            model.contributions(pick(test))
            if hasattr(model, "contributions")
            else model.decision_function(pick(test))
        )
        answers.append((values, model.predict(pick(test)), model.n_features_in_))
    assert np.array_equal(answers[0][0], answers[1][0]) and np.array_equal(answers[0][1], answers[1][1])
    assert answers[0][2] == answers[1][2] == 7


def test_targets_may_be_transformed():
    model = TransformedTargetRegressor(
        MKLRegressor(NAMED, engine="local"), func=np.cbrt, inverse_func=lambda t: t**3
    )
    assert model.fit(V, GLUED[:, 0]).score(V, GLUED[:, 0]) > 0.3


def test_one_view_needs_no_name():
    one = Views({"a": DATA["a"]})
    for make in (
        lambda: MKLClassifier(engine="local"),
        lambda: MKLClassifier(kernels.rbf([0.1, 1.0]), engine="local"),
    ):
        assert np.array_equal(
            make().fit(one, Y).decision_function(one), make().fit(DATA["a"], Y).decision_function(DATA["a"])
        )
    assert ClusteredMKLClassifier(engine="local", random_state=0).fit(one, Y).predict(one).shape == (N,)


def test_what_looks_at_rows_takes_it_too():
    model = local().fit(V, Y)
    assert np.allclose(
        kernels.RBF(0.2, view=("a", [0, 1]))(V), kernels.RBF(0.2)(DATA["a"][:, :2]), atol=1e-14
    )
    assert np.array_equal(diagnostics.alignment(NAMED, V), diagnostics.alignment(NAMED, DATA))
    assert raymkl.report(model, V, Y).count("<html") == 1
    with Session(engine="local") as session:
        rows = session.put(V)
        standing = MKLClassifier(NAMED, engine=session, tol=1e-4).fit(rows, Y)
        assert np.allclose(standing.decision_function(rows), model.decision_function(V))


HOLED = Views(DATA, present={"b": np.arange(N) > 4})


@pytest.mark.parametrize(
    "act, kind, word",
    [
        (lambda: local().fit(HOLED, Y), ValueError, "'b' in 5 are absent"),
        (lambda: local().fit(V, Y).predict(HOLED), ValueError, "'b' in 5"),
        (lambda: kernels.Linear(view="b")(HOLED), ValueError, "lack view 'b'"),
        (lambda: LocalizedMKLClassifier([NAMED[0]], gating_view="b").fit(HOLED, Y), ValueError, "'b' in 5"),
        (lambda: ConvexLocalizedMKLClassifier(NAMED).fit(HOLED, Y), ValueError, "'b' in 5"),
        (lambda: ClusteredMKLClassifier().fit(V, Y), ValueError, "one view"),
        (
            lambda: ClusteredMKLClassifier().fit(Views({"b": DATA["b"]}, present={"b": Y == 1}), Y),
            ValueError,
            "'b' in",
        ),
        (lambda: MKLClassifier(engine="local").fit(V, Y), ValueError, "must say which one"),
        (lambda: local().fit(Views({"a": DATA["a"]}), Y), ValueError, "'b' is not in X"),
        (lambda: MKLClassifier("precomputed").fit(V, Y), TypeError, "Precomputed"),
        (lambda: local().fit(V[[]], Y[:0]), ValueError, "0 rows"),
        (lambda: local().fit(V, Y[:5]), ValueError, "different lengths"),
    ],
)
def test_what_is_refused(act, kind, word):
    with pytest.raises(kind, match=word):
        act()


def test_a_view_that_nobody_reads_may_be_absent():
    model = MKLClassifier([NAMED[0]], engine="local")
    assert np.array_equal(model.fit(HOLED, Y).decision_function(HOLED), model.fit(V, Y).decision_function(V))
