"""Normalisation factors and gates against the formulas in words."""

import numpy as np
import pytest

from raymkl.kernels import RBF, Custom, Linear, Polynomial
from raymkl.kernels.normalize import KINDS, gate_of_diagonal, scales, spherical_gate, tail_of

X = np.random.default_rng(6).normal(size=(15, 3))
KERNELS = [RBF(0.5), Linear(), Polynomial(2, 0.5, 1.0), 1e-6 * RBF(2.0), 1e6 * Linear()]
MATRICES = [kernel(X) for kernel in KERNELS]


def factors(kind, matrices):
    return scales(
        kind,
        np.array([np.trace(K) for K in matrices]),
        np.array([K.sum() for K in matrices]),
        len(matrices[0]),
    )


def test_multiplicative():
    """The variance in feature space, mean |phi(x) - mean phi|^2, becomes one."""
    for K, factor in zip(MATRICES, factors("multiplicative", MATRICES), strict=True):
        centring = np.eye(15) - np.ones((15, 15)) / 15
        assert factor == pytest.approx(15 / np.trace(centring @ K @ centring), rel=1e-9)
        normal = factor * K
        assert np.mean(np.diagonal(normal)) - np.mean(normal) == pytest.approx(1.0, rel=1e-9)


def test_trace():
    for K, factor in zip(MATRICES, factors("trace", MATRICES), strict=True):
        assert np.trace(factor * K) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("kind", [None, "spherical"])
def test_kinds_without_a_factor(kind):
    np.testing.assert_array_equal(factors(kind, MATRICES), np.ones(len(MATRICES)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("multiplicative",)])
def test_only_multiplicative_needs_the_sum_of_all_entries(kind):
    trace = np.array([np.trace(K) for K in MATRICES])
    np.testing.assert_array_equal(scales(kind, trace, None, 15), factors(kind, MATRICES))


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e12, 1 / 3])
def test_constant_kernels_have_no_variance(size):
    constant = np.full((15, 15), size)
    np.testing.assert_array_equal(factors("multiplicative", [constant, MATRICES[0]]) > 0, [False, True])
    assert factors("trace", [constant])[0] == pytest.approx(1 / (15 * size))


@pytest.mark.parametrize("kind", ["multiplicative", "trace"])
def test_zero_kernels_get_factor_zero(kind):
    with np.errstate(divide="raise", invalid="raise"):
        result = factors(kind, [np.zeros((15, 15)), MATRICES[0]])
    assert result[0] == 0.0 and np.isfinite(result[1]) and result[1] > 0


@pytest.mark.parametrize("kind", ["multiplicative", "trace"])
def test_factors_undo_scaling(kind):
    """k and 1000 k are the same kernel after normalisation."""
    plain, scaled = factors(kind, MATRICES), factors(kind, [1000 * K for K in MATRICES])
    np.testing.assert_allclose(plain, 1000 * scaled, rtol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_spherical_gate(kernel):
    gate = spherical_gate(kernel, X)
    normal = gate[:, None] * kernel(X) * gate[None, :]
    expected = kernel(X) / np.sqrt(np.outer(np.diagonal(kernel(X)), np.diagonal(kernel(X))))
    np.testing.assert_allclose(normal, expected, rtol=1e-10)
    np.testing.assert_allclose(np.diagonal(normal), 1.0, rtol=1e-12)


def test_spherical_gate_is_closed_for_rows_without_length():
    with np.errstate(divide="raise", invalid="raise"):
        gate = spherical_gate(Linear(), np.array([[3.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(gate, [0.2, 0.0])


def test_gate_of_diagonal():
    with np.errstate(divide="raise", invalid="raise"):
        np.testing.assert_array_equal(
            gate_of_diagonal(np.array([4.0, 0.0, -1.0, 0.25])), [0.5, 0.0, 0.0, 2.0]
        )


def test_gate_of_a_kernel_that_a_user_wrote():
    kernel = Custom(lambda A, B: (A @ B.T) ** 2)
    np.testing.assert_allclose(spherical_gate(kernel, X), 1 / (X**2).sum(axis=1))


@pytest.mark.parametrize("n, zeta", [(50, 2), (600, 2), (600, 100), (600, 0)])
def test_tail_of_a_matrix(n, zeta):
    """All eigenvalues of small matrices, the leading ones of larger ones: the same sum; that of equal
    eigenvalues, too.
    """
    X = np.random.default_rng(0).standard_normal((n, 20))
    for matrix in (X @ X.T, np.eye(n), np.exp(-0.01 * ((X[:, None] - X[None]) ** 2).sum(-1))):
        want = np.linalg.eigvalsh(matrix)[: n - zeta].sum()
        assert tail_of(matrix, zeta) == pytest.approx(want, rel=1e-8, abs=1e-9 * np.trace(matrix))
