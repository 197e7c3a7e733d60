"""Searches that cannot work say so, before or instead of half a result; what scikit-learn has a habit for is
done its way.
"""

import numpy as np
import pytest
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold

from raymkl import MKLClassifier, kernels
from raymkl.search import MKLSearchCV
from raymkl.search import grid as grid_module
from tests.reference import noisy_problem

X, Y = noisy_problem(40)
BANK = kernels.rbf([0.1, 1.0])


def model(**params):
    return MKLClassifier(**{"kernels": BANK, "engine": "local", **params})


@pytest.fixture
def idle(monkeypatch):
    """The engine must not be asked."""
    monkeypatch.setattr(grid_module, "train", lambda *arguments: pytest.fail("training began"))


@pytest.mark.parametrize(
    "grid, message",
    [
        ({"Q": [1.0]}, "'Q'.*MKLClassifier.*kernels"),
        ({"C": []}, "'C'"),
        ([], "empty"),
        ({"C": 1.0}, "'C'"),
    ],
    ids=["unknown", "empty list", "empty grid", "no list"],
)
def test_grids(grid, message, idle):
    with pytest.raises((ValueError, TypeError), match=message):
        MKLSearchCV(model(), grid, cv=3).fit(X, Y)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scoring": {}}, "scoring is empty"),
        ({"scoring": "no such score"}, "no such score"),
        ({"scoring": ["accuracy", "roc_auc"]}, "refit must be one of accuracy, roc_auc"),
        ({"scoring": ["accuracy", "roc_auc"], "refit": "f1"}, "refit must be one of accuracy, roc_auc.*'f1'"),
        ({"error_score": "ignore"}, "error_score.*'ignore'"),
        ({"cv": []}, "cv gave no splits"),
        ({"cv": [(np.arange(30), [])]}, "fold 0 of cv has 30 training and 0 test rows"),
        ({"cv": 1}, "n_splits=1"),
        ({"cv": "three"}, "cv"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_options(options, message, idle):
    with pytest.raises(ValueError, match=message):
        MKLSearchCV(model(), {"C": [1.0]}, **options).fit(X, Y)


def test_more_folds_than_members_of_a_class_is_scikit_learns_affair(idle):
    y = np.where(np.arange(40) < 3, 1, -1)
    with pytest.raises(ValueError) as theirs:
        GridSearchCV(model(), {"C": [1.0]}, cv=41).fit(X, y)
    with pytest.raises(ValueError) as ours:
        MKLSearchCV(model(), {"C": [1.0]}, cv=41).fit(X, y)
    assert str(ours.value) == str(theirs.value)


def test_few_members_of_a_class_warn_as_in_scikit_learn():
    y = np.where(np.arange(40) < 3, 1, -1)
    with pytest.warns(UserWarning, match="least populated class"):
        ours = MKLSearchCV(model(), {"C": [1.0]}, cv=4).fit(X, y)
    with pytest.warns(UserWarning, match="least populated class"):
        theirs = GridSearchCV(model(), {"C": [1.0]}, cv=4).fit(X, y)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])


@pytest.mark.parametrize(
    "X, y, more, message",
    [
        (X, Y[:-1], {}, "inconsistent numbers of samples|different lengths"),
        (np.where(np.arange(40)[:, None] == 7, np.nan, X), Y, {}, "NaN"),
        (X, None, {}, "y"),
        (X, Y, {"sample_weight": np.ones(39)}, "sample_weight.*40"),
        (X, Y, {"sample_weight": -np.ones(40)}, "[Nn]egative"),
        (X, np.zeros(40), {}, "1 class|two classes"),
    ],
    ids=["short y", "NaN", "no y", "short weights", "negative weights", "one class"],
)
def test_data(X, y, more, message, idle):
    with pytest.raises(ValueError, match=message):
        MKLSearchCV(model(), {"C": [1.0]}, cv=3).fit(X, y, **more)


def test_a_fold_that_sees_one_class_only():
    """The other folds count; this one gets the error_score, as in scikit-learn."""
    order = np.argsort(Y, kind="stable")
    splits = [(order[:18], order[18:]), (np.arange(0, 40, 2), np.arange(1, 40, 2))]
    with pytest.warns(FitFailedWarning, match="1 class"):
        ours = MKLSearchCV(model(), {"C": [1.0, 10.0]}, cv=splits).fit(X, Y)
    with pytest.warns(FitFailedWarning):
        theirs = GridSearchCV(model(), {"C": [1.0, 10.0]}, cv=splits).fit(X, Y)
    for name in ("split0_test_score", "split1_test_score", "mean_test_score", "rank_test_score"):
        np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name])
    with pytest.warns(FitFailedWarning):
        zero = MKLSearchCV(model(), {"C": [1.0]}, cv=splits, error_score=0.0).fit(X, Y)
    assert zero.cv_results_["split0_test_score"].tolist() == [0.0] and zero.best_score_ > 0
    with pytest.raises(ValueError, match="1 class"):
        MKLSearchCV(model(), {"C": [1.0]}, cv=splits, error_score="raise").fit(X, Y)


