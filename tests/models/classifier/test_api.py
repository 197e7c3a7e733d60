"""What users of scikit-learn expect of a classifier: labels, weights, classes, warm starts, histories,
cloning, searching.
"""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from raymkl import MKLClassifier, RayParams
from raymkl.kernels import RBF, Linear, rbf
from tests.reference import apart, dual_optimum, gram, noisy_problem

BANK = [*rbf([0.02, 0.1, 0.5]), Linear()]
X, Y = noisy_problem(80, seed=7)
X_TEST, Y_TEST = noisy_problem(50, seed=8)
K, K_TEST = gram(BANK, X), gram(BANK, X_TEST, X)
# Two fits of the same problem with different paths agree to about this at tol=1e-6, in standard deviations.
SAME = 5e-3


def classifier(**more):
    return MKLClassifier(**{"kernels": BANK, "engine": "local", "tol": 1e-6, **more})


def three_classes(n=90, seed=0):
    X, _ = noisy_problem(n, seed)
    return X, np.digitize(X[:, 0] + X[:, 1] ** 2, [0.3, 1.5])


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array([False, True]),
        np.array([3, 7]),
        np.array([-1.0, 2.0]),
        np.array(["a", "b"], dtype=object),
    ],
    ids=["str", "bool", "int", "float", "object"],
)
def test_labels_of_any_kind_come_back(labels):
    plain = classifier().fit(X, Y)
    model = classifier().fit(X, labels[(Y > 0).astype(int)])
    np.testing.assert_array_equal(model.classes_, labels)
    assert model.classes_.dtype.kind == labels.dtype.kind
    np.testing.assert_array_equal(model.decision_function(X_TEST), plain.decision_function(X_TEST))
    np.testing.assert_array_equal(model.predict(X_TEST), labels[(plain.predict(X_TEST) > 0).astype(int)])
    assert model.score(X_TEST, labels[(Y_TEST > 0).astype(int)]) == plain.score(X_TEST, Y_TEST)


def test_a_list_of_labels_and_rows_is_accepted():
    model = classifier().fit(X.tolist(), [("no", "yes")[int(v > 0)] for v in Y])
    np.testing.assert_array_equal(
        model.decision_function(X_TEST.tolist()), classifier().fit(X, Y).decision_function(X_TEST)
    )


# -- weights of rows and classes -------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
@pytest.mark.parametrize("normalize", [None, "multiplicative", "trace"])
def test_weight_zero_is_a_removed_row(p, normalize):
    weights = np.where(np.arange(80) % 3 == 0, 0.0, 1.0)
    masked = classifier(p=p, normalize=normalize).fit(X, Y, sample_weight=weights)
    removed = classifier(p=p, normalize=normalize).fit(X[weights > 0], Y[weights > 0])
    assert apart(masked.decision_function(X_TEST), removed.decision_function(X_TEST)) < SAME
    assert not np.isin(masked.support_, np.flatnonzero(weights == 0)).any()


@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
def test_whole_weights_are_repeated_rows(p):
    times = np.random.default_rng(0).integers(0, 4, size=80)
    weighted = classifier(p=p).fit(X, Y, sample_weight=times)
    repeated = classifier(p=p).fit(np.repeat(X, times, axis=0), np.repeat(Y, times))
    assert weighted.dual_objective_ == pytest.approx(repeated.dual_objective_, rel=1e-5)
    assert apart(weighted.decision_function(X_TEST), repeated.decision_function(X_TEST)) < SAME


@pytest.mark.parametrize("class_weight", ["balanced", {-1: 3.0, 1: 0.5}, {1: 2.0}], ids=str)
def test_class_weights_are_sample_weights(class_weight):
    y = np.where(np.arange(80) % 4 == 0, 1, -1)
    own = None if class_weight == "balanced" else np.linspace(0.5, 1.5, 80)
    weights = compute_sample_weight(class_weight, y) * (1.0 if own is None else own)
    both = classifier(class_weight=class_weight).fit(X, y, sample_weight=own)
    product = classifier().fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(both.decision_function(X_TEST), product.decision_function(X_TEST), atol=1e-9)
    plain = classifier().fit(X, y, sample_weight=own)
    assert apart(both.decision_function(X_TEST), plain.decision_function(X_TEST)) > 0.05  # it is not ignored


