"""Facts about matrices equal numpy's, however the work is cut."""

import numpy as np
import pytest

from raymkl.kernels import RBF, Linear, matrix_facts
from tests.reference import gram, noisy_problem

STACK = gram([RBF(gamma=0.1), Linear()], noisy_problem(60, seed=9)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("portion", [1, 3000, 2**22])
def test_quadratic_forms(dtype, portion, monkeypatch):
    monkeypatch.setattr(matrix_facts, "BLOCK_BYTES", portion)
    stack, vectors = STACK.astype(dtype), np.random.default_rng(0).normal(size=(3, 60))
    expected = np.einsum("fi,ijm,fj->fm", vectors, stack.astype(float), vectors)
    np.testing.assert_allclose(matrix_facts.quadratic_forms(stack, vectors, 2), expected, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 17, 256])
@pytest.mark.parametrize("moved", [False, True])
def test_survey(rows, moved, monkeypatch):
    monkeypatch.setattr(matrix_facts, "BLOCK", rows)
    stack, roots = STACK.copy(), np.random.default_rng(1).random((60, 2))
    stack[40, 7, 1] += 3.0
    expected = np.abs(stack), np.abs(stack - stack.swapaxes(0, 1)), np.abs(stack) - roots[:, None] * roots
    given = np.moveaxis(np.ascontiguousarray(np.moveaxis(stack, 2, 0)), 0, 2) if moved else stack
    np.testing.assert_allclose(
        matrix_facts.survey(given, roots, 2), [values.max(axis=(0, 1)) for values in expected], rtol=1e-12
    )
