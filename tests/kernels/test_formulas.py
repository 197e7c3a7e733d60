"""Every kernel against obvious code: scikit-learn's pairwise kernels, or a double loop."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import pairwise

from raymkl.kernels import (
    RBF,
    Chi2,
    Custom,
    HistogramIntersection,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    rbf,
)

rng = np.random.default_rng(2)
SIGNED = (
    rng.normal(size=(12, 5)) * (rng.uniform(size=(12, 5)) > 0.3),
    rng.normal(size=(7, 5)) * (rng.uniform(size=(7, 5)) > 0.3),
)
HISTOGRAMS = np.abs(SIGNED[0]), np.abs(SIGNED[1])


def intersection(X, Z):
    return np.array([[sum(min(p, q) for p, q in zip(x, z, strict=True)) for z in Z] for x in X])


CASES = {
    "linear": (Linear(), pairwise.linear_kernel, SIGNED),
    "polynomial": (
        Polynomial(3, 0.5, 1.0),
        lambda X, Z: pairwise.polynomial_kernel(X, Z, degree=3, gamma=0.5, coef0=1.0),
        SIGNED,
    ),
    "polynomial default": (Polynomial(), lambda X, Z: (X @ Z.T) ** 3, SIGNED),
    "polynomial even": (Polynomial(2, 2.0, 0.25), lambda X, Z: (2 * X @ Z.T + 0.25) ** 2, SIGNED),
    "polynomial high": (Polynomial(15, 0.1, 1.0), lambda X, Z: (0.1 * X @ Z.T + 1) ** 15, SIGNED),
    "rbf": (RBF(0.3), lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=0.3), SIGNED),
    "rbf narrow": (RBF(50.0), lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=50.0), SIGNED),
    "laplacian": (Laplacian(0.2), lambda X, Z: pairwise.laplacian_kernel(X, Z, gamma=0.2), SIGNED),
    "chi2": (Chi2(0.7), lambda X, Z: pairwise.chi2_kernel(X, Z, gamma=0.7), HISTOGRAMS),
    "intersection": (HistogramIntersection(), intersection, HISTOGRAMS),
    "custom": (Custom(lambda A, B: 2 * np.asarray(A @ B.T)), lambda X, Z: 2 * X @ Z.T, SIGNED),
}
ALL = pytest.mark.parametrize("kernel, reference, data", CASES.values(), ids=CASES.keys())
FORMULAS = {name: case for name, case in CASES.items() if name != "custom"}
SPARSE = pytest.mark.parametrize("kernel, reference, data", FORMULAS.values(), ids=FORMULAS.keys())


@ALL
def test_values(kernel, reference, data):
    X, Z = data
    square, oblong, diagonal = kernel(X), kernel(X, Z), kernel.diag(X)
    assert square.dtype == oblong.dtype == diagonal.dtype == np.float64
    np.testing.assert_allclose(square, reference(X, X), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(oblong, reference(X, Z), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(kernel(X, X), square, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(np.diagonal(square), diagonal)
    np.testing.assert_array_equal(square, square.T)
    np.testing.assert_allclose(kernel(Z, X), oblong.T, rtol=1e-10, atol=1e-10)


@ALL
def test_positive_semi_definite(kernel, reference, data):
    eigenvalues = np.linalg.eigvalsh(kernel(np.vstack([data[0], data[1], data[0][:3]])))
    assert eigenvalues[0] > -1e-8 * eigenvalues[-1]


@ALL
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_other_number_types_are_computed_in_float64(kernel, reference, data, dtype):
    X, Z = ((3 * part).astype(dtype) for part in data)
    result = kernel(X, Z)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, reference(X.astype(float), Z.astype(float)), rtol=1e-10, atol=1e-9)


@SPARSE
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix], ids=["csr", "csc"])
def test_sparse_equals_dense(kernel, reference, data, form):
    X, Z = data
    np.testing.assert_allclose(kernel(form(X)), kernel(X), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(kernel(form(X), form(Z)), kernel(X, Z), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(kernel(form(X), Z), kernel(X, Z), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(kernel.diag(form(X)), kernel.diag(X), rtol=1e-12)


@ALL
def test_powers_are_the_profile(kernel, reference, data):
    """A kernel that calls itself a polynomial of its statistic must be that polynomial."""
    t, powers = np.linspace(-2, 2, 9), kernel.powers()
    if powers is None:
        assert isinstance(kernel, RBF | Laplacian | Chi2)
    else:
        np.testing.assert_allclose(
            np.polynomial.polynomial.polyval(t, powers), kernel.profile(t), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize(
    "kernel", [RBF(0.5), Laplacian(0.5), Linear(), Chi2(0.5), HistogramIntersection()], ids=repr
)
def test_rows_of_different_width_are_an_error(kernel):
    X, Z = HISTOGRAMS
    for left, right in ((X, Z[:, :3]), (X[:, :3], Z)):
        with pytest.raises(ValueError):
            kernel(left, right)


@pytest.mark.parametrize("gamma", [0, -1.0, np.nan, np.inf, "scale", None, [1.0]], ids=str)
@pytest.mark.parametrize("kind", [RBF, Laplacian, Chi2, Polynomial])
def test_bad_gamma(kind, gamma):
    with pytest.raises((ValueError, TypeError), match=f"{kind.__name__}.*gamma"):
        kind(gamma=gamma)
    with pytest.raises((ValueError, TypeError), match="gamma"):
        kind().set_params(gamma=gamma)


@pytest.mark.parametrize("degree", [0, -2, 1.5, "3", np.nan, np.inf, None], ids=str)
def test_bad_degree(degree):
    with pytest.raises((ValueError, TypeError), match="degree"):
        Polynomial(degree=degree)


@pytest.mark.parametrize("coef0", [-1.0, np.nan, np.inf, "1", None], ids=str)
def test_bad_coef0(coef0):
    with pytest.raises((ValueError, TypeError), match="coef0"):
        Polynomial(coef0=coef0)


@pytest.mark.parametrize("kernel", [Chi2(), HistogramIntersection()], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_histogram_kernels_refuse_negative_input(kernel, form):
    good, bad = HISTOGRAMS[0], SIGNED[0]
    for call in (
        lambda: kernel(form(bad)),
        lambda: kernel(form(good), form(bad)),
        lambda: kernel.diag(form(bad)),
    ):
        with pytest.raises(ValueError, match=f"{type(kernel).__name__}.*non-negative.*{bad.min():.6g}"):
            call()


def test_negative_entries_outside_the_view_do_not_matter():
    X = np.column_stack([HISTOGRAMS[0], -np.ones(12)])
    np.testing.assert_allclose(Chi2(view=slice(0, 5))(X), Chi2()(HISTOGRAMS[0]))
    with pytest.raises(ValueError, match="view 'h' of X"):
        HistogramIntersection(view="h")({"h": X, "other": SIGNED[0]})


@pytest.mark.parametrize("function", [None, 3, "rbf"])
def test_custom_needs_a_function(function):
    with pytest.raises(TypeError, match="Custom: function must be callable"):
        Custom(function)


def test_custom_results_are_checked():
    X = SIGNED[0]
    with pytest.raises(ValueError, match=r"shape \(12,\) for blocks of 12 and 12 rows"):
        Custom(lambda A, B: np.ones(len(A)))(X)
    with pytest.raises(ValueError, match="NaN"):
        Custom(lambda A, B: np.full((len(A), len(B)), np.nan))(X)
    with pytest.raises(ValueError, match="infinity"):
        Custom(lambda A, B: np.full((len(A), len(B)), np.inf))(X)


def plain(A, B):
    return A @ B.T


@pytest.mark.parametrize(
    "answer", [lambda A: np.ones(1), lambda A: np.full(len(A), np.nan)], ids=["shape", "nan"]
)
def test_custom_diagonals_are_checked(answer):
    with pytest.raises(ValueError):
        Custom(plain, diag_function=answer).diag(SIGNED[0])


def test_custom_diagonal_function_is_used():
    asked = []
    kernel = Custom(plain, diag_function=lambda A: asked.append(len(A)) or (A**2).sum(axis=1))
    np.testing.assert_allclose(kernel.diag(SIGNED[0]), Custom(plain).diag(SIGNED[0]))
    assert asked == [12]


def test_custom_sees_the_view_in_float64_and_sparse_rows_as_they_are():
    seen = []
    kernel = Custom(
        lambda A, B: seen.append(A) or np.asarray((A @ B.T).todense() if sp.issparse(A) else A @ B.T),
        view=[0, 2],
    )
    kernel(SIGNED[0].astype(np.float32), SIGNED[1].astype(np.float32))
    assert seen[-1].dtype == np.float64 and seen[-1].shape == (12, 2)
    kernel(sp.csr_matrix(SIGNED[0]), sp.csr_matrix(SIGNED[1]))
    assert sp.issparse(seen[-1])


def test_precomputed():
    stack = np.stack([SIGNED[0] @ SIGNED[0].T, np.eye(12)], axis=2)
    np.testing.assert_array_equal(Precomputed(index=1)(stack), np.eye(12))
    np.testing.assert_array_equal(
        Precomputed(view="K")({"K": stack[:, :, 0], "other": SIGNED[0]}), stack[:, :, 0]
    )
    np.testing.assert_array_equal(Precomputed().diag(stack), np.diagonal(stack[:, :, 0]))
    assert Precomputed(index=1)(stack[:4].astype(np.float32)).dtype == np.float64
    with pytest.raises(TypeError, match="without Z"):
        Precomputed()(stack, stack)
    with pytest.raises(ValueError, match=r"square.*\(4, 12\)"):
        Precomputed().diag(stack[:4])


def test_bank_of_widths():
    assert rbf([1, 0.5], view="a") == [RBF(1.0, view="a"), RBF(0.5, view="a")]
