"""The rows' weights of BEMKL: solving with a sum of squares S = sum_m K_m K_m' (n, n) and many diagonals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

# (q, sums) -> (a, variance), all (n,): the mean and the variances of N((S + diag q)^-1 sums, (S + diag
# q)^-1), S the sum of squares.
Solver = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def sum_of_squares(matrices: np.ndarray) -> np.ndarray:
    """(n, n) sum_m K_m K_m'."""
    total = np.zeros(matrices.shape[1:])
    for matrix in matrices:
        total += matrix @ matrix.T
    return total


def row_solver(square: np.ndarray) -> Solver:
    """The way to solve with a sum of squares (n, n) and many diagonals: the cheapest that round-off allows.

    A sum of squares that is singular to working precision has no Cholesky factor when the diagonal is small
    beside it; of its own factor (n, r) the eigenvalues that are round-off are left out, which makes the
    sweeps as cheap as the rank r is low.
    """
    values, vectors = np.linalg.eigh(square)
    n, noise = len(values), np.finfo(float).eps * max(values[-1], 0.0)
    kept = values > noise
    if values[0] > n * noise:
        return partial(solve_full, square)
    factor = vectors[:, kept], np.sqrt(values[kept])
    return (
        partial(solve_factored, *factor)
        if 2 * kept.sum() <= n
        else partial(solve_either, n * noise - values[0], square, *factor)
    )


def solve_either(
    enough: float, square: np.ndarray, vectors: np.ndarray, roots: np.ndarray, q: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Solver`, of full matrices where the diagonal is above `enough` to make them regular."""
    return solve_full(square, q, sums) if q.min() > enough else solve_factored(vectors, roots, q, sums)


def solve_full(square: np.ndarray, q: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`Solver` by a Cholesky factor of S + diag q: 2/3 n^3 operations. square : S, (n, n)."""
    total = square.copy(order="F")
    total[np.diag_indices_from(total)] += q
    inverse, _ = dtrtri(
        cholesky(total, lower=True, overwrite_a=True, check_finite=False), lower=1, overwrite_c=1
    )
    return inverse.T @ (inverse @ sums), np.einsum("ij,ij->j", inverse, inverse)


def solve_factored(
    vectors: np.ndarray, roots: np.ndarray, q: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`Solver` for S = F F', F = vectors * roots (n, r): n r^2 operations twice. vectors : (n, r)
    orthonormal. roots : (r,) > 0.

        (F F' + diag q)^-1 F c = diag(q)^-1 F (I + F' diag(q)^-1 F)^-1 c,       sums = F c  as the sums are in
        the range of S

    The inner matrix is well conditioned but for the sizes of its rows, which does a Cholesky factor no harm.
    """
    scaled = vectors * roots / np.sqrt(q)[:, None]
    inner = scaled.T @ scaled
    inner[np.diag_indices_from(inner)] += 1.0
    factor = cholesky(inner, lower=True, overwrite_a=True, check_finite=False)
    half = solve_triangular(factor, scaled.T, lower=True, overwrite_b=True, check_finite=False)
    inside = solve_triangular(factor, (vectors.T @ sums) / roots, lower=True, check_finite=False)
    return (half.T @ inside) / np.sqrt(q), np.maximum(1.0 - np.einsum("ij,ij->j", half, half), 0.0) / q
