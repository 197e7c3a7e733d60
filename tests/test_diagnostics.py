"""Diagnostics against naive formulas, written straight from the definitions."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from raymkl import MKLClassifier, diagnostics, kernels
from raymkl.inspection import centred
from raymkl.kernels import write_store
from tests.reference import dual_point, gram, noisy_problem, normalised

BANK = [*kernels.rbf([0.05, 0.5, 5.0]), kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0)]


def naive_alignment(K, L):
    n = len(K)
    H = np.eye(n) - np.ones((n, n)) / n
    K, L = H @ K @ H, H @ L @ H
    return np.trace(K @ L) / np.sqrt(np.trace(K @ K) * np.trace(L @ L))


# -- alignment -------------------------------------------------------------------------------------


def test_alignment_by_definition():
    X, y = noisy_problem()
    K = gram(BANK, X)
    matrix, with_labels = diagnostics.alignment(BANK, X, y)
    for i in range(len(BANK)):
        assert np.isclose(with_labels[i], naive_alignment(K[..., i], np.outer(y, y)))
        for j in range(len(BANK)):
            assert np.isclose(matrix[i, j], naive_alignment(K[..., i], K[..., j]))
    np.testing.assert_array_equal(diagnostics.alignment(BANK, X), matrix)


def test_alignment_with_classes_and_with_numbers():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    same = (y[:, None] == y[None]).astype(float)
    _, found = diagnostics.alignment(BANK, X, names)
    np.testing.assert_allclose(found, [naive_alignment(kernel(X), same) for kernel in BANK])
    _, found = diagnostics.alignment(BANK, X, X[:, 0] + 0.123)
    np.testing.assert_allclose(
        found, [naive_alignment(kernel(X), np.outer(X[:, 0], X[:, 0])) for kernel in BANK]
    )


def test_sources_agree(tmp_path):
    X, y = noisy_problem()
    K = gram(BANK, X)
    expected = diagnostics.alignment(BANK, X)
    write_store(tmp_path / "k.store", K)
    model = MKLClassifier(kernels=BANK, engine="local").fit(X, y)
    matrices = MKLClassifier(kernels="precomputed", engine="local").fit(K, y)
    for name, found in {
        "stack": diagnostics.alignment(K),
        "precomputed": diagnostics.alignment("precomputed", K),
        "store": diagnostics.alignment("precomputed", tmp_path / "k.store"),
        "model": diagnostics.alignment(model, X),
        "model over matrices": diagnostics.alignment(matrices, K),
        "views": diagnostics.alignment(
            [kernels.Precomputed(view="m", index=i) for i in range(len(BANK))], {"m": K}
        ),
    }.items():
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
    support = diagnostics.alignment(model)
    np.testing.assert_allclose(support, diagnostics.alignment(BANK, X[model.support_]), atol=1e-10)
    frame = pd.DataFrame(X)
    np.testing.assert_allclose(diagnostics.alignment(BANK, frame), expected)


def test_spherical_models_are_aligned_as_they_were_learned():
    X, y = noisy_problem()
    model = MKLClassifier(kernels=BANK, engine="local", normalize="spherical").fit(X, y)
    K = normalised("spherical", gram(BANK, X))[0]
    np.testing.assert_allclose(diagnostics.alignment(model, X), diagnostics.alignment(K), atol=1e-10)


def test_rows_are_limited(monkeypatch):
    X, y = noisy_problem(n=300)
    few = diagnostics.alignment(BANK, X, max_rows=100)
    rows = np.unique(np.linspace(0, 299, 100).astype(int))
    np.testing.assert_allclose(few, diagnostics.alignment(BANK, X[rows]))
    once, again, other = (
        diagnostics.alignment(BANK, X, y, max_rows=100, random_state=seed)[0] for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(once, again)
    assert np.abs(once - other).max() > 1e-6
    # With very many kernels the matrices of all rows would not fit the memory that is allowed.
    monkeypatch.setattr(centred, "MATRIX_BYTES", len(BANK) * 4 * 60**2)
    np.testing.assert_allclose(diagnostics.alignment(BANK, X), diagnostics.alignment(BANK, X, max_rows=60))


def test_constant_kernels_align_with_nothing():
    X, _ = noisy_problem()
    matrix = diagnostics.alignment([*BANK[:2], kernels.RBF(gamma=1e-30)], X)
    np.testing.assert_array_equal(matrix[2], [0, 0, 1])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3), shift=st.floats(0, 10))
def test_alignment_properties(seed, scale, shift):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(12, r)) for r in (1, 3, 12)]
    stack = np.stack([part @ part.T for part in parts], axis=-1)
    matrix = diagnostics.alignment(stack)
    assert (
        matrix.min() >= -1e-12 and matrix.max() <= 1 + 1e-12
    )  # never negative for positive semi-definite matrices
    assert np.linalg.eigvalsh(matrix).min() > -1e-10
    np.testing.assert_allclose(
        diagnostics.alignment(scale * stack + shift), matrix, atol=1e-6
    )  # neither scale nor shift matters


# -- redundancy ------------------------------------------------------------------------------------


def test_redundancy_of_copies_and_strangers():
    X, _ = noisy_problem()
    copies = diagnostics.redundancy([kernels.RBF(gamma=0.1)] * 4, X)
    assert np.isclose(copies.effective_number, 1.0, atol=1e-4)
    assert len(copies.pairs) == 6 and np.all(copies.explained > 0.9999)
    # Diagonal blocks of centred orthogonal vectors have nothing in common.
    basis = np.linalg.qr(np.hstack([np.ones((8, 1)), np.random.default_rng(0).normal(size=(8, 3))]))[0][:, 1:]
    strangers = diagnostics.redundancy(np.stack([np.outer(v, v) for v in basis.T], axis=-1))
    assert np.isclose(strangers.effective_number, 3.0) and not strangers.pairs
    np.testing.assert_allclose(strangers.explained, 0.0, atol=1e-6)
    np.testing.assert_allclose(strangers.eigenvalues, 1.0)


def test_explained_share_by_least_squares():
    X, _ = noisy_problem()
    H = np.eye(len(X)) - 1 / len(X)
    flat = np.stack([(H @ kernel(X) @ H).ravel() for kernel in BANK], axis=1)
    found = diagnostics.redundancy(BANK, X)
    for m in range(len(BANK)):
        others = np.delete(flat, m, axis=1)
        rest = flat[:, m] - others @ np.linalg.lstsq(others, flat[:, m], rcond=None)[0]
        assert np.isclose(found.explained[m], 1 - rest @ rest / (flat[:, m] @ flat[:, m]), atol=1e-6)


def test_pairs_are_sorted_and_constant_kernels_are_explained():
    X, _ = noisy_problem()
    found = diagnostics.redundancy(
        [*kernels.rbf([0.1, 0.13, 0.101, 9.0]), kernels.RBF(gamma=1e-30)], X, threshold=0.98
    )
    assert [(i, j) for i, j, _ in found.pairs[:1]] == [(0, 2)]
    assert [value for *_, value in found.pairs] == sorted((value for *_, value in found.pairs), reverse=True)
    assert found.explained[4] == 1.0 and found.eigenvalues[4] == 0.0
    assert 1 < found.effective_number < 3


# -- bound -----------------------------------------------------------------------------------------


def naive_factor(lengths, p):
    """min over a fine grid of t >= p (t* in [1, p*])."""
    lengths = np.asarray(lengths, float)
    star = np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)
    s = np.concatenate([np.geomspace(1.0, min(star, 1e4), 20_000)])
    size = lengths.max() if np.isinf(p) else np.sum(lengths**p) ** (1 / p)
    return (np.sqrt(s) * size * len(lengths) ** (1 / s)).min()


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.floats(0, 10), min_size=1, max_size=40).filter(lambda values: max(values) > 1e-3),
    p=st.one_of(st.floats(1, 20), st.just(np.inf), st.just(1.0)),
)
def test_factor_by_definition(lengths, p):
    found = diagnostics.bound_factor(lengths, p=p)
    assert np.isclose(found.factor[0], naive_factor(lengths, p), rtol=1e-4)
    assert found.best_factor <= found.factor[0] * (1 + 1e-9)
    assert found.near_best[0] <= found.best_p <= found.near_best[1]


def test_minimiser_against_a_fine_grid():
    lengths = 1.0 / np.arange(1, 101)
    found = diagnostics.bound_factor(lengths)
    grid = 1 / np.linspace(1, 0.01, 100_000)
    values = diagnostics.bound_factor(lengths, p=grid).factor
    assert np.isclose(found.best_factor, values.min(), rtol=1e-6)
    assert abs(found.best_p - grid[values.argmin()]) < 1e-3
    assert 1 < found.best_p < 2  # soft sparsity asks for something between sparse and uniform


def test_block_norms_by_definition():
    X, y = noisy_problem()
    K = gram(BANK, X)
    for normalize in (None, "multiplicative", "spherical"):
        model = MKLClassifier(kernels=BANK, engine="local", normalize=normalize).fit(X, y)
        stack = K if normalize is None else normalised(normalize, K)[0]
        a = dual_point(model, len(X))
        expected = [theta * np.sqrt(a @ stack[..., m] @ a) for m, theta in enumerate(model.kernel_weights_)]
        np.testing.assert_allclose(diagnostics.block_norms(model), expected, rtol=1e-6)
    matrices = MKLClassifier(kernels="precomputed", engine="local").fit(K, y)
    plain = MKLClassifier(kernels=BANK, engine="local").fit(X, y)
    np.testing.assert_allclose(
        diagnostics.block_norms(matrices, K), diagnostics.block_norms(plain), rtol=1e-3
    )


def test_bound_of_models():
    X, y = load_iris(return_X_y=True)
    model = MKLClassifier(kernels=BANK, engine="local").fit(X, y)
    found = diagnostics.bound_factor(model, p=[1.0, 1.5, 2.0])
    assert found.factor.shape == (3, 3) and found.best_p.shape == (3,) and found.near_best.shape == (3, 2)
    for h in range(3):
        one = diagnostics.bound_factor(found.lengths[h], p=[1.0, 1.5, 2.0])
        np.testing.assert_allclose(one.factor, found.factor[h])
        assert one.best_p == found.best_p[h]


# -- errors ----------------------------------------------------------------------------------------


def test_errors_name_the_argument():
    X, y = noisy_problem()
    K = gram(BANK, X)
    model = MKLClassifier(kernels=BANK, engine="local").fit(X, y)
    matrices = MKLClassifier(kernels="precomputed", engine="local").fit(K, y)
    for match, call in {
        "X is needed": lambda: diagnostics.alignment(BANK),
        "X is needed: a model": lambda: diagnostics.alignment(matrices),
        "X is needed: a model over": lambda: diagnostics.block_norms(matrices),
        "X has 5 rows": lambda: diagnostics.block_norms(matrices, K[:5]),
        "y needs X": lambda: diagnostics.alignment(model, y=y),
        "different lengths": lambda: diagnostics.alignment(BANK, X, y[:-1]),
        "max_rows": lambda: diagnostics.alignment(BANK, X, max_rows=1),
        "at least 2": lambda: diagnostics.alignment(BANK, X[:1]),
        "threshold": lambda: diagnostics.redundancy(BANK, X, threshold=1.5),
        "X must be left out": lambda: diagnostics.alignment(K, X),
        "got 'magic'": lambda: diagnostics.alignment("magic", X),
        "block norms >= 0": lambda: diagnostics.bound_factor([1.0, -1.0]),
        "p must be": lambda: diagnostics.bound_factor([1.0, 2.0], p=0.5),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="list of kernels"):
        diagnostics.alignment([1, 2], X)
    with pytest.raises(NotFittedError):
        diagnostics.alignment(MKLClassifier(), X)
