"""Searches by scores of probabilities: folds within folds as heads, against scikit-learn's search that
refits all of them.
"""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from raymkl import MKLClassifier, kernels
from raymkl.search import MKLSearchCV
from tests.reference import noisy_problem

X, Y = noisy_problem(90, seed=6)
WINE, KIND = load_wine(return_X_y=True)
WINE, KIND = ((WINE - WINE.mean(0)) / WINE.std(0))[::2], KIND[::2]
WITHIN = StratifiedKFold(3, shuffle=True, random_state=0)


def model(**more):
    bank = [*kernels.rbf([0.03, 0.3]), kernels.Linear()]
    return MKLClassifier(
        **{"kernels": bank, "engine": "local", "tol": 1e-6, "probability": "sigmoid", "cv": WITHIN, **more}
    )


@pytest.mark.parametrize(
    "rows, y, more, grid",
    [
        (X, Y, {"normalize": "multiplicative"}, {"C": [0.1, 1.0], "probability": ["sigmoid", "isotonic"]}),
        (WINE, KIND, {"shared_weights": True}, {"C": [0.5], "p": [1.2, 2.0]}),
        (WINE, KIND, {"multi_class": "joint"}, {"C": [0.5]}),
    ],
    ids=["two classes", "shared weights", "joint"],
)
def test_log_losses_are_those_of_refits(rows, y, more, grid):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    scoring = {"loss": "neg_log_loss", "accuracy": "accuracy"}
    ours, theirs = (
        search(model(**more), grid, cv=3, scoring=scoring, refit="loss", return_train_score=True).fit(
            rows, y, sample_weight=weights
        )
        for search in (MKLSearchCV, GridSearchCV)
    )
    for name in ("mean_test_accuracy", "mean_train_accuracy"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], atol=0.05)
    unweighted = [
        search(model(**more), grid, cv=3, scoring="neg_log_loss").fit(rows, y)
        for search in (MKLSearchCV, GridSearchCV)
    ]
    np.testing.assert_allclose(*(one.cv_results_["mean_test_score"] for one in unweighted), atol=2e-3)
    assert unweighted[0].best_params_ == unweighted[1].best_params_
    np.testing.assert_allclose(*(one.predict_proba(rows) for one in unweighted), atol=1e-6)


def test_the_search_has_probabilities_where_its_estimator_has():
    found = MKLSearchCV(model(), {"C": [1.0]}, cv=2).fit(X, Y)
    np.testing.assert_array_equal(found.predict_log_proba(X), found.best_estimator_.predict_log_proba(X))
    assert not hasattr(MKLSearchCV(model(probability=None), {"C": [1.0]}), "predict_proba")
