"""The block norm p over kernels: from quadratic terms to weights, and both sides of the certificate.

    primal   1/2 ||w||_{2,p}^2            dual   1/2 ||s||_k,   s_m = a' K_m a,   k = p* / 2 = p / (2p - 2)

`p` is the **block norm** (1: sparse, 2: plain sum, inf: most uniform). Papers and tools often state the norm
`q` of the weights instead, sum_m theta_m^q <= 1:

    q = p / (2 - p),    p = 2 q / (q + 1)        (1 <= p < 2, 1 <= q < inf; p = 2 is q = inf: all weights 1)

The best weights for a given `a` are the gradient of the dual norm: theta_m = (s_m / ||s||_k)^(k-1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import TINY, Norm, block_exponent, power_norm


def weight_norm(p: float) -> float:
    """Norm q of the weights that belongs to block norm p.

    Parameters
    ----------
    p : float
        Block norm in [1, inf].

    Returns
    -------
    q : float
        p / (2 - p); infinity for p = 2, negative for p > 2, where it is not a norm.

    Examples
    --------
    >>> from raymkl import norms
    >>> norms.weight_norm(1.5)
    3.0
    """
    if p == 2:
        return np.inf
    return -1.0 if np.isinf(p) else p / (2.0 - p)


def block_norm(q: float) -> float:
    """Block norm p that belongs to norm q of the weights.

    Parameters
    ----------
    q : float
        Norm of the weights in [1, inf].

    Returns
    -------
    p : float
        2 q / (q + 1).

    Examples
    --------
    >>> from raymkl import norms
    >>> norms.block_norm(3)
    1.5
    """
    if not q >= 1:
        raise ValueError(f"the norm of the weights must be >= 1, got {q!r}")
    return 2.0 if np.isinf(q) else 2.0 * q / (q + 1.0)


def dual_exponent(p: float) -> float:
    """Exponent k = p* / 2 of the dual norm of s that belongs to block norm p."""
    if p == 1:
        return np.inf
    return 0.5 if np.isinf(p) else p / (2.0 * p - 2.0)


@dataclass(frozen=True)
class LpNorm(Norm):
    """Block norm p in [1, inf]: N(l) = ||l||_p^2.

    Parameters
    ----------
    p : float in [1, inf]
        1 selects few kernels, 2 is the plain sum, larger is more uniform.

    Examples
    --------
    >>> norm = LpNorm(1.0)
    >>> norm.dual(np.array([3.0, 1.0, 2.0])), norm.primal(np.array([3.0, 1.0, 2.0]))
    (3.0, 36.0)
    """

    p: float

    def __post_init__(self):
        block_exponent("p", self.p)

    @property
    def k(self) -> float:
        """Exponent of the dual norm of s: p* / 2."""
        return dual_exponent(self.p)

    @property
    def exponents(self) -> tuple[float, ...]:
        return (self.k,)

    @property
    def fixed(self) -> bool:
        return self.p == 2

    @property
    def bounded(self) -> bool:
        return self.p <= 2

    @property
    def has_ball(self) -> bool:
        return self.p <= 2

    @property
    def has_cutting_planes(self) -> bool:
        return self.p <= 2

    @property
    def rises(self) -> bool:
        return self.p > 2

    @property
    def selects(self) -> str | None:
        return "kernels" if self.p == 1 else None

    @property
    def q(self) -> float:
        """Norm of the weights that is at most one."""
        return weight_norm(self.p)

    @property
    def inner(self) -> LpNorm:
        """The norm within the one group that there is."""
        return self

    @property
    def between(self) -> LpNorm:
        """The norm over groups."""
        return LpNorm(2.0)

    def start(self, n_kernels):
        if self.p <= 2:
            return np.full(n_kernels, float(n_kernels) ** (-1.0 / weight_norm(self.p)))
        return self.weights(np.ones(n_kernels))

    def start_over(self, entries):
        theta = np.zeros(len(entries))
        theta[entries] = self.start(int(np.count_nonzero(entries)))
        return theta

    def dual(self, s):
        return power_norm(np.maximum(s, 0.0), self.k)

    def primal(self, lengths):
        size = power_norm(lengths, self.p)
        return size * size

    def weights(self, s):
        s = np.maximum(s, 0.0)
        size = self.dual(s)
        if size <= 0:
            return self.start(len(s))
        if self.p == 2:
            return np.ones(len(s))
        if self.p == 1:
            best = s >= s.max() * (1.0 - 1e-12)
            return best / best.sum()
        positive = s > TINY
        logs = np.log(np.where(positive, s, size)) - np.log(size)
        return np.where(positive, np.exp((self.k - 1.0) * logs), 0.0)

    def weights_from_lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Weights that are optimal for a primal point, from the lengths ||w_m||; p in [1, 2).

        theta_m = ||w_m||^(2-p) / (sum_k ||w_k||^p)^((2-p)/p); a length of zero or less gives weight zero.

        Parameters
        ----------
        lengths : ndarray of shape (M,)
            Lengths ||w_m||.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        lengths = np.maximum(lengths, 0.0)
        size = power_norm(lengths, self.p)
        return self.start(len(lengths)) if size <= 0 else (lengths / size) ** (2.0 - self.p)

    def towards(self, theta, s):
        return self.weights_from_lengths(theta * np.sqrt(s)) if self.p < 2 else self.weights(s)

    def project(self, theta):
        theta = np.maximum(theta, 0.0)
        if self.p > 2:
            return theta
        size = power_norm(theta, weight_norm(self.p))
        return self.start(len(theta)) if size <= 0 else theta / size

    def curvature(self, s):
        if self.p in (1, 2):
            return None
        s = np.maximum(s, TINY)
        size = self.dual(s)
        logs = np.log(s) - np.log(size)
        with np.errstate(over="ignore"):
            t = np.exp((self.k - 1.0) * logs)
            return (self.k - 1.0) * t / s, (self.k - 1.0) / size, t

    def floor(self, s, used, tol):
        if self.p <= 2:
            return 0.0
        share = 0.5 * tol * self.k / max(used.sum(), 1)
        return self.dual(s) * share ** (1.0 / self.k)

    def gauge(self, theta: np.ndarray) -> float:
        """How many times the weights on the boundary these weights are.

        That is ||theta||_q over those that are not zero.

        Parameters
        ----------
        theta : ndarray of shape (M,)
            Weights.

        Returns
        -------
        times : float
            At most one within the ball.
        """
        theta = np.maximum(theta, 0.0)
        if self.p <= 2:
            return power_norm(theta, self.q)
        theta = theta[theta > 0]
        least = float(np.min(theta, initial=np.inf))
        return least * float(np.sum((theta / least) ** self.q)) ** (1.0 / self.q) if len(theta) else 0.0

    def weight_gap(self, at_theta, primal, dual):
        return max(0.5 * (dual - at_theta), 0.0)
