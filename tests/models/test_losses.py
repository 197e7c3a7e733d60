"""Every loss in its estimators: certificates recomputed from matrices, scikit-learn's counterparts, weights,
shards, errors.
"""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import KernelCenterer, StandardScaler
from sklearn.svm import SVC

from raymkl import (
    ConvexLocalizedMKLClassifier,
    ConvexLocalizedMKLRegressor,
    LocalizedMKLClassifier,
    MKLClassifier,
    MKLOneClass,
    MKLRegressor,
    RayParams,
    kernels,
    load,
)
from raymkl.search import MKLSearchCV
from tests.checks import fails
from tests.optim.losses.reference import DELTA, EPSILON, EVERY, MARGIN, NU, NUMBERS, QUANTILE, true_values
from tests.reference import gram, noisy_problem

N = 150
X, LABELS = noisy_problem(N, seed=8)
NEW, _ = noisy_problem(60, seed=9)
TARGET = X[:, 0] * X[:, 1] + 0.3 * np.random.default_rng(3).standard_t(3, N) + 5.0
BANK = [*kernels.rbf([0.03, 0.3]), kernels.Polynomial(degree=2, coef0=1.0), kernels.Laplacian(gamma=0.2)]
every = pytest.mark.parametrize(("kind", "name"), EVERY)


def model(kind, name, **more):
    more = {"kernels": BANK, "engine": "local", "tol": 1e-4, **more}
    if kind == "one class":
        more.pop("C", None)
        return MKLOneClass(nu=NU, **more)
    if kind == "classifier":
        return MKLClassifier(loss=name, **more)
    return MKLRegressor(loss=name, epsilon=EPSILON, delta=DELTA, quantile=QUANTILE, **more)


def answers(kind):
    return {"classifier": LABELS.astype(float), "regressor": TARGET, "one class": np.ones(N)}[kind]


def values(fitted, rows):
    return fitted.predict(rows) if isinstance(fitted, MKLRegressor) else fitted.decision_function(rows)


@every
@pytest.mark.parametrize("p", [1.0, 1.1, 2.0, 5.0])
@pytest.mark.parametrize("C", [0.03, 20.0])
def test_reported_certificates_are_true(kind, name, p, C):
    y, weights = answers(kind), np.random.default_rng(1).uniform(0, 2, N) * (np.arange(N) % 7 != 0)
    fitted = model(kind, name, p=p, C=C).fit(X, y, sample_weight=weights)
    primal, dual, breach = true_values(
        name, fitted, gram(BANK, X), y, weights if kind == "one class" else C * weights, p
    )
    assert fitted.converged_ and breach < 1e-8 * max(C, 1)
    assert fitted.primal_objective_ == pytest.approx(
        primal, rel=1e-5
    ) and fitted.dual_objective_ == pytest.approx(dual, rel=1e-5)
    assert primal - dual <= 1.1e-4 * abs(primal)


@every
@pytest.mark.parametrize("p", [4 / 3, 3.0])
def test_certificates_of_working_sets_that_are_not_all_rows(kind, name, p):
    """More rows than a working set, light statistics in float32, and rounds that end with a proof."""
    rows, signs = noisy_problem(1900, seed=2)
    y = {
        "classifier": signs.astype(float),
        "regressor": rows[:, 0] * rows[:, 1],
        "one class": np.ones(len(rows)),
    }[kind]
    bank = kernels.rbf([0.02, 0.2])
    fitted = model(kind, name, kernels=bank, p=p, tol=1e-3, dtype="float32").fit(rows, y)
    primal, dual, breach = true_values(name, fitted, gram(bank, rows), y, np.ones(len(rows)), p)
    assert fitted.converged_ and breach < 1e-7
    assert fitted.primal_objective_ == pytest.approx(
        primal, rel=1e-4
    ) and fitted.dual_objective_ == pytest.approx(dual, rel=1e-4)
    assert primal - dual <= 1.1e-3 * abs(primal)


@every
def test_wrapper_cutting_planes_and_shards_find_the_same_model(kind, name):
    y = answers(kind)
    base = values(model(kind, name, p=1.2, tol=1e-6).fit(X, y), NEW)
    for more in (
        {"solver": "wrapper"},
        {"theta_step": "cutting_plane"},
        {"ray_params": RayParams(num_shards=3)},
        {"theta_step": "analytic"},
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            other = values(model(kind, name, p=1.2, tol=1e-6, **more).fit(X, y), NEW)
        np.testing.assert_allclose(other, base, atol=0.01 * np.std(base) + 1e-9)


@every
def test_weights_are_repeated_and_removed_rows(kind, name):
    y, w = answers(kind), np.ones(N)
    w[:30], w[30:60] = 0.0, 2.0
    rows = np.concatenate([np.arange(30, N), np.arange(30, 60)])
    weighted = values(model(kind, name, tol=1e-7).fit(X, y, sample_weight=w), NEW)
    repeated = values(model(kind, name, tol=1e-7).fit(X[rows], y[rows]), NEW)
    np.testing.assert_allclose(weighted, repeated, atol=1e-3 * np.std(repeated))


@every
def test_warm_starts_pickles_and_files(kind, name, tmp_path):
    y = answers(kind)
    cold = model(kind, name, tol=1e-6).fit(X, y)
    warm = model(kind, name, tol=1e-6, warm_start=True).fit(X, y)
    warm.set_params(**({"nu": 0.6} if kind == "one class" else {"C": 4.0})).fit(X, y)
    warm.set_params(**({"nu": NU} if kind == "one class" else {"C": 1.0})).fit(X, y)
    np.testing.assert_allclose(values(warm, NEW), values(cold, NEW), atol=1e-3 * np.std(values(cold, NEW)))
    cold.save(tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(cold))):
        np.testing.assert_array_equal(values(again, NEW), values(cold, NEW))
        assert str(again.get_params()) == str(cold.get_params())