def test_weights_bound_the_dual_variables():
    weights = np.random.default_rng(1).uniform(0.1, 3.0, 80)
    model = classifier(C=0.7).fit(X, Y, sample_weight=weights)
    assert np.all(np.abs(model.dual_coef_[0]) <= 0.7 * weights[model.support_])
    assert model.dual_objective_ == pytest.approx(dual_optimum(K, Y, 0.7 * weights, model.p), rel=1e-5)


# -- several classes -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [3, 5])
@pytest.mark.parametrize("solver", ["chunking", "wrapper"])
def test_several_classes_one_against_the_rest(n_classes, solver):
    y = np.array(["ant", "bee", "cat", "dog", "eel"])[np.arange(80) % n_classes]
    settings = {"solver": solver, "tol": 1e-6 if solver == "chunking" else 1e-5}
    model = classifier(**settings).fit(X, y)
    assert model.kernel_weights_.shape == (n_classes, len(BANK))
    assert model.dual_coef_.shape == (n_classes, len(model.support_))
    assert model.intercept_.shape == model.duality_gap_.shape == (n_classes,)
    assert model.primal_objective_.shape == model.dual_objective_.shape == (n_classes,)
    assert np.all(model.duality_gap_ <= settings["tol"]) and np.all(model.duality_gap_ >= -1e-9)
    values = model.decision_function(X_TEST)
    assert values.shape == (len(X_TEST), n_classes)
    np.testing.assert_array_equal(model.predict(X_TEST), model.classes_[values.argmax(axis=1)])
    for h, label in enumerate(model.classes_):
        binary = classifier(**settings).fit(X, np.where(y == label, 1, 0))
        assert binary.dual_objective_ == pytest.approx(model.dual_objective_[h], rel=1e-5)
        np.testing.assert_allclose(model.kernel_weights_[h], binary.kernel_weights_, atol=5e-3)
        assert apart(values[:, h], binary.decision_function(X_TEST)) < 2e-2


def test_support_holds_rows_of_any_class_once():
    X, y = three_classes()
    model = classifier().fit(X, y)
    assert np.all(np.diff(model.support_) > 0)
    assert np.all(np.any(model.dual_coef_ != 0, axis=0))


# -- the run ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_working_sets")
@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
def test_warm_start_over_a_path_of_c(p):
    path = [0.1, 0.2, 0.4, 0.8]
    warm, warm_rounds, cold_rounds = classifier(p=p, warm_start=True, tol=1e-5), 0, 0
    for C in path:
        warm.set_params(C=C).fit(X, Y)
        cold = classifier(p=p, C=C, tol=1e-5).fit(X, Y)
        assert apart(warm.decision_function(X_TEST), cold.decision_function(X_TEST)) < 2e-2
        assert warm.duality_gap_ <= 1e-5
        warm_rounds, cold_rounds = warm_rounds + warm.n_iter_, cold_rounds + cold.n_iter_
    assert warm_rounds <= cold_rounds


def test_warm_start_with_other_data_starts_anew():
    warm = classifier(warm_start=True).fit(X, Y)
    warm.fit(X[:60], Y[:60])
    np.testing.assert_array_equal(
        warm.decision_function(X_TEST), classifier().fit(X[:60], Y[:60]).decision_function(X_TEST)
    )


@pytest.mark.usefixtures("small_working_sets")
@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
def test_history_and_its_dual_ascent(p):
    """Chunking with analytic weights raises the dual in every round, up to round-off; what is proved in the
    end is another figure.
    """
    X, y = noisy_problem(1200, seed=2)  # larger than a working set, so that there are rounds
    model = MKLClassifier(kernels=BANK, p=p, tol=1e-4, engine="local").fit(X, y)
    rows = model.history_
    assert {"round", "seconds", "primal", "dual", "gap", "support_vectors"} <= set(rows[0])
    assert len(rows) >= 3
    assert [row["round"] for row in rows] == list(range(1, len(rows) + 1))
    assert model.n_iter_ == len(rows)
    assert np.all(np.diff([row["seconds"] for row in rows]) >= 0)
    duals = np.array([row["dual"] for row in rows if row["precision"] != "proved"])
    assert np.all(np.diff(duals) >= -1e-6 * np.abs(duals).max()) and rows[-1]["dual"] == pytest.approx(
        duals[-1], rel=1e-3
    )
    for row in rows:
        assert row["gap"] == pytest.approx((row["primal"] - row["dual"]) / abs(row["primal"]))
    assert rows[-1]["gap"] == model.duality_gap_
    assert rows[-1]["support_vectors"] == len(model.support_)


