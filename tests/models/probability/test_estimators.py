"""Probabilities, sets and intervals of estimators, against fits of every fold by itself."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold

from raymkl import ConvexLocalizedMKLClassifier, MKLClassifier, MKLRegressor, RayParams, kernels, load
from raymkl.models.table_model import Preparation, TableModel
from tests.checks import fails
from tests.reference import gram, noisy_problem

X, LABELS = noisy_problem(110, seed=4)
NEW, _ = noisy_problem(40, seed=5)
WINE, KIND = load_wine(return_X_y=True)
WINE, KIND = ((WINE - WINE.mean(0)) / WINE.std(0))[::2], np.array(["a", "b", "c"])[KIND[::2]]
TARGET = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(2).normal(size=len(X)) + 4.0
BANK = [*kernels.rbf([0.03, 0.3]), kernels.Polynomial(degree=2, coef0=1.0), kernels.Linear()]
FOLDS = StratifiedKFold(3, shuffle=True, random_state=1)
WEIGHTS = np.where(np.arange(len(X)) % 9 == 0, 0.0, np.random.default_rng(3).uniform(0.2, 3.0, len(X)))


def classifier(**more):
    return MKLClassifier(**{"kernels": BANK, "engine": "local", "tol": 1e-6, "cv": FOLDS, **more})


def regressor(**more):
    return MKLRegressor(
        **{
            "kernels": BANK,
            "engine": "local",
            "tol": 1e-6,
            "C": 3.0,
            "conformal": True,
            "cv": KFold(4),
            **more,
        }
    )


def refitted(model, rows, y, splits, weights=None):
    """(test rows, model of a fold by itself) for every fold."""
    plain = clone(model).set_params(
        **{
            name: value
            for name, value in (("probability", None), ("conformal", False))
            if hasattr(model, name)
        }
    )
    for train, test in splits:
        yield test, clone(plain).fit(rows[train], y[train], None if weights is None else weights[train])


CASES = {
    "two classes": (X, LABELS, {}, None),
    "weights with zeros": (X, LABELS, {"normalize": "multiplicative"}, WEIGHTS),
    "balanced": (X, LABELS, {"class_weight": "balanced", "normalize": "spherical"}, None),
    "three classes": (WINE, KIND, {"normalize": "trace", "C": 5.0}, None),
    "shared weights": (WINE, KIND, {"shared_weights": True, "p": 1.2}, None),
    "joint": (WINE, KIND, {"multi_class": "joint"}, None),
    "logistic": (X, LABELS, {"loss": "logistic"}, None),
    "sparse": (X, LABELS, {"p": 1.0}, None),
    "a bank of each fold's own": (WINE, KIND, {"kernels": None}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_probabilities_are_those_of_calibrated_refits(case):
    rows, y, more, weights = CASES[case]
    method, new = ("sigmoid", "isotonic")[list(CASES).index(case) % 2], rows + 0.1
    ours = classifier(probability=method, **more).fit(rows, y, sample_weight=weights)
    theirs = CalibratedClassifierCV(classifier(**more), method=method, cv=FOLDS, ensemble=False).fit(
        rows, y, sample_weight=weights
    )
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=5e-3)
    assert np.median(np.abs(ours.predict_proba(new) - theirs.predict_proba(new))) < 1e-4
    plain = classifier(**more).fit(rows, y, sample_weight=weights)
    np.testing.assert_allclose(ours.decision_function(new), plain.decision_function(new), atol=1e-7)
    np.testing.assert_allclose(ours.kernel_weights_, plain.kernel_weights_, atol=1e-9)
    assert {row["head"] for row in ours.history_} == {row["head"] for row in plain.history_}
    held = np.empty_like(ours.held_out_decision_)
    for test, one in refitted(ours, rows, y, FOLDS.split(rows, y), weights):
        held[test] = one.decision_function(rows[test])
        assert np.array_equal(np.unique(ours.folds_[test]), [ours.folds_[test[0]]])
    np.testing.assert_allclose(ours.held_out_decision_, held, atol=5e-3 * held.std())
    each = len(np.unique(y)) > 2 and not more.get("shared_weights") and "multi_class" not in more
    assert ours.fold_gaps_.shape == ((3, 3) if each else (3,)) and ours.fold_gaps_.max() <= 1e-6
    log = ours.predict_log_proba(new)
    assert np.isfinite(log).all()
    np.testing.assert_allclose(np.exp(log), ours.predict_proba(new), atol=1e-12)


@pytest.mark.parametrize("case", ["two classes", "three classes", "joint", "a bank of each fold's own"])
def test_sets_are_those_of_refits(case):
    rows, y, more, _ = CASES[case]
    model = classifier(conformal=True, **more).fit(rows, y)
    classes, n, new = model.classes_, len(y), np.concatenate([rows[::3], rows[::3] + 0.4])
    count = np.ones((len(new), len(classes)))
    for test, one in refitted(model, rows, y, FOLDS.split(rows, y)):
        strange = []
        for f in (one.decision_function(new), one.decision_function(rows[test])):
            f = np.column_stack([-f, f]) if f.ndim == 1 else f
            strange.append(
                np.stack([np.delete(f, k, axis=1).max(axis=1) - f[:, k] for k in range(len(classes))], axis=1)
            )
        own = strange[1][np.arange(len(test)), np.searchsorted(classes, y[test])]
        # What differs by the tolerance of the fits may be counted either way.
        count += (strange[0][:, :, None] <= own + 1e-9).sum(axis=2)
    for coverage in (0.6, 0.9):
        found = model.predict_set(new, coverage=coverage)
        assert found.dtype == bool and np.mean(found == (count / (n + 1) > 1 - coverage)) > 0.99
    assert np.all(model.predict_set(new, 0.6) <= model.predict_set(new))


@pytest.mark.parametrize(
    "more",
    [{}, {"normalize": "multiplicative", "loss": "huber"}, {"kernels": None, "normalize": "spherical"}],
    ids=str,
)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_intervals_are_those_of_refits(more, weights):
    model = regressor(**more).fit(X, TARGET, sample_weight=weights)
    n, errors, at = len(X), np.empty(len(X)), np.empty((len(NEW), len(X)))
    for test, one in refitted(model, X, TARGET, KFold(4).split(X), weights):
        errors[test] = np.abs(TARGET[test] - one.predict(X[test]))
        at[:, test] = one.predict(NEW)[:, None]
    for coverage in (0.5, 0.9):
        low, high = int(np.floor((1 - coverage) * (n + 1) + 1e-9)), int(np.ceil(coverage * (n + 1) - 1e-9))
        want = np.column_stack([np.sort(at - errors)[:, low - 1], np.sort(at + errors)[:, high - 1]])
        np.testing.assert_allclose(model.predict_interval(NEW, coverage), want, atol=2e-3)
    np.testing.assert_allclose(np.abs(TARGET - model.held_out_decision_), errors, atol=2e-3)
    plain = regressor(conformal=False, **more).fit(X, TARGET, sample_weight=weights)
    np.testing.assert_allclose(model.predict(NEW), plain.predict(NEW), atol=1e-7)
    assert np.isinf(model.predict_interval(NEW[:2], coverage=0.999)).all() and not hasattr(
        plain, "predict_interval"
    )


def test_every_fold_holds_its_certificate():
    """Gaps of the folds, recomputed from matrices and the public arrays of their models."""
    model = classifier(conformal=True, tol=1e-3, C=2.0, p=1.5).fit(X, LABELS)
    K, found, y = gram(BANK, X), model.fold_models_, np.where(model.classes_[1] == LABELS, 1.0, -1.0)
    for fold in range(3):
        a, theta = np.zeros(len(X)), found.expansion.weights[fold]
        a[found.expansion.support] = found.expansion.coefficients[fold]
        train = model.folds_ != fold
        G = np.einsum("ijm,j->im", K, a)
        s = np.maximum(a @ G, 0.0)
        losses = np.maximum(0.0, 1 - y * (G @ theta + found.intercepts[fold]))[train].sum()
        primal = 0.5 * ((theta * np.sqrt(s)) ** 1.5).sum() ** (2 / 1.5) + 2.0 * losses
        dual = y @ a - 0.5 * (np.sqrt(s) ** 3).sum() ** (2 / 3)
        assert not a[~train].any() and abs(a.sum()) < 1e-9 and np.all((y * a >= 0) & (y * a <= 2.0 + 1e-12))
        np.testing.assert_allclose(model.fold_gaps_[fold], (primal - dual) / primal, atol=1e-4)
        assert model.fold_gaps_[fold] <= 1e-3


@pytest.mark.parametrize(
    "more", [{"normalize": "multiplicative"}, {"normalize": "tail"}, {"kernels": None}], ids=str
)
def test_a_row_that_is_held_out_is_not_seen(more):
    poisoned = X.copy()
    poisoned[17] = 40 * poisoned[17] + 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = (classifier(probability="sigmoid", **more).fit(rows, LABELS) for rows in (X, poisoned))
    inside = (a.folds_ == a.folds_[17]) & (np.arange(len(X)) != 17)
    moved = np.abs(a.held_out_decision_ - b.held_out_decision_)
    assert moved[inside].max() < 1e-5 and moved[a.folds_ != a.folds_[17]].max() > 1e-3


def test_methods_are_there_where_they_can_answer():
    assert not hasattr(MKLClassifier(), "predict_proba") and not hasattr(MKLClassifier(), "predict_set")
    assert hasattr(MKLClassifier(probability="isotonic"), "predict_log_proba") and not hasattr(
        MKLClassifier(probability="sigmoid"), "predict_set"
    )
    assert hasattr(MKLClassifier(conformal=True), "predict_set") and not hasattr(
        MKLClassifier(conformal=True), "predict_proba"
    )
    assert not hasattr(ConvexLocalizedMKLClassifier(), "predict_set") and not hasattr(
        ConvexLocalizedMKLClassifier(), "predict_proba"
    )
    for call in (
        lambda: MKLClassifier(probability="sigmoid").predict_proba(X),
        lambda: classifier().fit(X, LABELS).set_params(conformal=True).predict_set(X),
        lambda: classifier().fit(X, LABELS).set_params(probability="sigmoid").predict_proba(X),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_what_folds_have_left_is_forgotten():
    model = classifier(probability="sigmoid", conformal=True).fit(X, LABELS)
    model.set_params(probability=None, conformal=False).fit(X, LABELS)
    for name in ("folds_", "fold_gaps_", "held_out_decision_", "calibration_", "fold_models_"):
        assert not hasattr(model, name)


def test_errors_come_before_any_work(tmp_path):
    model = classifier(probability="sigmoid")
    fails(("probability", "sigmoid"), lambda: clone(model).set_params(probability="platt").fit(X, LABELS))
    fails(("class", "fewer"), lambda: clone(model).set_params(cv=60).fit(X, LABELS))
    one = np.where(
        np.arange(len(X)) == np.flatnonzero(LABELS.max() == LABELS)[0],
        1.0,
        (LABELS.max() != LABELS).astype(float),
    )
    fails(("fold", "positive weight"), lambda: clone(model).fit(X, LABELS, sample_weight=one))
    fails(("coverage",), lambda: regressor(cv=2).fit(X, TARGET).predict_interval(X, coverage=1.0))
    pq.write_table(pa.table({f"x{k}": column for k, column in enumerate(X.T)}), tmp_path / "rows.parquet")
    fails(
        ("kernels=None", "fold"), lambda: regressor(kernels=None).fit(str(tmp_path / "rows.parquet"), TARGET)
    )


@pytest.mark.filterwarnings("ignore:stopped after")
def test_folds_that_stop_short_are_told_of():
    with pytest.warns(ConvergenceWarning, match="folds of cv stopped above"):
        classifier(
            probability="sigmoid", tol=1e-9, max_iter=1, dtype="float32", normalize="multiplicative"
        ).fit(X, LABELS)


@pytest.mark.parametrize(
    "model, y",
    [
        (classifier(probability="sigmoid", conformal=True), LABELS),
        (classifier(probability="isotonic", conformal=True, normalize="spherical"), LABELS),
        (classifier(probability="isotonic", conformal=True, kernels=None, cv=2), LABELS),
        (regressor(cv=LeaveOneOut(), tol=1e-3), TARGET),
    ],
    ids=["sigmoid", "isotonic", "own banks", "regressor"],
)
def test_files_hold_calibrators_and_folds(tmp_path, model, y):
    model.fit(X, y).save(tmp_path / "m.raymkl")
    again = load(tmp_path / "m.raymkl")
    for method in ("predict_proba", "predict_set", "predict_interval"):
        assert hasattr(again, method) == hasattr(model, method)
        if hasattr(model, method):
            np.testing.assert_array_equal(getattr(again, method)(NEW), getattr(model, method)(NEW))
    np.testing.assert_array_equal(again.held_out_decision_, model.held_out_decision_)
    # What was read can be fitted again, over the same folds.
    np.testing.assert_array_equal(again.fit(X, y).folds_, model.folds_)


def test_ready_made_matrices_stores_and_sparse_rows(tmp_path):
    import scipy.sparse as sp

    K, T = gram(BANK, X), np.stack([kernel(NEW, X) for kernel in BANK], axis=-1)
    want = classifier(probability="sigmoid", conformal=True).fit(X, LABELS)
    kernels.write_store(tmp_path / "store", BANK, X)
    for rows in (K, str(tmp_path / "store")):
        ready = classifier(probability="sigmoid", conformal=True, kernels="precomputed").fit(rows, LABELS)
        np.testing.assert_allclose(ready.predict_proba(T), want.predict_proba(NEW), atol=1e-5)
        assert np.mean(ready.predict_set(T) == want.predict_set(NEW)) > 0.98
    thin = classifier(probability="sigmoid", conformal=True).fit(sp.csr_matrix(X), LABELS)
    np.testing.assert_allclose(thin.predict_proba(sp.csr_matrix(NEW)), want.predict_proba(NEW), atol=1e-5)


def test_tables_and_shards():
    want = classifier(probability="sigmoid", conformal=True).fit(X, LABELS)
    parts = classifier(probability="sigmoid", conformal=True, ray_params=RayParams(num_shards=3)).fit(
        X, LABELS
    )
    np.testing.assert_allclose(parts.held_out_decision_, want.held_out_decision_, atol=1e-6)
    names = [f"x{k}" for k in range(X.shape[1])]
    table = TableModel(want, Preparation({None: names}, dict.fromkeys(names, 1)))
    np.testing.assert_array_equal(table.predict_set(NEW, 0.8), want.predict_set(NEW, 0.8))
    number = TableModel(regressor().fit(X, TARGET), Preparation({None: names}, dict.fromkeys(names, 1)))
    assert number.predict_interval(NEW).shape == (40, 2) and not hasattr(number, "predict_set")