def test_one_kernel_is_scikit_learn():
    one, C = kernels.RBF(gamma=0.1), 0.5
    G, beyond = one(X), one(NEW, X)
    fit = lambda kind, name: values(
        model(kind, name, kernels=[one], C=C, tol=1e-8).fit(X, answers(kind)), NEW
    )
    hard = SVC(kernel="precomputed", C=1e8, tol=1e-9).fit(G + np.eye(N) / C, LABELS)
    np.testing.assert_allclose(fit("classifier", "squared_hinge"), hard.decision_function(beyond), atol=1e-4)
    eigenvalues, vectors = np.linalg.eigh(G)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0))
    logistic = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(root, LABELS)
    features = beyond @ vectors / np.sqrt(np.maximum(eigenvalues, 1e-12))
    np.testing.assert_allclose(fit("classifier", "logistic"), logistic.decision_function(features), atol=1e-4)
    center = KernelCenterer().fit(G)
    ridge = KernelRidge(alpha=1 / C, kernel="precomputed").fit(center.transform(G), TARGET - TARGET.mean())
    np.testing.assert_allclose(
        fit("regressor", "squared"), ridge.predict(center.transform(beyond)) + TARGET.mean(), atol=1e-6
    )


def test_limits_of_losses():
    """Huber with a large delta is the squared loss, a squared tube without width, too; quantile 1/2 is half
    of a tube without width.
    """
    fit = lambda **more: (
        MKLRegressor(kernels=BANK, engine="local", tol=1e-7, **{"C": 1.0, **more}).fit(X, TARGET).predict(NEW)
    )
    squared = fit(loss="squared")
    np.testing.assert_allclose(fit(loss="huber", delta=1e3), squared, atol=1e-4)
    np.testing.assert_allclose(fit(loss="squared_epsilon_insensitive", epsilon=0.0), squared, atol=1e-4)
    median = fit(loss="epsilon_insensitive", epsilon=0.0, C=0.5)
    np.testing.assert_allclose(fit(loss="quantile", quantile=0.5), median, atol=2e-3)


