"""A search over heads finds what scikit-learn's search finds by fitting every fold and setting on its own."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import make_scorer, precision_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from raymkl import MKLClassifier, RayParams, kernels
from raymkl.models.description import problem as description
from raymkl.search import MKLSearchCV
from raymkl.search import grid as grid_module
from raymkl.search.settings import blocks_of, paths_of
from tests.reference import gram, noisy_problem

BANK = [*kernels.rbf([0.05, 0.5]), kernels.Polynomial(degree=2, coef0=1.0)]
X, Y = noisy_problem(72)
C_AND_P = {"C": [0.1, 1.0, 10.0], "p": [1.0, 4 / 3, 2.0]}
C_ALONE = {"C": [0.3, 3.0]}


def model(**params):
    return MKLClassifier(**{"kernels": BANK, "tol": 1e-6, "engine": "local", **params})


def three_classes(n=75, seed=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.normal(size=(n, 4)) + 1.3 * np.eye(3, 4)[y], np.array(["ash", "birch", "cedar"])[y]


def both(estimator, grid, X, y, *, groups=None, sample_weight=None, **options):
    """Our search and scikit-learn's, with the same options."""
    more = {"groups": groups, "sample_weight": sample_weight}
    more = {name: value for name, value in more.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", ConvergenceWarning)
        ours = MKLSearchCV(clone(estimator), grid, **options).fit(X, y, **more)
        theirs = GridSearchCV(clone(estimator), grid, **options).fit(X, y, **more)
    return ours, theirs


def assert_equal(ours, theirs, atol=1e-9):
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    compared = 0
    for name, values in theirs.cv_results_.items():
        if "_test_" in name or "_train_" in name:
            np.testing.assert_allclose(ours.cv_results_[name], values, atol=atol, err_msg=name)
            compared += 1
        elif name.startswith("param_"):
            assert list(ours.cv_results_[name]) == list(values)
    assert compared >= 4
    for name in ("best_index_", "n_splits_", "multimetric_"):
        assert getattr(ours, name, None) == getattr(theirs, name, None), name
    assert hasattr(ours, "best_score_") == hasattr(theirs, "best_score_")
    if hasattr(theirs, "best_score_"):
        assert ours.best_score_ == pytest.approx(theirs.best_score_, abs=atol)
        assert ours.best_params_ == theirs.best_params_


# -- scores, splitters, scorers --------------------------------------------------------------------


def test_a_grid_of_C_and_p():
    ours, theirs = both(model(), C_AND_P, X, Y, cv=4, scoring="roc_auc", return_train_score=True)
    assert_equal(ours, theirs)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-6)
    assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y))
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    assert ours.n_features_in_ == X.shape[1] and ours.refit_time_ > 0


@pytest.mark.parametrize(
    "cv",
    [
        KFold(3),
        StratifiedKFold(4, shuffle=True, random_state=1),
        GroupKFold(3),
        PredefinedSplit(np.arange(72) % 4 - 1),
        ShuffleSplit(3, test_size=0.3, random_state=2),
        [(np.arange(0, 48), np.arange(48, 72)), (np.arange(24, 72), np.arange(24)[::-1])],
        [(np.arange(72) < 50, np.arange(72) >= 50)],
        [(np.arange(72) % 36, np.arange(36, 72))],
    ],
    ids=[
        "KFold",
        "StratifiedKFold",
        "GroupKFold",
        "PredefinedSplit",
        "ShuffleSplit",
        "iterable",
        "masks",
        "rows drawn twice",
    ],
)
def test_splitters(cv):
    groups = np.arange(72) // 5 if isinstance(cv, GroupKFold) else None
    assert_equal(*both(model(normalize="trace"), C_ALONE, X, Y, cv=cv, groups=groups, scoring="roc_auc"))


def within(estimator, X, y):
    """A score that looks at the rows it is given, too."""
    return float(np.mean(estimator.decision_function(X) * X[:, 0] * y))


