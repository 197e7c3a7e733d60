"""Localized models and searches over strings alone: no vectors anywhere."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold

import raymkl
from raymkl import ConvexLocalizedMKLClassifier, LocalizedMKLClassifier, MKLClassifier
from raymkl.datasets import make_motif_sequences
from raymkl.kernels import Spectrum, WeightedDegree
from raymkl.search import MKLSearchCV
from tests.reference import gram

BANK = [WeightedDegree(1), WeightedDegree(4), WeightedDegree(3, shift=1), Spectrum(3)]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def problem(n=90, length=24, seed=0):
    return make_motif_sequences(
        n, length, motifs=["GATTACA"], jitter=1, noise=0.2, flip=0.05, random_state=seed
    )


def clusters(kernels=BANK, **more):
    settings = {
        "n_clusters": 2,
        "evenness": 0.7,
        "C": 1.0,
        "tol": 1e-5,
        "n_init": 3,
        "random_state": 0,
        "engine": "local",
        **more,
    }
    return ConvexLocalizedMKLClassifier(kernels=kernels, **settings)


def gates(kernels=BANK, **more):
    settings = {
        "gating": "kernel",
        "C": 1.0,
        "tol": 1e-4,
        "n_init": 1,
        "max_iter": 15,
        "random_state": 0,
        "engine": "local",
        **more,
    }
    return LocalizedMKLClassifier(kernels=kernels, **settings)


def stack(bank, X, Z=None):
    return np.ascontiguousarray(gram(bank, X, Z))


@pytest.mark.parametrize("normalize", [None, "spherical", "multiplicative"])
@pytest.mark.parametrize("evenness", [0.7, "hard"])
def test_clusters_of_strings_are_clusters_of_their_matrices(normalize, evenness):
    """Strings and the same kernels as ready-made matrices give the same clusters and the same model."""
    X, y = problem()
    X, y, Z = X[:60], y[:60], X[60:]
    from_strings = clusters(normalize=normalize, evenness=evenness).fit(X, y)
    K, K_new = stack(BANK, X), stack(BANK, Z, X)
    if normalize == "spherical":
        own, new = (np.stack([kernel.diag(S) for kernel in BANK], axis=1) for S in (X, Z))
        K, K_new = K / np.sqrt(own[:, None] * own[None]), K_new / np.sqrt(new[:, None] * own[None])
        normalize = None
    from_matrices = clusters("precomputed", normalize=normalize, evenness=evenness).fit(K, y)
    assert from_strings.duality_gap_ <= 1e-5
    np.testing.assert_allclose(from_strings.membership(Z), from_matrices.membership(K_new), atol=1e-7)
    np.testing.assert_allclose(from_strings.primal_objective_, from_matrices.primal_objective_, rtol=1e-4)
    f, g = from_strings.decision_function(Z), from_matrices.decision_function(K_new)
    assert np.abs(f - g).max() < 0.01 * g.std()
    parts = from_strings.contributions(Z)
    np.testing.assert_allclose(parts.sum(axis=1) + from_strings.intercept_, f, atol=1e-9)


@pytest.mark.parametrize("gating_kernel", ["uniform", 1, Spectrum(2)], ids=str)
def test_gates_live_in_the_space_of_string_kernels(gating_kernel):
    X, y = problem()
    X, y, Z = X[:60], y[:60], X[60:]
    model = gates(gating_kernel=gating_kernel).fit(X, y)
    eta = model.gates(Z)
    assert eta.shape == (30, len(BANK)) and (eta >= 0).all()
    np.testing.assert_allclose(eta.sum(axis=1), 1.0)
    # The decision is that of an SVM whose kernel is gated, by the definition.
    own = model.gates(X)
    K = np.einsum("im,ijm,jm->ij", eta, stack(BANK, Z, X), own)[:, model.support_]
    np.testing.assert_allclose(
        K @ model.dual_coef_[0] + model.intercept_, model.decision_function(Z), atol=1e-8
    )


def test_gates_of_strings_are_gates_of_their_matrices():
    X, y = problem(60)
    one, other = (
        gates(tol=1e-3, max_iter=5).fit(X, y),
        gates("precomputed", tol=1e-3, max_iter=5).fit(stack(BANK, X), y),
    )
    np.testing.assert_allclose(one.primal_objective_, other.primal_objective_, rtol=1e-2)
    np.testing.assert_allclose(one.gates(X), other.gates(stack(BANK, X)), atol=0.02)


def test_linear_gates_need_vectors():
    X, y = problem(40)
    with pytest.raises(ValueError, match="gating_view"):
        gates(gating="linear").fit(X, y)


@pytest.mark.parametrize("model", [clusters(), gates(max_iter=3)], ids=["clusters", "gates"])
def test_views_files_and_copies(model, tmp_path):
    X, y = problem(60)
    frame = pd.DataFrame({"dna": X, "name": np.arange(60)})
    views = [type(kernel)(**{**kernel.get_params(), "view": "dna"}) for kernel in BANK]
    plain, viewed = clone(model).fit(X, y), clone(model).set_params(kernels=views).fit(frame, y)
    np.testing.assert_array_equal(plain.decision_function(X), viewed.decision_function(frame))
    plain.save(tmp_path / "model")
    np.testing.assert_array_equal(
        raymkl.load(tmp_path / "model").decision_function(X), plain.decision_function(X)
    )
    assert plain.score(X, y) > 0.7


def test_a_search_over_strings_is_scikit_learns_search():
    """Folds as heads over one set of blocks, against models fitted fold by fold."""
    X, y = problem(72)
    model = MKLClassifier(kernels=BANK, normalize="spherical", engine="local", tol=1e-6)
    grid, folds = {"C": [0.1, 1.0], "p": [1.0, 4 / 3, 2.0]}, KFold(3, shuffle=True, random_state=0)
    ours = MKLSearchCV(model, grid, cv=folds, scoring="roc_auc").fit(X, y)
    theirs = GridSearchCV(model, grid, cv=folds, scoring="roc_auc").fit(np.array(X, object), y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=0.01
    )
    assert ours.best_params_ in [
        params
        for params, score in zip(ours.cv_results_["params"], ours.cv_results_["mean_test_score"], strict=True)
        if score == ours.best_score_
    ]
    assert roc_auc_score(y, ours.decision_function(X)) > 0.8
    assert ours.best_estimator_.kernels_ == BANK


@pytest.mark.parametrize(
    "model", [clusters(tol=1e-3), gates(max_iter=2, tol=1e-2)], ids=["clusters", "gates"]
)
def test_a_search_over_localized_models(model):
    X, y = problem(45)
    folds = [(np.arange(30), np.arange(30, 45))]
    found = MKLSearchCV(model, {"C": [0.1, 1.0]}, cv=folds, scoring="roc_auc").fit(X, y)
    for params, score in zip(found.cv_results_["params"], found.cv_results_["mean_test_score"], strict=True):
        alone = clone(model).set_params(**params).fit(X[:30], y[:30])
        assert score == pytest.approx(roc_auc_score(y[30:], alone.decision_function(X[30:])), abs=1e-9)


def test_a_search_may_change_the_string_kernels_themselves():
    X, y = problem(60)
    banks = [[WeightedDegree(2), Spectrum(2)], [WeightedDegree(6), Spectrum(4)]]
    found = MKLSearchCV(
        MKLClassifier(normalize="spherical", engine="local"), {"kernels": banks, "C": [0.5]}, cv=3
    ).fit(X, y)
    assert (
        len(found.cv_results_["mean_test_score"]) == 2
        and np.isfinite(found.cv_results_["mean_test_score"]).all()
    )
    assert found.best_estimator_.kernels_ in banks
