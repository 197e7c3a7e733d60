"""Contributions of kernels: they are what the formula says, and they add up to the decision."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from raymkl import MKLClassifier, kernels, load
from raymkl.models import expansion
from tests.reference import gram, noisy_problem, normalised

BANK = [
    *kernels.rbf([0.05, 0.5]),
    kernels.Linear(),
    kernels.Polynomial(degree=2, coef0=1.0),
    kernels.Linear() * kernels.RBF(gamma=0.1),
]


def fitted(bank=None, y=None, **params):
    X, labels = noisy_problem()
    return MKLClassifier(kernels=BANK if bank is None else bank, engine="local", **params).fit(
        X, labels if y is None else y
    ), X


def three_classes():
    X, y = load_iris(return_X_y=True)
    return X[::2], np.array(["setosa", "versicolor", "virginica"])[y[::2]]


@pytest.mark.parametrize("normalize", [None, "multiplicative", "trace", "spherical"])
def test_naive_sum_over_support_vectors(normalize):
    model, X = fitted(normalize=normalize)
    Z = np.random.default_rng(5).normal(size=(9, X.shape[1]))
    K, K_test = gram(BANK, X), gram(BANK, Z, X)
    if normalize is not None:
        diagonal = np.stack([kernel.diag(Z) for kernel in BANK], axis=1)
        K_test = normalised(normalize, K, K_test, diagonal)[1]
    expected = np.zeros((9, len(BANK)))
    for i in range(9):
        for m in range(len(BANK)):
            for a, j in zip(model.dual_coef_[0], model.support_, strict=True):
                expected[i, m] += model.kernel_weights_[m] * a * K_test[i, j, m]
    np.testing.assert_allclose(model.contributions(Z), expected, atol=1e-8)
    np.testing.assert_allclose(
        expected.sum(axis=1) + model.intercept_[0], model.decision_function(Z), atol=1e-8
    )


@pytest.mark.parametrize("normalize", [None, "spherical"])
def test_several_classes(normalize):
    X, y = three_classes()
    model = MKLClassifier(kernels=BANK, engine="local", normalize=normalize).fit(X, y)
    parts = model.contributions(X[:7])
    assert parts.shape == (7, 3, len(BANK))
    np.testing.assert_allclose(
        parts.sum(axis=2) + model.intercept_, model.decision_function(X[:7]), atol=1e-8
    )
    for h, label in enumerate(model.classes_):
        alone = MKLClassifier(kernels=BANK, engine="local", normalize=normalize, tol=1e-6).fit(X, y == label)
        np.testing.assert_allclose(alone.contributions(X[:7]).sum(axis=1), parts[:, h].sum(axis=1), atol=0.02)


def test_precomputed_kernels():
    model, X = fitted()
    K = gram(BANK, X)
    matrices = MKLClassifier(kernels="precomputed", engine="local").fit(K, noisy_problem()[1])
    np.testing.assert_allclose(matrices.contributions(K[:6]), model.contributions(X[:6]), atol=1e-4)
    np.testing.assert_allclose(
        matrices.contributions(K[:6, matrices.support_]), matrices.contributions(K[:6]), atol=1e-12
    )
    np.testing.assert_allclose(
        matrices.contributions(K).sum(axis=1) + matrices.intercept_[0],
        matrices.decision_function(K),
        atol=1e-10,
    )


def test_matrices_beside_features():
    X, y = noisy_problem()
    views = {"x": X, "matrix": gram(BANK[:2], X)}
    bank = [
        kernels.Precomputed(view="matrix", index=0),
        kernels.RBF(gamma=0.5, view="x"),
        kernels.Precomputed(view="matrix", index=1),
    ]
    model = MKLClassifier(kernels=bank, engine="local", p=2).fit(views, y)
    parts = model.contributions(views)
    np.testing.assert_allclose(
        parts[:, 1], parts[:, 2], atol=1e-8
    )  # the same kernel, once as a formula and once as a matrix
    np.testing.assert_allclose(
        parts.sum(axis=1) + model.intercept_[0], model.decision_function(views), atol=1e-10
    )


def test_containers_give_the_same():
    X, y = noisy_problem()
    names = [f"x{k}" for k in range(X.shape[1])]
    forms = {
        "array": X,
        "frame": pd.DataFrame(X, columns=names),
        "table": pa.table({name: X[:, k] for k, name in enumerate(names)}),
        "sparse": sp.csr_matrix(X),
        "dict": {"only": X},
    }
    found = {
        name: MKLClassifier(kernels=BANK[:4], engine="local", tol=1e-6).fit(form, y).contributions(form)
        for name, form in forms.items()
    }
    for name, parts in found.items():
        np.testing.assert_allclose(parts, found["array"], atol=1e-5, err_msg=name)


@pytest.mark.parametrize("normalize", [None, "spherical", "multiplicative"])
def test_saved_models_explain_the_same_bits(tmp_path, normalize):
    X, y = three_classes()
    model = MKLClassifier(kernels=BANK, engine="local", normalize=normalize).fit(X, y)
    model.save(tmp_path / "m.raymkl")
    np.testing.assert_array_equal(load(tmp_path / "m.raymkl").contributions(X), model.contributions(X))


def test_kernels_without_weight_bring_nothing():
    X, y = noisy_problem()
    bank = [kernels.RBF(gamma=0.3), kernels.RBF(gamma=1e-9)]
    model = MKLClassifier(kernels=bank, p=1, theta_step="cutting_plane", engine="local").fit(X, y)
    assert model.kernel_weights_[1] < 1e-6
    assert np.abs(model.contributions(X)[:, 1]).max() < 1e-5


def test_small_blocks_change_nothing(monkeypatch):
    model, X = fitted(normalize="spherical")
    whole = model.contributions(X)
    monkeypatch.setattr(expansion, "BLOCK_BYTES", 8 * len(model.support_) * 7)  # blocks of seven rows
    np.testing.assert_allclose(model.contributions(X), whole, atol=1e-12)


def test_memory_is_bounded_by_blocks(monkeypatch):
    seen = []
    model, X = fitted()
    real = type(BANK[0]).profile
    monkeypatch.setattr(type(BANK[0]), "profile", lambda self, t: seen.append(t.shape[0]) or real(self, t))
    monkeypatch.setattr(expansion, "BLOCK_BYTES", 8 * len(model.support_) * 10)
    model.contributions(np.tile(X, (5, 1)))
    assert seen and max(seen) <= 10


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), p=st.sampled_from([1.0, 4 / 3, 2.0, 4.0]), n=st.integers(1, 12))
def test_sum_is_the_decision(seed, p, n):
    X, y = noisy_problem(n=30, seed=seed)
    model = MKLClassifier(kernels=BANK[:4], p=p, engine="local", normalize="spherical").fit(X, y)
    Z = np.random.default_rng(seed).normal(size=(n, X.shape[1]))
    np.testing.assert_allclose(
        model.contributions(Z).sum(axis=1), model.decision_function(Z) - model.intercept_[0], atol=1e-9
    )


def test_errors():
    model, X = fitted()
    with pytest.raises(NotFittedError):
        MKLClassifier().contributions(X)
    with pytest.raises(ValueError, match="features"):
        model.contributions(X[:, :3])
