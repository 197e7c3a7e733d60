"""Scores averaged over classes, against the definitions written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.metrics import average_precision_score, matthews_corrcoef, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from raymkl import MKLClassifier, kernels, metrics
from raymkl.metrics import macro_auc, macro_average_precision, matthews
from raymkl.search import MKLSearchCV


def naive_auc(positive, values, weights):
    """Weighted share of pairs (one of the class, one not) in the right order; ties count one half."""
    right = total = 0.0
    for i in np.flatnonzero(positive):
        for j in np.flatnonzero(~positive):
            weight = weights[i] * weights[j]
            right += weight * (1.0 if values[i] > values[j] else 0.5 if values[i] == values[j] else 0.0)
            total += weight
    return right / total


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.booleans())
def test_macro_auc_by_counting_pairs(seed, n_classes, weighted):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, 25)
    y[:n_classes] = np.arange(n_classes)
    values = rng.integers(0, 6, (25, n_classes)).astype(float)  # with ties
    weights = rng.uniform(0.1, 2.0, 25) if weighted else np.ones(25)
    expected = np.mean([naive_auc(y == c, values[:, c], weights) for c in range(n_classes)])
    assert macro_auc(y, values, sample_weight=weights if weighted else None) == pytest.approx(expected)


def test_two_classes_are_the_usual_scores():
    rng = np.random.default_rng(0)
    y, f = np.where(rng.random(40) < 0.3, "yes", "no"), rng.normal(size=40)
    assert macro_auc(y, f) == pytest.approx(roc_auc_score(y == "yes", f))
    assert macro_auc(y, f[:, None]) == macro_auc(y, f)
    both = (average_precision_score(y == "yes", f) + average_precision_score(y == "no", -f)) / 2
    assert macro_average_precision(y, f) == pytest.approx(both)


def test_macro_average_precision():
    rng = np.random.default_rng(1)
    y, values = rng.integers(0, 3, 30), rng.normal(size=(30, 3))
    expected = np.mean([average_precision_score(y == c, values[:, c]) for c in range(3)])
    assert macro_average_precision(y, values) == pytest.approx(expected)


def test_classes_without_examples_are_left_out():
    y, values = np.array(["a", "b", "a", "b"]), np.array([[3.0, 0, 0], [1, 2, 9], [2, 1, 0], [0, 0.5, 1]])
    expected = np.mean([roc_auc_score(y == "a", values[:, 0]), roc_auc_score(y == "b", values[:, 1])])
    assert macro_auc(y, values, classes=["a", "b", "c"]) == pytest.approx(expected)


@pytest.mark.parametrize(
    "y, values, classes, message",
    [
        ([0, 1, 2], [[1.0, 2.0]] * 3, None, "2 columns for 3 classes"),
        ([0, 1, 2], [[1.0, 2.0, 3.0]] * 4, None, "each of the 3 labels"),
        ([0, 1, 2], [[1.0, 2.0, 3.0]] * 3, [0, 1, 5], r"label .*2.* not among the classes \[0, 1, 5\]"),
        ([0, 0, 0], [1.0, 2.0, 3.0], [0, 1], "one class only"),
    ],
    ids=["columns", "rows", "labels", "one class"],
)
def test_bad_input(y, values, classes, message):
    for score in (macro_auc, macro_average_precision):
        with pytest.raises(ValueError, match=message):
            score(y, values, classes=classes)


def test_matthews():
    rng = np.random.default_rng(2)
    y, guess = rng.integers(0, 4, 60), rng.integers(0, 4, 60)
    guess[:30] = y[:30]
    assert matthews(y, guess) == pytest.approx(matthews_corrcoef(y, guess))
    assert matthews(y, guess, average="macro") == pytest.approx(
        np.mean([matthews_corrcoef(y == c, guess == c) for c in range(4)])
    )
    assert matthews(y > 1, guess > 1) == pytest.approx(matthews(y > 1, guess > 1, average="macro"))
    weights = rng.uniform(size=60)
    assert matthews(y, guess, sample_weight=weights) == pytest.approx(
        matthews_corrcoef(y, guess, sample_weight=weights)
    )
    with pytest.raises(ValueError, match="average must be None or \"macro\", got 'micro'"):
        matthews(y, guess, average="micro")
    with pytest.raises(ValueError, match="same length"):
        matthews(y, guess[:-1])


def test_scorers_by_name():
    X, y = load_iris(return_X_y=True)
    X, y = X[::3], np.array(["setosa", "versicolor", "virginica"])[y[::3]]
    model = MKLClassifier(kernels=kernels.rbf([0.01, 0.1, 1.0]), engine="local", tol=1e-5)
    fitted = model.fit(X, y)
    f = fitted.decision_function(X)
    assert metrics.scorer("macro_auc")(fitted, X, y) == pytest.approx(macro_auc(y, f))
    assert metrics.scorer("macro_average_precision")(fitted, X, y) == pytest.approx(
        macro_average_precision(y, f)
    )
    assert metrics.scorer("mcc")(fitted, X, y) == pytest.approx(matthews_corrcoef(y, fitted.predict(X)))
    assert metrics.scorer("macro_mcc")(fitted, X, y) == pytest.approx(
        matthews(y, fitted.predict(X), average="macro")
    )
    assert metrics.scorer("accuracy")(fitted, X, y) == fitted.score(X, y)
    assert metrics.scorer(None, fitted)(fitted, X, y) == fitted.score(X, y)
    with pytest.raises(ValueError, match="no such score"):
        metrics.scorer("no such score", fitted)
    # They are scorers for everything in scikit-learn.
    assert cross_val_score(model, X, y, cv=3, scoring=metrics.scorer("macro_auc")).min() > 0.9
    ours = MKLSearchCV(model, {"C": [0.1, 1.0]}, cv=3, scoring="macro_auc").fit(X, y)
    theirs = GridSearchCV(model, {"C": [0.1, 1.0]}, cv=3, scoring=metrics.scorer("macro_auc")).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=1e-6
    )


def test_scorers_survive_a_trip():
    import pickle

    for name, scorer in metrics.SCORERS.items():
        back = pickle.loads(pickle.dumps(scorer))
        assert repr(back) == repr(scorer) == f"scorer({name!r})"
