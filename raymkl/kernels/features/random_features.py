"""Random features of Gaussian kernels with a scale per column, and machines over them.

    phi(x) = D^-1/2 [cos(w_l'x), sin(w_l'x)]_l,   w_l = scales * noise_l,   noise_l ~ N(0, I)

so that <phi(x), phi(z)> is about exp(-1/2 sum_j scales_j^2 (x_j - z_j)^2). A machine has one row of
coefficients per class, and

    loss(x, y) = max(0, 1 + max_{m != y} s_m(x) - s_y(x)),   s_m(x) = coef_m' phi(x)

Features live in tiles of some hundred rows and are never kept. n rows, d columns, D frequencies, M classes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..loops.waves import waves

# Numbers of a tile of features: they stay in the processor's cache until they are used.
TILE = 2**18


def draw_noise(seed: int, number: int, n_features: int, n_columns: int) -> np.ndarray:
    """(D, d) standard normal numbers that depend on the seed and a number alone, so that nobody has to send
    them.
    """
    bits = np.random.Philox(key=np.array([seed, number], np.uint64))
    return np.random.Generator(bits).standard_normal((n_features, n_columns))


def frequencies(noise: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """(d, D) of noise (D, d) and scales (d,)."""
    return np.ascontiguousarray((noise * scales).T)


def features(X: np.ndarray, frequency: np.ndarray) -> np.ndarray:
    """(n, 2 D) cosines, then sines, of rows X (n, d); frequency : (d, D), of the same dtype."""
    return waves(X @ frequency, frequency.shape[1] ** -0.5)


def tiles(n: int, n_features: int) -> Iterator[slice]:
    """Slices of n rows whose features make up a tile."""
    step = max(16, TILE // (2 * n_features))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def scores_of(X: np.ndarray, frequency: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """(n, M) scores of rows X (n, d), tile by tile. coef : (M, 2 D)."""
    out = np.empty((len(X), len(coef)), X.dtype)
    for tile in tiles(len(X), frequency.shape[1]):
        out[tile] = features(X[tile], frequency) @ coef.T
    return out


def hinge(scores: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) losses of scores (n, M) for classes y (n,), and (n,) the best of the other classes, the first of
    equals.
    """
    rows = np.arange(len(y))
    own = scores[rows, y]
    others = scores.copy()
    others[rows, y] = -np.inf
    rival = others.argmax(axis=1)
    return np.maximum(0.0, 1.0 + others[rows, rival] - own), rival


def hinges(scores: np.ndarray) -> np.ndarray:
    """(n, M) losses of scores (n, M), one for every class that a row might have."""
    rows, best = np.arange(len(scores)), scores.argmax(axis=1)
    others = scores.copy()
    others[rows, best] = -np.inf
    second = others.max(axis=1)
    rivals = np.repeat(scores[rows, best][:, None], scores.shape[1], axis=1)
    rivals[rows, best] = second
    return np.maximum(0.0, 1.0 + rivals - scores)


def losses_of(X: np.ndarray, y: np.ndarray, frequency: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """(n,) losses of rows X (n, d) of classes y (n,)."""
    return hinge(scores_of(X, frequency, coef), y)[0]


def gradients(
    X: np.ndarray, y: np.ndarray, shares: np.ndarray, frequency: np.ndarray, coef: np.ndarray, scales: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of sum_n shares_n loss_n: (M, 2 D) in the coefficients, (d,) in the logarithms of the scales
    (zeros unless wanted).

    X : (n, d). y, shares : (n,). frequency : (d, D). coef : (M, 2 D). All of one dtype. scales : whether the
    second is wanted.
    """
    by_coef, by_scales = np.zeros_like(coef), np.zeros(len(frequency), coef.dtype)
    D = frequency.shape[1]
    for tile in tiles(len(X), D):
        phi = features(X[tile], frequency)
        loss, rival = hinge(phi @ coef.T, y[tile])
        lost = np.flatnonzero(loss > 0)
        if len(lost) == 0:
            continue
        phi, rows = phi[lost], np.arange(len(lost))
        slopes = np.zeros((len(lost), len(coef)), coef.dtype)
        share = shares[tile][lost]
        slopes[rows, rival[lost]] = share
        slopes[rows, y[tile][lost]] = -share
        by_coef += slopes.T @ phi
        if scales:
            # An angle turns a cosine into minus its sine, and a sine into its cosine.
            back = slopes @ coef
            turns = phi[:, :D] * back[:, D:] - phi[:, D:] * back[:, :D]
            by_scales += np.einsum("jl,jl->j", frequency, X[tile][lost].T @ turns)
    return by_coef, by_scales


def moved_origin(coef: np.ndarray, noise: np.ndarray, scales: np.ndarray, center: np.ndarray) -> np.ndarray:
    """(M, 2 D) coefficients over features of x that give the scores which coef (M, 2 D) gives over features
    of x - center.

    Every pair of a cosine and a sine is turned by the angle of the center, so that norms stay what they are.
    """
    D = len(noise)
    angle = noise @ (scales * center)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.hstack([coef[:, :D] * cos - coef[:, D:] * sin, coef[:, :D] * sin + coef[:, D:] * cos])


def log_probabilities(X: np.ndarray, frequency: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """(n, M) logs of exp(-loss(x, m)) / sum_k exp(-loss(x, k)), for rows X (n, d)."""
    losses = hinges(scores_of(X, frequency, coef))
    lowest = losses.min(axis=1, keepdims=True)
    return -losses + lowest - np.log(np.exp(lowest - losses).sum(axis=1, keepdims=True))
