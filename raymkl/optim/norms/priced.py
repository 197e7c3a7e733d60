"""The block norm p with a price on every kernel.

    N(l) = ||l||_p^2 + 2 rho'l,   rho >= 0,   1 < p < inf            N*(s) = ||nu||_q^2,   nu_m = (sqrt(s_m) -
    rho_m)_+,   q = p / (p - 1)

    theta_m = l_m / sqrt(s_m),     l_m = nu_m^(q-1) ||nu||_q^(2-q)

so that the primal problem has another sum_m rho_m ||w_m||. A kernel whose sqrt(s_m) does not exceed its price
has weight zero, exactly.

N is not homogeneous: theta depends on the scale of s, and is zero near s = 0. There the dual objective is
that of the loss alone, and steps cost nothing until the first kernel is worth its price. N* is smooth in s
all the same.

References
----------
Orabona, Luo: Ultra-fast optimization algorithm for sparse multi kernel learning. ICML 2011 (prices that are
all the same). Li, Liu, Yin, Zhang, Ding, Wang: Multi-class learning: from theory to algorithm. NeurIPS 31,
2018 (tail sums as prices).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import TINY, Norm, power_norm

# Shares of a kernel in ||nu||_q below this are taken for it in the curvature, which is infinite at the price
# for p > 2.
LEAST_SHARE = 1e-6
# Halvings of an interval that holds a root.
BISECTIONS = 60


@dataclass(frozen=True)
class PricedNorm(Norm):
    """Block norm p in (1, inf) with prices: N(l) = ||l||_p^2 + 2 rho'l.

    Parameters
    ----------
    p : block norm.
    rho : (M,) prices of the kernels, finite and none negative.

    Examples
    --------
    >>> norm = PricedNorm(2.0, (1.0, 1.0))
    >>> norm.weights(np.array([0.81, 4.0])).tolist(), norm.dual(np.array([0.81, 4.0]))
    ([0.0, 0.5], 1.0)
    """

    p: float
    rho: tuple[float, ...]

    def __post_init__(self):
        if not 1 < self.p < np.inf:
            raise ValueError(f"p must be a number in (1, inf) where kernels have prices, got {self.p!r}")
        prices = np.asarray(self.rho, float)
        if prices.ndim != 1 or not np.isfinite(prices).all() or np.any(prices < 0):
            raise ValueError(f"rho must be finite numbers >= 0, one per kernel; got {self.rho!r}")
        object.__setattr__(self, "p", float(self.p))
        object.__setattr__(self, "rho", tuple(prices.tolist()))
        object.__setattr__(self, "_prices", prices)

    @property
    def q(self) -> float:
        """Exponent of the dual norm of nu."""
        return self.p / (self.p - 1.0)

    @property
    def prices(self) -> np.ndarray:
        """rho (M,)."""
        return self._prices

    @property
    def bounded(self) -> bool:
        return self.p <= 2

    @property
    def takes_zeros(self) -> bool:
        return True

    @property
    def trusts_small_terms(self) -> np.ndarray:
        return self.prices > 0

    def check(self, n_kernels):
        if len(self.rho) != n_kernels:
            raise ValueError(
                f"rho must have one price for each of the {n_kernels} kernels, got {len(self.rho)}"
            )

    def start(self, n_kernels):
        """Weights of alike kernels that are well worth their prices."""
        return np.full(n_kernels, float(n_kernels) ** (1.0 - 2.0 / self.p))

    def excess(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """v = sqrt(s), nu = (v - rho)_+ (both (M,)), and ||nu||_q."""
        v = np.sqrt(np.maximum(s, 0.0))
        nu = np.maximum(v - self.prices, 0.0)
        return v, nu, power_norm(nu, self.q)

    def dual(self, s):
        return self.excess(s)[2] ** 2

    def primal(self, lengths):
        return power_norm(lengths, self.p) ** 2 + 2.0 * float(self.prices @ lengths)

    def weights(self, s):
        v, nu, size = self.excess(s)
        if size <= 0:
            return np.zeros(len(v))
        active = nu > 0
        share = np.where(active, nu, size) / size
        return np.where(active, share ** (self.q - 1.0) * size / np.where(active, v, 1.0), 0.0)

    def towards(self, theta, s):
        """Prices are paid for squared lengths instead, 2 rho_m l <= rho_m (l^2 / l_m + l_m), which never
        increases the primal.

        What is left of the norm goes on from the lengths l_m for p <= 2, theta_m = 1 / ((l_m / r)^(p-2) +
        rho_m / l_m), r = ||l||_p, and from s for p > 2, where these weights would be too large a step.
        """
        v = np.sqrt(np.maximum(s, 0.0))
        lengths = theta * v
        size = power_norm(lengths, self.p)
        if size <= 0:
            return self.weights(s)
        if self.p <= 2:
            share = lengths / size
            return lengths / (share ** (self.p - 1.0) * size + self.prices + (lengths <= 0))
        slopes = self.prices / np.maximum(lengths, 1e-12 * size)
        return np.where(v > 0, self._roots(v, slopes) / np.where(v > 0, v, 1.0), 0.0)

    def _roots(self, v: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """l = r x with x^(p-1) + slopes x = v / r and ||x||_p = 1, for p > 2; by bisection for r, and for
        every x.
        """
        top = power_norm(v, self.q)
        low, high = np.log(top) - 40.0, np.log(top)
        x = np.zeros(len(v))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            goal = v / np.exp(middle)
            below = np.zeros(len(v))
            above = np.minimum(goal ** (1.0 / (self.p - 1.0)), goal / np.maximum(slopes, TINY))
            for _ in range(BISECTIONS):
                x = (below + above) / 2
                small = x ** (self.p - 1.0) + slopes * x < goal
                below, above = np.where(small, x, below), np.where(small, above, x)
            low, high = (middle, high) if power_norm(x, self.p) > 1 else (low, middle)
        return np.exp(middle) * x

    def without_idle(self, theta, s, negligible):
        v = np.sqrt(np.maximum(s, 0.0))
        return np.where((v <= self.prices) & (theta * s <= negligible / len(theta)), 0.0, theta)

    def curvature(self, s):
        """From d l / d nu = diag((q-1) (nu / ||nu||)^(q-2)) - (q-2) x x' with x = (nu / ||nu||)^(q-1), where
        nu > 0.
        """
        v, nu, size = self.excess(s)
        if size <= 0:
            return None
        active = nu > 0
        share, v = np.where(active, nu / size, 1.0), np.where(active, v, 1.0)
        x = np.where(active, share ** (self.q - 1.0), 0.0)
        bend = (self.q - 1.0) * np.maximum(share, LEAST_SHARE) ** (self.q - 2.0)
        return np.where(active, (bend - x * size / v) / (2.0 * v * v), 0.0), 0.5 * (self.q - 2.0), x / v

    def floor(self, s, used, tol):
        """Only kernels without a price may have infinite weights, for p > 2."""
        free = used & (self.prices == 0)
        if self.p <= 2 or not free.any():
            return 0.0
        share = 0.25 * tol * self.q / free.sum()
        return np.where(free, self.dual(s) * share ** (2.0 / self.q), 0.0)