@pytest.mark.parametrize(
    "scoring",
    [
        None,
        "accuracy",
        "average_precision",
        "matthews_corrcoef",
        "balanced_accuracy",
        make_scorer(precision_score, zero_division=0.0),
        within,
    ],
    ids=lambda scoring: scoring if isinstance(scoring, str) else type(scoring).__name__,
)
def test_scorers(scoring):
    assert_equal(
        *both(model(), C_ALONE, X, Y, cv=3, scoring=scoring, refit=False),
        atol=1e-5 if scoring is within else 1e-9,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "refit",
    ["auc", False, lambda results: int(np.argmin(results["mean_test_auc"]))],
    ids=["name", "no", "callable"],
)
@pytest.mark.parametrize("scoring", [{"auc": "roc_auc", "hit": "accuracy"}], ids=["dict"])
def test_several_scores(scoring, refit):
    ours, theirs = both(model(), C_AND_P, X, Y, cv=3, scoring=scoring, refit=refit, return_train_score=True)
    assert_equal(ours, theirs)
    assert set(ours.scorer_) == set(scoring)
    assert hasattr(ours, "best_estimator_") == hasattr(theirs, "best_estimator_")
    if refit == "auc":
        assert ours.score(X, Y) == pytest.approx(theirs.score(X, Y))


def test_a_list_of_scores_and_our_own_names():
    assert_equal(*both(model(), C_ALONE, X, Y, cv=3, scoring=["roc_auc", "accuracy"], refit="accuracy"))
    A, y = three_classes()
    found = MKLSearchCV(model(), C_ALONE, cv=3, scoring=["macro_auc", "mcc"], refit="macro_auc").fit(A, y)
    plain = GridSearchCV(model(), C_ALONE, cv=3, scoring="matthews_corrcoef").fit(A, y)
    np.testing.assert_allclose(found.cv_results_["mean_test_mcc"], plain.cv_results_["mean_test_score"])
    assert 0.6 < found.best_score_ <= 1.0


def test_a_list_of_grids():
    grids = [
        {"C": [0.1, 1.0], "p": [1.0]},
        {"C": [2.0], "class_weight": [None, {1: 3.0}], "solver": ["wrapper"]},
    ]
    ours, theirs = both(model(), grids, X, Y, cv=3, scoring="roc_auc")
    assert_equal(ours, theirs)
    assert ours.cv_results_["param_p"].mask.tolist() == theirs.cv_results_["param_p"].mask.tolist()


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_sample_weights(class_weight):
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.1, 3.0, len(Y)) * (rng.random(len(Y)) < 0.85)  # some rows do not count at all
    estimator = model(class_weight=class_weight, normalize="multiplicative")
    ours, theirs = both(estimator, C_ALONE, X, Y, cv=3, sample_weight=weights, scoring="roc_auc")
    assert_equal(ours, theirs)
    plain, _ = both(estimator, C_ALONE, X, Y, cv=3, scoring="roc_auc", refit=False)
    assert not np.allclose(plain.cv_results_["mean_test_score"], ours.cv_results_["mean_test_score"])


# -- what is learned from the training rows only ---------------------------------------------------


@pytest.mark.parametrize("normalize", ["multiplicative", "trace", "spherical"])
def test_normalisation(normalize):
    """Rows of the second half are far away, so that constants over all rows would be quite different ones."""
    A = X.copy()
    A[36:] *= 6.0
    splits = [(np.arange(36), np.arange(36, 72)), (np.arange(36, 72), np.arange(36))]
    bank = [kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0), kernels.RBF(gamma=0.1)]
    ours, theirs = both(
        model(kernels=bank, normalize=normalize), {"C": [0.01, 1.0]}, A, Y, cv=splits, scoring=within
    )
    assert_equal(ours, theirs, atol=1e-5)


def test_normalize_as_a_searched_parameter():
    assert_equal(
        *both(
            model(),
            {"normalize": [None, "trace", "spherical"], "C": [0.1, 1.0]},
            X,
            Y,
            cv=3,
            scoring="roc_auc",
        )
    )


