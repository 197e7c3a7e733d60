"""Spectra against eigenvalues of matrices that are written out, and alignment without centring."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from raymkl import MKLClassifier, diagnostics, kernels
from raymkl.inspection.spectra import fitted_decay
from tests.checks import fails
from tests.reference import gram, noisy_problem, normalised

BANK = [*kernels.rbf([0.05, 0.5, 5.0]), kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0)]


def eigenvalues(K):
    return np.stack([np.linalg.eigvalsh(K[..., m] / len(K))[::-1] for m in range(K.shape[2])])


def test_eigenvalues_of_all_sources():
    X, y = noisy_problem()
    K = gram(BANK, X)
    found = diagnostics.spectra(BANK, X)
    expected = np.maximum(eigenvalues(K), 0)
    np.testing.assert_allclose(found.eigenvalues, expected, atol=1e-10)
    assert (
        found.eigenvalues.shape == (5, len(X)) and found.decay.shape == (5,) and found.names[3] == "Linear()"
    )
    assert (np.diff(found.eigenvalues, axis=1) <= 0).all() and found.eigenvalues.min() >= 0
    np.testing.assert_allclose(
        found.eigenvalues.sum(axis=1), [np.trace(K[..., m]) / len(X) for m in range(5)]
    )
    np.testing.assert_allclose(diagnostics.spectra(K).eigenvalues, expected, atol=1e-10)
    np.testing.assert_array_equal(diagnostics.spectra(BANK, X, only=[3]).eigenvalues, found.eigenvalues[3:4])
    for normalize in ("multiplicative", "spherical", "trace"):
        model = MKLClassifier(kernels=BANK, engine="local", normalize=normalize).fit(X, y)
        np.testing.assert_allclose(
            diagnostics.spectra(model, X).eigenvalues,
            np.maximum(eigenvalues(normalised(normalize, K)[0]), 0),
            atol=1e-9,
        )


def test_rows_are_limited():
    X, _ = noisy_problem(n=300)
    rows = np.unique(np.linspace(0, 299, 60).astype(int))
    np.testing.assert_allclose(
        diagnostics.spectra(BANK, X, max_rows=60).eigenvalues,
        diagnostics.spectra(BANK, X[rows]).eigenvalues,
        atol=1e-12,
    )


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.5])
def test_decay_of_power_laws(alpha):
    assert np.isclose(fitted_decay(3.0 * np.arange(1, 201.0) ** -alpha), alpha)
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(60, 60)))[0]
    matrix = (basis * np.arange(1, 61.0) ** -alpha) @ basis.T
    assert np.isclose(diagnostics.spectra(matrix[..., None]).decay[0], alpha, rtol=1e-6)


def test_decay_of_short_spectra():
    assert fitted_decay(np.array([2.0, 0.0, 0.0])) == np.inf
    assert fitted_decay(np.zeros(3)) == np.inf
    assert np.isclose(fitted_decay(np.array([1.0, 0.25, 0.0])), 2.0)  # zeros and round-off take no part
    X, _ = noisy_problem()
    narrow, wide = diagnostics.spectra(kernels.rbf([10.0, 0.01]), X).decay
    assert wide > narrow


def test_alignment_without_centring():
    X, y = load_iris(return_X_y=True)
    K = gram(BANK, X)
    flat = K.reshape(-1, len(BANK)) / np.linalg.norm(K.reshape(-1, len(BANK)), axis=0)
    np.testing.assert_allclose(diagnostics.alignment(BANK, X, centred=False), flat.T @ flat, atol=1e-10)
    for labels, target in (
        (y, (y[:, None] == y).astype(float)),
        (np.where(y == 1, "yes", "no"), np.outer(np.where(y == 1, 1, -1), np.where(y == 1, 1, -1))),
        (X[:, 0] + 0.123, np.outer(X[:, 0] + 0.123, X[:, 0] + 0.123)),
    ):
        _, found = diagnostics.alignment(BANK, X, labels, centred=False)
        np.testing.assert_allclose(found, target.ravel() @ flat / np.linalg.norm(target))
    constant = diagnostics.alignment([kernels.RBF(gamma=1e-30), kernels.RBF(gamma=1.0)], X, centred=False)
    assert 0 < constant[0, 1] < 1  # centred, it has nothing in common with any other


def test_errors_name_the_argument():
    X, _ = noisy_problem()
    for words, call in (
        (("centred", "maybe"), lambda: diagnostics.alignment(BANK, X, centred="maybe")),
        (("max_rows", "0"), lambda: diagnostics.spectra(BANK, X, max_rows=0)),
        (("only", "7"), lambda: diagnostics.spectra(BANK, X, only=[7])),
        (("at least 2", "1"), lambda: diagnostics.spectra(BANK, X[:1])),
        (("X is needed",), lambda: diagnostics.spectra(BANK)),
    ):
        fails(words, call)
