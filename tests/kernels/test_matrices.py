"""Matrices of several kernels at once are those that each kernel gives by itself."""

import numpy as np

from raymkl import kernels
from raymkl.kernels import write_store
from raymkl.kernels.matrices import kernel_matrices
from raymkl.models.reading import matrices_of, rows_of
from tests.reference import gram, noisy_problem

BANK = [
    *kernels.rbf([0.05, 0.5]),
    kernels.Linear(),
    kernels.RBF(gamma=0.1) * kernels.Linear(),
    kernels.Laplacian(gamma=0.2),
    kernels.RBF(gamma=2.0),
]


def test_matrices_of_some_rows():
    X, _ = noisy_problem()
    rows = np.array([3, 5, 8, 40])
    found = dict(kernel_matrices(BANK, rows_of(X, BANK), rows))
    assert sorted(found) == list(range(len(BANK)))
    for m, kernel in enumerate(BANK):
        np.testing.assert_allclose(found[m], kernel(X[rows]), atol=1e-12)
        np.testing.assert_array_equal(found[m], found[m].T)
        assert found[m].dtype == np.float64


def test_ready_made_matrices_in_memory_and_in_a_store(tmp_path):
    X, _ = noisy_problem()
    K = gram(BANK, X)
    rows = np.array([0, 7, 9])
    picked = [kernels.Precomputed(index=4), kernels.Precomputed(index=1)]
    write_store(tmp_path / "k.store", K)
    stored = kernels.stored(tmp_path / "k.store")
    for bank, order in ((picked, (4, 1)), ([stored[4], stored[1]], (4, 1))):
        found = dict(kernel_matrices(bank, matrices_of(K, bank, square=True), rows))
        for position, m in enumerate(order):
            np.testing.assert_allclose(
                found[position], K[np.ix_(rows, rows)][..., m], rtol=1e-6
            )  # a store keeps float32


def test_strings():
    words = ["ACGTACGT", "ACGGACGT", "TTTTACGT"]
    bank = [kernels.WeightedDegree(2), kernels.WeightedDegree(4), kernels.Spectrum(2)]
    found = dict(kernel_matrices(bank, rows_of(words, bank), np.arange(3)))
    for m, kernel in enumerate(bank):
        np.testing.assert_allclose(found[m], kernel(words))
