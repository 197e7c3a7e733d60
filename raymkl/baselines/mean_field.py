"""The sweeps of BEMKL: mean field over the rows' weights, what kernels say, their weights and f.

Arrays of the updates: H heads (one for two classes, else one per class against the rest), M kernels, n
training rows.

    K (M, n, n) kernel matrices       y (H, n) of -1 and 1              f (H, n) E of the latent decision
    values
    a (H, n) E of the rows' weights   precision (H, n) of these         outputs (H, M, n) E[g], what every
    kernel says of every row
    weights (H, M + 1) E of the intercept and, after it, of the kernels' weights; covariance (H, M + 1, M + 1)
    of these

A sweep costs O(H (n^3 + M n^2)); the sum of squares of the matrices, M n^3, is computed once for all heads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, log_ndtr

from .row_solvers import Solver, row_solver, sum_of_squares


@dataclass(frozen=True, eq=False)
class Posterior:
    """Means after a sweep, and the covariance of intercept and kernel weights; shapes at the head of this
    file.
    """

    a: np.ndarray
    precision: np.ndarray
    outputs: np.ndarray
    weights: np.ndarray
    covariance: np.ndarray
    f: np.ndarray


def learn(
    matrices: np.ndarray,
    y: np.ndarray,
    margin: float,
    width: float,
    sweeps: int,
    on_round: Callable[[list[dict]], bool] | None = None,
) -> tuple[Posterior, int]:
    """Mean field after so many sweeps, and their number. matrices : (M, n, n). y : (H, n) of -1 and 1.

    on_round : called after every sweep with a row about it; True ends them.
    """
    solver, started = row_solver(sum_of_squares(matrices)), time.perf_counter()
    posterior = start(len(matrices), y, margin)
    for number in range(1, sweeps + 1):
        posterior = sweep(posterior, matrices, solver, y, margin, width)
        if on_round is not None and on_round([{"round": number, "seconds": time.perf_counter() - started}]):
            break
    return posterior, number


def start(n_kernels: int, y: np.ndarray, margin: float) -> Posterior:
    """Every kernel says what the labels say, and has weight 1."""
    heads, n = y.shape
    f = (1.0 + margin) * y
    return Posterior(
        a=np.zeros((heads, n)),
        precision=np.ones((heads, n)),
        outputs=np.repeat(f[:, None], n_kernels, axis=1),
        weights=np.tile(np.r_[0.0, np.ones(n_kernels)], (heads, 1)),
        covariance=np.tile(np.eye(n_kernels + 1), (heads, 1, 1)),
        f=f,
    )


def sweep(
    old: Posterior, matrices: np.ndarray, solver: Solver, y: np.ndarray, margin: float, width: float
) -> Posterior:
    """Every factor once: the rows' weights, their precisions, what kernels say, precisions and values of (b,
    e), f.
    """
    (heads, n), flat = y.shape, matrices.reshape(-1, y.shape[1])
    a, variance = row_weights(solver, old.outputs.reshape(heads, -1) @ flat, old.precision, width)
    products = (a @ flat.T).reshape(heads, -1, n)
    outputs, spread = kernel_outputs(products, old.f, old.weights, old.covariance, width)
    omega = expected_precision(old.weights, np.diagonal(old.covariance, axis1=1, axis2=2))
    weights, covariance = kernel_weights(outputs, spread, old.f, omega)
    return Posterior(
        a, expected_precision(a, variance), outputs, weights, covariance, latent(y, outputs, weights, margin)
    )


def expected_precision(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E of the precisions of numbers with these means and variances, all of one shape, under Gamma(1, 1)."""
    return 1.5 / (1.0 + 0.5 * (mean**2 + variance))


def row_weights(
    solver: Solver, sums: np.ndarray, precision: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variances of the rows' weights, (H, n) each. sums : (H, n) sum_m K_m E[g_m]. O(H n^3).

    Of  N(cov sums / width^2, cov),  cov = (S / width^2 + diag precision)^-1; multiplied by width^2, so that
        small widths do no harm.
    """
    solved = [solver(width**2 * own, total) for own, total in zip(precision, sums, strict=True)]
    return np.stack([mean for mean, _ in solved]), width**2 * np.stack([variance for _, variance in solved])


def kernel_outputs(
    products: np.ndarray, f: np.ndarray, weights: np.ndarray, covariance: np.ndarray, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """E[g] (H, M, n), and its covariance (H, M, M), the same for all rows. products : (H, M, n) K_m a.

    Of  N(cov (K a / width^2 + e f - E[e b]), cov),  cov = (I / width^2 + E[e e'])^-1; here too all is
        multiplied by width^2.
    """
    b, e = weights[:, :1], weights[:, 1:]
    second = e[:, :, None] * e[:, None, :] + covariance[:, 1:, 1:]
    inverse = np.linalg.inv(np.eye(e.shape[1]) + width**2 * second)
    pull = e[:, :, None] * f[:, None, :] - (e * b + covariance[:, 1:, 0])[:, :, None]
    return inverse @ (products + width**2 * pull), width**2 * inverse


def kernel_weights(
    outputs: np.ndarray, spread: np.ndarray, f: np.ndarray, omega: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (H, M + 1) and covariance (H, M + 1, M + 1) of intercept and kernel weights.

    spread : (H, M, M). omega : (H, M + 1).
    """
    heads, _, n = outputs.shape
    rows = np.concatenate([np.ones((heads, 1, n)), outputs], axis=1)
    precision = rows @ rows.transpose(0, 2, 1) + omega[:, :, None] * np.eye(omega.shape[1])
    precision[:, 1:, 1:] += n * spread
    covariance = np.linalg.inv(precision)
    covariance = (covariance + covariance.transpose(0, 2, 1)) / 2
    return (covariance @ (rows @ f[:, :, None]))[:, :, 0], covariance


def latent(y: np.ndarray, outputs: np.ndarray, weights: np.ndarray, margin: float) -> np.ndarray:
    """E[f] (H, n): the mean of normals with variance 1, cut to y f > margin."""
    mean = y * (weights[:, :1] + np.einsum("hm,hmn->hn", weights[:, 1:], outputs))
    return y * (mean + hazard(margin - mean))


def hazard(t: np.ndarray) -> np.ndarray:
    """Density over upper tail of the standard normal, for t of any size: about t where it is large, 0 where
    it is very negative.
    """
    return np.sqrt(2.0 / np.pi) / erfcx(t / np.sqrt(2.0))


def log_odds(outputs: np.ndarray, weights: np.ndarray, covariance: np.ndarray, margin: float) -> np.ndarray:
    """(rows, H) log P(f > margin) - log P(f < -margin) of new rows with outputs (rows, H, M)."""
    heads = outputs.transpose(1, 0, 2)
    known = np.concatenate([np.ones((*heads.shape[:2], 1)), heads], axis=2)
    mean = (known @ weights[:, :, None])[:, :, 0].T
    deviation = np.sqrt(1.0 + np.maximum(((known @ covariance) * known).sum(axis=2), 0.0)).T
    return log_ndtr((mean - margin) / deviation) - log_ndtr((-mean - margin) / deviation)
