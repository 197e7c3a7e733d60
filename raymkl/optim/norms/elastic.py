"""A mixture of a block norm and the plain sum of squares.

    N(l) = mix ||l||_p^2 + (1 - mix) ||l||_2^2,   0 < mix < 1             N*(s) = l'v,   v_m = sqrt(s_m),
    theta_m = l_m / v_m

    l = argmax_{l >= 0}  2 l'v - N(l):      mix r^(2-p) l_m^(p-1) + (1 - mix) l_m = v_m,    r = ||l||_p

For a given r every l_m is the root of an increasing function, and r is found from r = ||l||_p; for p = 1
(soft thresholds) and p = inf (l is cut off at r) this takes one sort. A weight is never larger than 1 / (1 -
mix).

References
----------
Zou, Hastie: Regularization and variable selection via the elastic net. JRSS B 67, 2005.
Tomioka, Suzuki: Sparsity-accuracy trade-off in MKL. arXiv 1001.2615, 2010.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .base import TINY, Norm, block_exponent, power_norm

# Steps of Newton's method at most, for the lengths and for r; they end when nothing moves by more than this,
# relatively.
STEPS = 100
SETTLED = 4e-16


@dataclass(frozen=True)
class ElasticNetNorm(Norm):
    """A part of the block norm p, and the rest of the plain sum: N(l) = mix ||l||_p^2 + (1 - mix) ||l||_2^2.

    With p = 1 few kernels are selected, but of kernels that are alike all or none.

    Parameters
    ----------
    p : float in [1, inf]
        The block norm.
    mix : float in (0, 1)
        Part of the block norm; the rest is the plain sum.

    Examples
    --------
    >>> norm = ElasticNetNorm(1.0, 0.5)
    >>> norm.weights(np.array([1.0, 4.0])).round(6).tolist()
    [0.0, 1.0]
    >>> norm.primal(np.array([1.0, 2.0]))
    7.0
    """

    p: float
    mix: float

    def __post_init__(self):
        object.__setattr__(self, "p", block_exponent("p", self.p))
        try:
            mix = float(self.mix)
        except (TypeError, ValueError):
            mix = np.nan
        if isinstance(self.mix, bool | str) or not 0 < mix < 1:
            raise ValueError(
                f"mix must be a number with 0 < mix < 1, the part of the block norm p; got {self.mix!r}"
            )
        object.__setattr__(self, "mix", mix)

    @property
    def fixed(self) -> bool:
        return self.p == 2

    @property
    def rises(self) -> bool:
        return self.p > 2

    @property
    def rest(self) -> float:
        """1 - mix, the part of the plain sum."""
        return 1.0 - self.mix

    # -- the lengths that belong to a dual point ---------------------------------------------------

    def lengths(self, v: np.ndarray) -> tuple[np.ndarray, float]:
        """Lengths l and their norm r = ||l||_p that belong to v.

        Parameters
        ----------
        v : ndarray of shape (M,)
            Roots of the quadratic terms, >= 0.

        Returns
        -------
        lengths : ndarray of shape (M,)
            l.
        r : float
            ||l||_p.
        """
        top = float(v.max(initial=0.0))
        if top <= 0:
            return np.zeros(len(v)), 0.0
        v = v / top
        if self.p == 2:
            lengths = v
        elif self.p == 1:
            lengths = np.maximum(v - self.mix * self._sorted_out(v, self.mix, self.rest), 0.0) / self.rest
        elif np.isinf(self.p):
            lengths = np.minimum(v / self.rest, self._sorted_out(v, self.rest, self.mix))
        else:
            lengths = self._roots(v)
        lengths = top * lengths
        return lengths, power_norm(lengths, self.p)

    @staticmethod
    def _sorted_out(v: np.ndarray, slope: float, rest: float) -> float:
        """r > 0 with sum_m max(v_m - slope r, 0) = rest r."""
        falling = np.sort(v)[::-1]
        candidates = np.cumsum(falling) / (rest + slope * np.arange(1, len(v) + 1))
        return float(candidates[np.flatnonzero(falling > slope * candidates)[-1]])

    def _roots(self, v: np.ndarray) -> np.ndarray:
        """Lengths for 1 < p < inf and v (M,) of which the largest is one: l = r x with mix x^(p-1) + rest x =
        v / r, ||x||_p = 1.

        Both equations are solved in logarithms, where the left sides are convex.
        """
        p, positive = self.p, v > TINY
        logs = np.log(v[positive])
        # -log r lies between that of M equal lengths and that of a single one.
        low, high = np.log(self._increasing(len(v) ** (-1.0 / p))), 0.0
        shift, x = high, logs
        for _ in range(STEPS):
            x, slopes = self._log_roots(logs + shift)
            powers = np.exp(p * x)
            total = float(powers.sum())
            low, high = (shift, high) if total < 1 else (low, shift)
            step = -np.log(total) * total / (p * float((powers / slopes).sum())) if total > 0 else np.inf
            new = shift + step
            if not low <= new <= high:
                new = (low + high) / 2
            if abs(new - shift) <= SETTLED * max(1.0, abs(new)):
                break
            shift = new
        lengths = np.zeros(len(v))
        lengths[positive] = np.exp(x - shift)
        return lengths

    def _increasing(self, x: float) -> float:
        return self.mix * x ** (self.p - 1.0) + self.rest * x

    def _log_roots(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x (M,) with log(mix e^((p-1) x) + rest e^x) = y, and the slopes (M,) of the left side there.

        Newton's method from above, where each of both parts alone would be: it comes down to the root without
        passing it.
        """
        power, mix, rest = self.p - 1.0, np.log(self.mix), np.log(self.rest)
        x = np.minimum((y - mix) / power, y - rest)
        for _ in range(STEPS):
            one, two = mix + power * x, rest + x
            value = np.logaddexp(one, two)
            share = np.exp(one - value)
            slopes = power * share + (1.0 - share)
            step = (value - y) / slopes
            x = x - step
            if np.all(np.abs(step) <= SETTLED * np.maximum(1.0, np.abs(x))):
                break
        return x, slopes

    # -- both sides --------------------------------------------------------------------------------

    def dual(self, s):
        v = np.sqrt(np.maximum(s, 0.0))
        return float(self.lengths(v)[0] @ v)

    def primal(self, lengths):
        return self.mix * power_norm(lengths, self.p) ** 2 + self.rest * power_norm(lengths, 2.0) ** 2

    def weights(self, s):
        v = np.sqrt(np.maximum(s, 0.0))
        if v.max(initial=0.0) <= 0:
            return self.start(len(s))
        vanishing = 1.0 if self.p == 2 else 0.0 if self.p < 2 else 1.0 / self.rest
        lengths = self.lengths(v)[0]
        return np.where(v > 0, lengths / np.where(v > 0, v, 1.0), vanishing)

    def towards(self, theta, s):
        """Weights to go towards, from the lengths for p < 2: theta_m = 1 / (mix (l_m / r)^(p-2) + 1 - mix).

        Parameters
        ----------
        theta : ndarray of shape (M,)
            Weights now.
        s : ndarray of shape (M,)
            Quadratic terms.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        if self.p >= 2:
            return self.weights(s)
        lengths = theta * np.sqrt(s)
        size = power_norm(lengths, self.p)
        if size <= 0:
            return self.start(len(theta))
        inside = (lengths / size) ** (2.0 - self.p)
        return inside / (self.mix + self.rest * inside)

    def curvature(self, s):
        """Derivative of the weights.

        From d l / d v, the inverse of a diagonal matrix and one of rank one: with x = (l / r)^(p-1), diag(mix
        (p-1) (l/r)^(p-2) + rest) + mix (2-p) x x'. For p = 1 and p = inf: on the kernels above the threshold,
        or cut off.

        Parameters
        ----------
        s : ndarray of shape (M,)
            Quadratic terms.

        Returns
        -------
        derivative : ndarray of shape (M, M), tuple or None
            See `Norm.curvature`.
        """
        if self.fixed:
            return None
        v = np.sqrt(np.maximum(s, TINY))
        lengths, r = self.lengths(v)
        if np.isinf(self.p):
            cut = v > self.rest * r
            inverse, x = np.where(cut, 0.0, 1.0 / self.rest), cut.astype(float)
            c = -1.0 / (self.mix + self.rest * cut.sum())
            t = x / v
        else:
            share = lengths / r
            with np.errstate(divide="ignore"):
                bend = self.mix * (self.p - 1.0) * share ** (self.p - 2.0) if self.p > 1 else 0.0
            x = share ** (self.p - 1.0) if self.p > 1 else (lengths > 0).astype(float)
            inverse = np.where(lengths > 0, 1.0 / (bend + self.rest), 0.0 if self.p < 2 else 1.0 / self.rest)
            c = self.mix * (2.0 - self.p)
            c, t = c / (1.0 + c * float(x @ (inverse * x))), inverse * x / v
        return (inverse - lengths / v) / (2.0 * v * v), 0.5 * c, t