def test_no_kernels_are_chosen_fold_by_fold():
    """kernels=None makes a bank from the training rows: widths of all rows would know the held-out ones."""
    A = X.copy()
    A[36:] *= 20.0
    splits = [(np.arange(36), np.arange(36, 72)), (np.arange(36, 72), np.arange(36))]
    assert_equal(*both(model(kernels=None), C_ALONE, A, Y, cv=splits, scoring=within), atol=1e-5)
    assert_equal(*both(model(), {"kernels": [None, BANK]}, A, Y, cv=splits, scoring=within), atol=1e-5)


def test_a_pipeline_is_fitted_fold_by_fold():
    pipe = make_pipeline(StandardScaler(), model())
    ours, theirs = both(pipe, {"mklclassifier__C": [0.1, 1.0]}, X, Y, cv=3, return_train_score=True)
    assert_equal(ours, theirs)
    assert ours.best_estimator_.named_steps["mklclassifier"].duality_gap_ <= 1e-6


# -- containers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sparse", "DataFrame", "float32", "list"])
def test_containers(kind):
    A = {
        "sparse": sp.csr_matrix,
        "DataFrame": lambda A: pd.DataFrame(A, columns=list("abcdef")),
        "float32": np.float32,
        "list": list,
    }[kind](X)
    bank = [kernels.RBF(gamma=0.2), kernels.Linear(view=["a", "c"] if kind == "DataFrame" else [0, 2])]
    ours, theirs = both(model(kernels=bank), C_ALONE, A, Y, cv=3, scoring="roc_auc")
    assert_equal(ours, theirs)
    if kind == "DataFrame":
        assert list(ours.feature_names_in_) == list("abcdef")


def test_a_dict_of_views():
    """scikit-learn cannot split a dict: compared with the same columns of one array."""
    apart = MKLSearchCV(
        model(kernels=[kernels.RBF(gamma=0.2, view="l"), kernels.Linear(view="r")]), C_AND_P, cv=3
    )
    joined = GridSearchCV(
        model(kernels=[kernels.RBF(gamma=0.2, view=[0, 1]), kernels.Linear(view=[2, 3, 4, 5])]), C_AND_P, cv=3
    )
    apart.fit({"l": X[:, :2], "r": X[:, 2:]}, Y)
    joined.fit(X, Y)
    np.testing.assert_allclose(apart.cv_results_["mean_test_score"], joined.cv_results_["mean_test_score"])
    assert apart.best_params_ == joined.best_params_


def test_precomputed_kernels():
    K = gram(BANK, X)
    ours, theirs = both(
        model(kernels="precomputed", normalize="multiplicative"), C_AND_P, K, Y, cv=3, scoring="roc_auc"
    )
    assert_equal(ours, theirs)
    plain = MKLSearchCV(model(normalize="multiplicative"), C_AND_P, cv=3, scoring="roc_auc").fit(X, Y)
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])


# -- several classes -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_several_classes(shared):
    A, y = three_classes()
    ours, theirs = both(
        model(shared_weights=shared),
        C_AND_P,
        A,
        y,
        cv=3,
        scoring="balanced_accuracy",
        return_train_score=True,
    )
    assert_equal(ours, theirs)
    assert ours.predict(A[:5]).dtype.kind == "U"


def test_shared_weights_as_a_searched_parameter():
    A, y = three_classes()
    assert_equal(
        *both(
            model(),
            {"shared_weights": [True, False], "C": [0.1, 1.0]},
            A,
            y,
            cv=3,
            scoring=mean_of_first_class,
        ),
        atol=3e-3,
    )


def mean_of_first_class(estimator, X, y):
    return float(estimator.decision_function(X)[:, 0].mean())


def test_a_fold_without_one_of_the_classes():
    """As scikit-learn has it: the fold learns the classes that are there, and misses the others."""
    A, y = three_classes()
    order = np.argsort(y)
    assert_equal(*both(model(), C_ALONE, A[order], y[order], cv=KFold(3)))


# -- which blocks, which paths ---------------------------------------------------------------------


