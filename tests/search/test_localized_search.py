"""Searches over localized models: fitted fold by fold, with clusters and gates of the training rows alone, as
scikit-learn does it.
"""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from raymkl import ConvexLocalizedMKLClassifier, ConvexLocalizedMKLRegressor, LocalizedMKLClassifier
from raymkl.kernels import RBF, Linear, rbf
from raymkl.search import MKLSearchCV
from raymkl.search.settings import knows_heads
from tests.reference import gram, noisy_problem

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:the gates had not settled")]
BANK = [*rbf([0.1, 0.5]), Linear()]
X, Y = noisy_problem(60, seed=7)
K = gram(BANK, X)
CONVEX = {"kernels": BANK, "n_init": 2, "random_state": 0, "engine": "local"}
GATED = {"kernels": BANK, "n_init": 1, "max_iter": 2, "tol": 1e-2, "random_state": 0, "engine": "local"}


def both(estimator, grid, data, y, **options):
    """Our search and scikit-learn's, with the same options."""
    options = {"cv": 3, "return_train_score": True, **options}
    return [kind(clone(estimator), grid, **options).fit(data, y) for kind in (MKLSearchCV, GridSearchCV)]


def assert_equal(ours, theirs):
    """The same fits with the same random numbers: nothing may differ."""
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    compared = [name for name in theirs.cv_results_ if "_test_" in name or "_train_" in name]
    assert len(compared) >= 2 * (3 + 2)
    for name in compared:
        np.testing.assert_array_equal(ours.cv_results_[name], theirs.cv_results_[name], err_msg=name)
    assert ours.best_params_ == theirs.best_params_ and ours.best_score_ == theirs.best_score_
    np.testing.assert_array_equal(ours.best_estimator_.dual_coef_, theirs.best_estimator_.dual_coef_)


def margin(estimator, data, y):
    """A score that shows every small difference of the decision values."""
    return float(np.mean(estimator.decision_function(data) * y))


def test_all_that_a_convex_localized_model_has_to_choose():
    grid = [
        {"n_clusters": [2, 3], "evenness": [0.6, "hard"], "p": [1.0, 4 / 3]},
        {"n_clusters": [2], "evenness": [0.7], "C": [0.3, 3.0], "gating_kernel": [1, RBF(0.3)]},
        {"tau": [0.0, 2.0]},
    ]
    ours, theirs = both(ConvexLocalizedMKLClassifier(**CONVEX), grid, X, Y, scoring=margin)
    assert_equal(ours, theirs)
    assert (
        len(np.unique(np.round(ours.cv_results_["mean_test_score"], 9))) == 14
    )  # every setting is a model of its own
    np.testing.assert_array_equal(ours.best_estimator_.membership(X), theirs.best_estimator_.membership(X))


@pytest.mark.parametrize("gating", ["linear", "kernel"])
def test_a_gating_model(gating):
    ours, theirs = both(
        LocalizedMKLClassifier(**GATED, gating=gating), {"C": [0.3, 3.0]}, X, Y, scoring=margin
    )
    assert_equal(ours, theirs)
    np.testing.assert_array_equal(ours.best_estimator_.gates(X), theirs.best_estimator_.gates(X))


def test_gating_as_a_searched_parameter():
    ours, theirs = both(
        LocalizedMKLClassifier(**GATED), {"gating": ["linear", "kernel"]}, X, Y, scoring="accuracy"
    )
    assert_equal(ours, theirs)
    assert ours.best_estimator_.get_params()["gating"] == ours.best_params_["gating"]


def test_regression():
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    model = ConvexLocalizedMKLRegressor(**CONVEX)
    assert_equal(*both(model, {"evenness": [0.5, "hard"], "epsilon": [0.05, 0.5], "C": [1.0, 5.0]}, X, y))


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (
            ConvexLocalizedMKLClassifier(**{**CONVEX, "kernels": "precomputed"}),
            {"evenness": [0.5, 0.8], "C": [0.5, 5.0]},
        ),
        (
            LocalizedMKLClassifier(**{**GATED, "kernels": "precomputed"}, gating="kernel"),
            {"gating_kernel": [0, "uniform"]},
        ),
    ],
    ids=["convex", "gating"],
)
def test_ready_made_matrices_are_split_on_both_sides(model, grid):
    assert_equal(*both(model, grid, K, Y, scoring=margin))


def test_folds_are_fits_of_their_training_rows_alone():
    """Held-out rows have no part in the clusters: each score is that of a model which never saw them."""
    folds = list(StratifiedKFold(3).split(X, Y))
    model = ConvexLocalizedMKLClassifier(**CONVEX, normalize="multiplicative")
    found = MKLSearchCV(model, {"evenness": [0.5]}, cv=folds, scoring=margin, refit=False).fit(X, Y)
    for fold, (train, test) in enumerate(folds):
        alone = clone(model).fit(X[train], Y[train])
        assert found.cv_results_[f"split{fold}_test_score"][0] == margin(alone, X[test], Y[test])
    assert not knows_heads(model)


def test_a_dict_of_views():
    """scikit-learn cannot split a dict: compared with the same columns of one array."""
    grid = {"evenness": [0.5, "hard"], "C": [0.5, 2.0]}
    apart = ConvexLocalizedMKLClassifier(
        **{**CONVEX, "kernels": rbf([0.1, 0.5], view="l")}, gating_kernel=RBF(0.2, view="r")
    )
    joined = ConvexLocalizedMKLClassifier(
        **{**CONVEX, "kernels": rbf([0.1, 0.5], view=[0, 1])}, gating_kernel=RBF(0.2, view=[2, 3, 4, 5])
    )
    ours = MKLSearchCV(apart, grid, cv=3, scoring=margin).fit({"l": X[:, :2], "r": X[:, 2:]}, Y)
    theirs = GridSearchCV(joined, grid, cv=3, scoring=margin).fit(X, Y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-9
    )


def test_settings_that_cannot_be_fitted():
    """An evenness below 1 / n_clusters fails in every fold, more clusters than rows in a fold likewise; the
    others are scored.
    """
    grid = {"n_clusters": [2, 41], "evenness": [0.4, 0.6]}
    search = MKLSearchCV(ConvexLocalizedMKLClassifier(**CONVEX), grid, cv=3)
    with pytest.warns(
        FitFailedWarning, match=r"9 of 12 fits failed.*evenness.*n_clusters=41 is more than the 40 examples"
    ):
        search.fit(X, Y)
    assert search.best_params_ == {"n_clusters": 2, "evenness": 0.6}
    assert np.isnan(search.cv_results_["mean_test_score"]).sum() == 3
    with warnings.catch_warnings(), pytest.raises(ValueError, match="evenness"):
        warnings.simplefilter("error")
        clone(search).set_params(error_score="raise").fit(X, Y)
