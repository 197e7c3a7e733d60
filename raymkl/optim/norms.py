"""Norms over kernels: from quadratic terms to weights, and both sides of the certificate.

`p` is the **block norm** in 1/2 ||w||_{2,p}^2 (1: sparse, 2: plain sum, inf: most uniform). Papers and tools often state
the norm `q` of the weights instead, sum_m theta_m^q <= 1:

    q = p / (2 - p),    p = 2 q / (q + 1)        (1 <= p < 2, 1 <= q < inf; p = 2 is q = inf: all weights 1)

With s_m = a' K_m a the dual penalty is 1/2 ||s||_k, k = p* / 2 = p / (2p - 2), and the best weights for a given `a` are its
gradient: theta_m = (s_m / ||s||_k)^(k-1).

Entries may come in groups (the clusters of a localized model), each with a norm and a ball of weights of its own; squared norms
and dual penalties of the groups add up (`GroupedNorm`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

TINY = 1e-300


def weight_norm(p: float) -> float:
    """Norm q of the weights that belongs to block norm p (negative for p > 2, where it is not a norm)."""
    if p == 2:
        return np.inf
    return -1.0 if np.isinf(p) else p / (2.0 - p)


def block_norm(q: float) -> float:
    """Block norm p that belongs to norm q >= 1 of the weights."""
    if not q >= 1:
        raise ValueError(f"the norm of the weights must be >= 1, got {q!r}")
    return 2.0 if np.isinf(q) else 2.0 * q / (q + 1.0)


def power_norm(values: np.ndarray, k: float) -> float:
    """(sum_m values_m^k)^(1/k) for non-negative values and any k > 0, scaled against overflow."""
    largest = float(np.max(values, initial=0.0))
    if largest <= 0:
        return 0.0
    if np.isinf(k):
        return largest
    return largest * float(np.sum((values / largest) ** k)) ** (1.0 / k)


@dataclass(frozen=True)
class Norm:
    """A norm over kernels, as the optimiser sees it. s : (M,) quadratic terms a'K_m a."""

    def start(self, n_kernels: int) -> np.ndarray:
        """Feasible weights to begin with, (M,)."""
        raise TypeError(f"{type(self).__name__} has no start")

    def dual(self, s: np.ndarray) -> float:
        """The value whose half is the dual penalty."""
        raise TypeError(f"{type(self).__name__} has no dual")

    def primal(self, lengths: np.ndarray) -> float:
        """||w||^2 from the lengths ||w_m||."""
        raise TypeError(f"{type(self).__name__} has no primal")

    def weights(self, s: np.ndarray) -> np.ndarray:
        """Weights that are optimal for the dual point behind s: the gradient of `dual`."""
        raise TypeError(f"{type(self).__name__} has no weights")

    def curvature(self, s: np.ndarray) -> tuple[np.ndarray, float | np.ndarray, np.ndarray] | None:
        """(d, c, t) with d(weights)/d(s) = diag(d) - c t t', or None where the weights do not follow s.

        With several groups c is (G,) and t (G, M), and the second part is sum_g c_g t_g t_g'.
        """
        return None

    def sizes(self, s: np.ndarray) -> np.ndarray | float:
        """`dual` of the entries that share a ball with each entry: (M,), or a number when all do."""
        return self.dual(s)

    def largest(self, values: np.ndarray) -> np.ndarray | float:
        """The largest of the values (M,) among the entries that share a ball with each entry: (M,), or a number when all do."""
        return values.max()

    @property
    def members(self) -> list[np.ndarray | slice]:
        """Positions of the entries of every group; here all entries are one group."""
        return [slice(None)]


@dataclass(frozen=True)
class LpNorm(Norm):
    """Block norm p in [1, inf]."""

    p: float

    @property
    def k(self) -> float:
        """Exponent of the dual norm of s: p* / 2."""
        if self.p == 1:
            return np.inf
        return 0.5 if np.isinf(self.p) else self.p / (2.0 * self.p - 2.0)

    def start(self, n_kernels):
        if self.p <= 2:
            return np.full(n_kernels, float(n_kernels) ** (-1.0 / weight_norm(self.p)))
        return self.weights(np.ones(n_kernels))

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
        """
        lengths = np.maximum(lengths, 0.0)
        size = power_norm(lengths, self.p)
        return self.start(len(lengths)) if size <= 0 else (lengths / size) ** (2.0 - self.p)

    def project(self, theta: np.ndarray) -> np.ndarray:
        """theta scaled to the boundary of its ball, p in [1, 2]; negative entries become zero."""
        theta = np.maximum(theta, 0.0)
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


@dataclass(frozen=True)
class GroupedNorm(Norm):
    """Groups of entries, each with block norm p and a ball of weights of its own.

        primal   sum_g ||w_g||_{2,p}^2           dual   sum_g ||s_g||_k,  k = p* / 2           weights   ||theta_g||_q <= 1 for every g

    Parameters
    ----------
    p : block norm within every group, in [1, inf].
    groups : (M,) the group of every entry, 0 <= group < G; every group has an entry.

    Examples
    --------
    >>> norm = GroupedNorm(1.0, (0, 0, 1))
    >>> norm.dual(np.array([3.0, 1.0, 2.0]))
    5.0
    """

    p: float
    groups: tuple[int, ...]

    @cached_property
    def one(self) -> LpNorm:
        """The norm within a group."""
        return LpNorm(self.p)

    @cached_property
    def members(self) -> list[np.ndarray | slice]:
        index = np.asarray(self.groups, int)
        return [np.flatnonzero(index == g) for g in range(index.max() + 1)]

    @property
    def k(self) -> float:
        """Exponent of the dual norm of s within a group: p* / 2."""
        return self.one.k

    def _each(self, function: Callable, values: np.ndarray) -> np.ndarray:
        """function of the values of every group, put back in the places of its entries."""
        out = np.empty(len(self.groups))
        for member in self.members:
            out[member] = function(values[member])
        return out

    def start(self, n_kernels):
        return self._each(lambda part: self.one.start(len(part)), np.zeros(n_kernels))

    def dual(self, s):
        return float(sum(self.one.dual(s[member]) for member in self.members))

    def primal(self, lengths):
        return float(sum(self.one.primal(lengths[member]) for member in self.members))

    def weights(self, s):
        return self._each(self.one.weights, s)

    def weights_from_lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Weights that are optimal for a primal point, group by group (see `LpNorm.weights_from_lengths`)."""
        return self._each(self.one.weights_from_lengths, lengths)

    def project(self, theta: np.ndarray) -> np.ndarray:
        """theta (M,) with every group scaled to the boundary of its ball."""
        return self._each(self.one.project, theta)

    def curvature(self, s):
        if self.p in (1, 2):
            return None
        d, c, t = np.zeros(len(s)), np.zeros(len(self.members)), np.zeros((len(self.members), len(s)))
        for g, member in enumerate(self.members):
            d[member], c[g], t[g, member] = self.one.curvature(s[member])
        return d, c, t

    def sizes(self, s):
        return self._each(self.one.dual, s)

    def largest(self, values):
        return self._each(np.max, values)