@pytest.mark.parametrize(
    "bad",
    [
        {"C": [-1.0, 1.0, 2.0]},
        {"C": ["much", 1.0, 2.0]},
        {"p": [0.5, 4 / 3, 2.0]},
        {"kernels": [[], BANK, BANK[:1]]},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_fitted_fails_alone(bad):
    with pytest.warns(FitFailedWarning, match="3 of 9"):
        found = MKLSearchCV(model(), bad, cv=3, return_train_score=True).fit(X, Y)
    scores = found.cv_results_["mean_test_score"]
    assert (
        np.isnan(scores[0])
        and np.isfinite(scores[1:]).all()
        and np.isnan(found.cv_results_["mean_train_score"][0])
    )
    assert found.cv_results_["rank_test_score"][0] == 3 and found.best_index_ > 0
    with pytest.raises(ValueError, match=next(iter(bad))):
        MKLSearchCV(model(), bad, cv=3, error_score="raise").fit(X, Y)


def test_all_fits_failing_is_an_error(idle):
    with pytest.raises(ValueError, match=r"all 6 fits failed.*C must be"):
        MKLSearchCV(model(), {"C": [-1.0, 0.0]}, cv=3).fit(X, Y)
    with pytest.raises(ValueError, match=r"all 3 fits failed.*empty list"):
        MKLSearchCV(model(kernels=[]), {"C": [1.0]}, cv=3).fit(X, Y)


PROBABILITIES = [make_scorer(roc_auc_score, response_method="predict_proba"), "neg_log_loss"]


@pytest.mark.parametrize("scoring", PROBABILITIES, ids=["AUC of probabilities", "log loss"])
def test_scorers_that_need_probabilities(scoring):
    with pytest.warns(UserWarning, match="predict_proba"):
        found = MKLSearchCV(model(), {"C": [1.0]}, cv=3, scoring=scoring, refit=False).fit(X, Y)
    assert np.isnan(found.cv_results_["mean_test_score"]).all() and found.cv_results_[
        "rank_test_score"
    ].tolist() == [1]
    with pytest.raises(AttributeError, match="predict_proba"):
        MKLSearchCV(model(), {"C": [1.0]}, cv=3, scoring=scoring, error_score="raise").fit(X, Y)


def test_one_bad_scorer_of_several():
    scoring = {"good": "accuracy", "bad": "neg_log_loss"}
    with pytest.warns(UserWarning, match="predict_proba"):
        found = MKLSearchCV(model(), {"C": [1.0]}, cv=3, scoring=scoring, refit="good").fit(X, Y)
    assert (
        np.isnan(found.cv_results_["mean_test_bad"]).all()
        and np.isfinite(found.cv_results_["mean_test_good"]).all()
    )


@pytest.mark.parametrize("value", ["high", {"accuracy": 0.5}, None], ids=str)
def test_a_score_that_is_no_number(value):
    with pytest.raises(ValueError, match="scoring must return a number"):
        MKLSearchCV(model(), {"C": [1.0]}, cv=3, scoring=lambda estimator, X, y: value, refit=False).fit(X, Y)


def test_before_and_without_a_refit():
    search = MKLSearchCV(model(), {"C": [1.0]}, cv=3, refit=False)
    with pytest.raises(NotFittedError):
        search.predict(X)
    search.fit(X, Y)
    assert (
        search.best_params_ == {"C": 1.0}
        and not hasattr(search, "best_estimator_")
        and not hasattr(search, "n_features_in_")
    )
    for name in ("predict", "decision_function", "score"):
        with pytest.raises(NotFittedError):
            getattr(search, name)(X)


def test_a_refit_that_returns_nonsense():
    with pytest.raises(ValueError, match=r"refit must return a position in 0..1, got 5"):
        MKLSearchCV(model(), {"C": [1.0, 2.0]}, cv=3, refit=lambda results: 5).fit(X, Y)


def test_stopping_short_is_said():
    from sklearn.exceptions import ConvergenceWarning

    with pytest.warns(ConvergenceWarning, match="of 6 problems stopped above tol"):
        MKLSearchCV(model(tol=1e-12, max_iter=1), {"C": [1.0, 10.0]}, cv=3, refit=False).fit(X, Y)


def test_pipelines_fail_setting_by_setting():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipe = make_pipeline(StandardScaler(), model())
    with pytest.warns(FitFailedWarning, match="2 of 4"):
        found = MKLSearchCV(pipe, {"mklclassifier__C": [-1.0, 1.0]}, cv=KFold(2)).fit(X, Y)
    assert found.best_params_ == {"mklclassifier__C": 1.0}
    with pytest.raises(ValueError, match="nothing__C"):
        MKLSearchCV(pipe, {"nothing__C": [1.0]}, cv=2).fit(X, Y)