def test_probabilities():
    rows, y = load_wine(return_X_y=True)
    rows, y = StandardScaler().fit_transform(rows), np.array(["red", "white", "rose"])[y]
    many = MKLClassifier(kernels=kernels.rbf([0.01, 0.1]), loss="logistic", engine="local").fit(rows, y)
    P, f = many.predict_proba(rows), many.decision_function(rows)
    one_vs_rest = 1 / (1 + np.exp(-f))
    np.testing.assert_allclose(P, one_vs_rest / one_vs_rest.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(np.exp(many.predict_log_proba(rows)), P)
    assert np.array_equal(many.classes_[P.argmax(axis=1)], many.predict(rows))
    two = MKLClassifier(kernels=BANK, loss="logistic", engine="local", tol=1e-6).fit(X, LABELS)
    P = two.predict_proba(X)
    np.testing.assert_allclose(np.log(P[:, 1] / P[:, 0]), two.decision_function(X), atol=1e-9)
    assert P[:, 1].mean() == pytest.approx(np.mean(LABELS == 1), abs=1e-5)  # the intercept sees to it
    for other in MARGIN:
        assert hasattr(MKLClassifier(loss=other), "predict_proba") == (other == "logistic")


def test_probabilities_of_rows_far_from_all_classes():
    from raymkl.models.classifier import probabilities_of

    P = probabilities_of(np.array([[-800.0, -801.0, -900.0], [700.0, 700.0, -5.0]]))
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    assert P[0, 0] == pytest.approx(1 / (1 + np.exp(-1.0))) and P[1, 0] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("loss", MARGIN)
def test_localized_models_and_shared_weights(loss):
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    for estimator in (
        MKLClassifier(shared_weights=True),
        ConvexLocalizedMKLClassifier(n_clusters=2, random_state=0),
        LocalizedMKLClassifier(n_init=1, random_state=0, max_iter=20),
    ):
        fitted = estimator.set_params(kernels=kernels.rbf([0.03, 0.3]), loss=loss, engine="local")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a few steps of the gates are enough here
            fitted.fit(X, classes)
        assert fitted.score(X, classes) > 0.8
        assert hasattr(fitted, "predict_proba") == (loss == "logistic")
        if not isinstance(fitted, LocalizedMKLClassifier):
            assert fitted.converged_


@pytest.mark.parametrize("loss", NUMBERS)
def test_localized_regression(loss):
    fitted = ConvexLocalizedMKLRegressor(
        kernels=kernels.rbf([0.03, 0.3]), n_clusters=2, loss=loss, random_state=0, engine="local"
    )
    fitted.fit(X, TARGET)
    assert fitted.converged_ and np.all(np.isfinite(fitted.predict(NEW)))


def test_quantiles_leave_their_part_of_the_rows_below():
    rows, y = load_diabetes(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    for q in (0.2, 0.75):
        f = (
            MKLRegressor(
                kernels=kernels.rbf([0.01, 0.05]),
                loss="quantile",
                quantile=q,
                C=1.0,
                tol=1e-6,
                engine="local",
            )
            .fit(rows, y)
            .predict(rows)
        )
        assert np.mean(y < f - 1e-3) <= q <= np.mean(y <= f + 1e-3)


@pytest.mark.parametrize("kind", ["classifier", "regressor", "one class"])
def test_searches_score_as_scikit_learn_does(kind):
    estimator, grid, scoring = {
        "classifier": (
            model("classifier", "hinge", tol=1e-6),
            {"loss": ["squared", "logistic"], "C": [0.1, 1.0]},
            "roc_auc",
        ),
        "regressor": (
            model("regressor", "squared", tol=1e-6),
            {"loss": ["quantile", "huber"], "C": [0.1, 1.0], "delta": [0.5]},
            None,
        ),
        "one class": (model("one class", "", tol=1e-6), {"nu": [0.1, 0.4]}, "roc_auc"),
    }[kind]
    y = LABELS if kind == "one class" else answers(kind)
    ours = MKLSearchCV(estimator, grid, cv=KFold(3), scoring=scoring).fit(X, y)
    plain = GridSearchCV(estimator, grid, cv=KFold(3), scoring=scoring).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"], atol=2e-3
    )
    assert ours.best_params_ == plain.best_params_


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (MKLClassifier(loss="huber"), ["loss", "huber", "squared_hinge", "classifier"]),
        (MKLClassifier(loss=None), ["loss", "None", "hinge"]),
        (MKLRegressor(loss="logistic"), ["loss", "logistic", "quantile", "regressor"]),
        (MKLRegressor(loss="magic"), ["loss", "magic", "huber"]),
        (MKLRegressor(delta=0.0), ["delta", "0"]),
        (MKLRegressor(quantile=0.0), ["quantile", "(0, 1)"]),
        (MKLRegressor(quantile=True), ["quantile", "True"]),
        (MKLRegressor(epsilon=-1.0), ["epsilon", "-1"]),
        (MKLOneClass(nu=0.0), ["nu", "(0, 1]"]),
        (MKLOneClass(nu=float("nan")), ["nu", "nan"]),
        (MKLOneClass(nu="few"), ["nu", "few"]),
        (ConvexLocalizedMKLClassifier(loss="quantile"), ["loss", "quantile"]),
        (LocalizedMKLClassifier(loss="quantile"), ["loss", "quantile"]),
    ],
    ids=str,
)
def test_bad_values(estimator, words):
    fails(words, lambda: estimator.set_params(engine="local").fit(X, LABELS))


def test_novelty():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    fitted = MKLOneClass(kernels=kernels.rbf([0.1, 0.5]), nu=0.2, tol=1e-6, engine="local").fit(rows)
    f = fitted.decision_function(rows)
    assert np.mean(f < -1e-6) <= 0.2 <= len(fitted.support_) / 300
    assert set(fitted.predict(rows + 10)) == {-1} and fitted.fit_predict(rows).mean() > 0.3
    np.testing.assert_allclose(fitted.score_samples(rows) - fitted.offset_, f)
    assert not hasattr(fitted, "score") and not hasattr(fitted, "predict_proba")
    assert fitted.dual_coef_.sum() == pytest.approx(0.2 * 300)
    everyone = MKLOneClass(kernels=kernels.rbf([0.1]), nu=1.0, engine="local").fit(rows)
    assert (
        len(everyone.support_) == 300
        and everyone.converged_
        and everyone.decision_function(rows).max() <= 1e-9
    )
    fails(
        ["weight"],
        lambda: MKLOneClass(kernels=BANK[:1], engine="local").fit(rows, sample_weight=np.zeros(300)),
    )


def test_contributions_of_one_class_add_up():
    fitted = model("one class", "").fit(X)
    np.testing.assert_allclose(fitted.contributions(NEW).sum(axis=1), fitted.score_samples(NEW))
