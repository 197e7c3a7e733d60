"""k(x, x), and the gates that make kernels spherical."""

import numpy as np
import pytest

from raymkl.kernels import RBF, Linear, Polynomial
from raymkl.kernels.pairs.families import NO_GATE
from raymkl.models.description.diagonals import diagonals, largest_diagonal, row_gates, spherical_gates

BANK = [Linear(), RBF(gamma=0.5), Polynomial(degree=2, coef0=1.0), Linear() * RBF(gamma=0.1)]
X = np.random.default_rng(0).normal(size=(12, 3))
ROWS = {None: X}


def test_diagonals_are_those_of_the_matrices():
    for kernel, diagonal in zip(BANK, diagonals(BANK, ROWS), strict=True):
        np.testing.assert_allclose(diagonal, np.diagonal(kernel(X)), rtol=1e-12)
        assert largest_diagonal(kernel, ROWS) == pytest.approx(np.diagonal(kernel(X)).max())


def test_gates_make_kernels_spherical():
    gates, gate_of_kernel = spherical_gates(BANK, ROWS)
    assert gate_of_kernel == [0, NO_GATE, 1, 2] and gates.shape == (12, 3)
    for kernel, gate in zip(BANK, gate_of_kernel, strict=True):
        g = np.ones(12) if gate == NO_GATE else gates[:, gate]
        np.testing.assert_allclose(np.diagonal(g[:, None] * kernel(X) * g), 1.0)


def test_kernels_that_are_spherical_need_no_gates():
    assert spherical_gates([RBF(), RBF(gamma=2.0)], ROWS) == (None, [NO_GATE, NO_GATE])


def test_new_rows_have_a_column_for_every_kernel():
    np.testing.assert_allclose(
        row_gates(BANK[:2], ROWS), np.stack([1 / np.linalg.norm(X, axis=1), np.ones(12)], axis=1)
    )
    assert row_gates([], ROWS) is None