@pytest.mark.usefixtures("small_working_sets")
def test_stopping_early_warns_with_the_gap_reached():
    with pytest.warns(ConvergenceWarning) as record:
        model = classifier(max_iter=2, C=100.0).fit(X, Y)
    assert not model.converged_
    assert model.n_iter_ == 2
    assert f"{model.duality_gap_:.3g}" in str(record[0].message)
    assert record[0].filename == __file__  # points at the user's line


def test_converging_warns_about_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier().fit(X, Y).predict(X_TEST)


def test_progress_goes_to_standard_error(capfd):
    classifier(verbose=1).fit(X, Y)
    out, err = capfd.readouterr()
    assert out == ""
    assert "gap" in err
    classifier().fit(X, Y)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("shards", [1, 3])
def test_two_fits_give_equal_bits(shards):
    first, second = (classifier(ray_params=RayParams(num_shards=shards)).fit(X, Y) for _ in range(2))
    for name in ("kernel_weights_", "dual_coef_", "intercept_", "support_"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_array_equal(first.decision_function(X_TEST), second.decision_function(X_TEST))


@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
def test_permuting_kernels_permutes_weights(p):
    order = [2, 0, 3, 1]
    plain, permuted = classifier(p=p).fit(X, Y), classifier(p=p, kernels=[BANK[m] for m in order]).fit(X, Y)
    np.testing.assert_allclose(permuted.kernel_weights_, plain.kernel_weights_[order], rtol=1e-3, atol=1e-4)
    assert apart(permuted.decision_function(X_TEST), plain.decision_function(X_TEST)) < SAME


@pytest.mark.parametrize("p", [1.05, 4 / 3, 3])
def test_permuting_rows_changes_nothing(p):
    order = np.random.default_rng(0).permutation(len(X))
    plain, permuted = classifier(p=p).fit(X, Y), classifier(p=p).fit(X[order], Y[order])
    assert apart(permuted.decision_function(X_TEST), plain.decision_function(X_TEST)) < SAME


# -- scikit-learn's tools --------------------------------------------------------------------------


def test_clone_params_and_pickle():
    model = classifier(C=3.0, ray_params=RayParams(num_shards=2))
    assert clone(model).get_params() == model.get_params()
    assert set(model.get_params()) >= {
        "kernels",
        "C",
        "p",
        "solver",
        "theta_step",
        "normalize",
        "tol",
        "engine",
        "ray_params",
    }
    assert "RBF(gamma=0.02)" in repr(model)
    model.fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X_TEST), model.decision_function(X_TEST))
    assert not hasattr(clone(model), "dual_coef_")


def test_grid_search_over_rows_and_over_matrices_is_the_same():
    """(n, n, M) is cut along both axes by the search because the estimator says it is pairwise."""
    grid = {"C": [0.1, 1.0, 10.0], "p": [1, 4 / 3]}
    rows = GridSearchCV(classifier(tol=1e-4), grid, cv=3).fit(X, Y)
    matrices = GridSearchCV(classifier(kernels="precomputed", tol=1e-4), grid, cv=3).fit(K, Y)
    np.testing.assert_allclose(
        matrices.cv_results_["mean_test_score"], rows.cv_results_["mean_test_score"], atol=0.03
    )
    assert matrices.best_score_ > 0.6
    assert matrices.predict(K_TEST).shape == (len(X_TEST),)


def test_works_in_a_pipeline():
    model = make_pipeline(StandardScaler(), classifier(kernels=[RBF(gamma=0.1)], tol=1e-3)).fit(X, Y)
    assert model.score(X, Y) > 0.7