@pytest.mark.slow
def test_kernels_as_a_searched_parameter(monkeypatch):
    trained = []

    def count(rows, problem, heads, *more):
        trained.append(len(heads))
        return train(rows, problem, heads, *more)

    train = grid_module.train
    monkeypatch.setattr(grid_module, "train", count)
    banks = [BANK, kernels.rbf([0.01, 0.1, 1.0]), [kernels.Linear()]]
    ours, theirs = both(model(), {"kernels": banks, **C_AND_P}, X, Y, cv=3, scoring="roc_auc")
    assert_equal(ours, theirs)
    assert trained == [9, 9, 9]  # per bank three folds and three p; the values of C are a path


def test_which_settings_share_blocks():
    settings = [
        {"C": 1, "p": 1},
        {"C": 2.0, "p": 4},
        {"C": 1, "normalize": "trace"},
        {"C": np.int64(3), "p": 1},
        {"kernels": [*BANK]},
    ]
    assert blocks_of(model(), settings) == [[0, 3], [1], [2], [4]]
    again = [
        {"kernels": [kernels.RBF(gamma=1.0)]},
        {"kernels": [kernels.RBF(gamma=1.0)], "C": 3.0},
        {"kernels": [kernels.RBF(gamma=2.0)]},
    ]
    assert blocks_of(model(), again) == [[0, 1], [2]]


def test_paths_over_C_ascend():
    settings = [{"C": 10.0, "p": 1}, {"C": 0.1, "p": 1}, {"C": 1.0, "p": 2}, {"p": 1}]
    assert paths_of(settings, [0, 1, 2, 3], 1.0) == [[1, 3, 0], [2]]


def test_wide_norms_get_precise_statistics(monkeypatch):
    """p > 2 is trained as an estimator with this p would be, whatever the p of the estimator that is searched
    over.
    """
    dtypes = {}

    def note(rows, problem, heads, *more):
        dtypes.update({head.norm.p: problem.dtype for head in heads})
        return train(rows, problem, heads, *more)

    train = grid_module.train
    monkeypatch.setattr(grid_module, "train", note)
    monkeypatch.setattr(description, "SMALL_PROBLEM", 0)
    MKLSearchCV(model(tol=1e-3), {"p": [4.0, 4 / 3]}, cv=3, refit=False).fit(X, Y)
    assert dtypes == {4.0: np.float64, 4 / 3: np.float32}


# -- as an estimator -------------------------------------------------------------------------------


def test_parameters():
    search = MKLSearchCV(model(), C_ALONE, cv=3, scoring="roc_auc")
    other = clone(search).set_params(cv=4, estimator__p=2.0)
    assert other.get_params()["cv"] == 4 and other.estimator.p == 2.0 and search.estimator.p == 4 / 3
    assert "MKLSearchCV" in repr(search)
    fitted = other.fit(X, Y)
    assert fitted is other and fitted.n_splits_ == 4 and fitted.best_estimator_.p == 2.0
    assert fitted.best_estimator_ is not fitted.estimator and not hasattr(fitted.estimator, "dual_coef_")
    assert len(fitted.cv_results_["params"]) == 2 and set(pd.DataFrame(fitted.cv_results_)) == set(
        fitted.cv_results_
    )


def test_inside_another_cross_validation():
    from sklearn.model_selection import cross_val_score

    scores = cross_val_score(MKLSearchCV(model(tol=1e-3), C_ALONE, cv=3), X, Y, cv=3)
    assert scores.shape == (3,) and np.isfinite(scores).all()


def test_on_ray(ray_cluster):
    place = RayParams(num_shards=2)
    ours = MKLSearchCV(
        model(engine="ray", ray_params=place), C_AND_P, cv=3, scoring="roc_auc", refit=False
    ).fit(X, Y)
    local = MKLSearchCV(model(), C_AND_P, cv=3, scoring="roc_auc", refit=False).fit(X, Y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], local.cv_results_["mean_test_score"], atol=1e-9
    )
