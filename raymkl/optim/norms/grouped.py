"""A block norm within groups of kernels, and another one between the groups.

    N(l) = || (||l_g||_p)_g ||_outer^2            N*(s) = || (S_g)_g ||_{k(outer)},   S_g = ||s_g||_{k(p)},
    k(p) = p / (2p - 2)

    theta_m = w_g u_m,    w_g = (S_g / N*(s))^(k(outer) - 1),    u_m = (s_m / S_g)^(k(p) - 1)        for
    kernel m of group g

so that the weights within a group are those of its own norm, times a weight of the group.

References
----------
Zhao, Rocha, Yu: The composite absolute penalties family for grouped and hierarchical variable selection.
Annals of Statistics 37, 2009. Szafranski, Grandvalet, Rakotomamonjy: Composite kernel learning. Machine
Learning 79, 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .base import TINY, Norm, block_exponent
from .lp import LpNorm


@dataclass(frozen=True)
class GroupedNorm(Norm):
    """Block norm p within groups of kernels and `outer` between them: N(l) = || (||l_g||_p)_g ||_outer^2.

    outer = 1 selects whole groups; outer = 2 gives every group a norm, and a ball of weights, of its own (the
    clusters of a localized model); p = 1 selects kernels within their group.

    Parameters
    ----------
    p : float in [1, inf]
        Block norm within every group.
    groups : array-like of shape (M,)
        The group of every kernel: any labels, such as names of views.
    outer : float in [1, inf]
        Block norm between the groups.

    Examples
    --------
    >>> norm = GroupedNorm(1.0, ["width", "width", "product"])
    >>> norm.dual(np.array([3.0, 1.0, 2.0]))
    5.0
    >>> GroupedNorm(2.0, ["width", "width", "product"], outer=1.0).weights(np.array([3.0, 1.0, 2.0])).tolist()
    [1.0, 1.0, 0.0]
    """

    p: float
    groups: tuple[Hashable, ...]
    outer: float = 2.0

    def __post_init__(self):
        for name in ("p", "outer"):
            object.__setattr__(self, name, block_exponent(name, getattr(self, name)))
        if isinstance(self.groups, str | bytes):
            raise ValueError(f"groups must be a list of labels, one per kernel; got the text {self.groups!r}")
        try:
            labels = tuple(self.groups.tolist() if isinstance(self.groups, np.ndarray) else self.groups)
            hash(labels)
        except TypeError:
            raise ValueError(
                "groups must be a list of labels, one per kernel, that can be keys of a dict; got "
                f"{self.groups!r}"
            ) from None
        if not labels:
            raise ValueError("groups is empty; it must have a label for every kernel")
        object.__setattr__(self, "groups", labels)

    def check(self, n_kernels):
        if len(self.groups) != n_kernels:
            raise ValueError(
                f"groups of {self!r} must have a label for each of the {n_kernels} kernels; got "
                f"{len(self.groups)}"
            )

    # -- the two levels ----------------------------------------------------------------------------

    @cached_property
    def index(self) -> np.ndarray:
        """(M,) the number of every kernel's group, in the order in which labels appear; one group for all if
        p = outer.
        """
        if self.p == self.outer:
            return np.zeros(len(self.groups), int)
        numbers = {label: g for g, label in enumerate(dict.fromkeys(self.groups))}
        return np.array([numbers[label] for label in self.groups])

    @cached_property
    def members(self) -> list[np.ndarray | slice]:
        return [np.flatnonzero(self.index == g) for g in range(self.index.max() + 1)]

    @cached_property
    def inner(self) -> LpNorm:
        """The norm within a group; any of them will do where every group is a single kernel."""
        return LpNorm(2.0 if len(self.members) == len(self.groups) else self.p)

    @cached_property
    def between(self) -> LpNorm:
        """The norm between groups; any of them will do where there is one group."""
        return LpNorm(2.0 if len(self.members) == 1 else self.outer)

    @property
    def apart(self) -> bool:
        """Whether groups do not know of each other: their squared norms and dual penalties add up."""
        return self.between.p == 2

    @property
    def k(self) -> float:
        """Exponent of the dual norm of s within a group: p* / 2."""
        return self.inner.k

    @property
    def q(self) -> float:
        """Norm of the weights of a group that is at most one."""
        return self.inner.q

    @property
    def exponents(self) -> tuple[float, ...]:
        return self.inner.k, self.between.k

    @property
    def fixed(self) -> bool:
        return self.inner.fixed and self.between.fixed

    @property
    def bounded(self) -> bool:
        return self.inner.bounded and self.between.bounded

    @property
    def has_ball(self) -> bool:
        return self.inner.has_ball and self.between.has_ball

    @property
    def has_cutting_planes(self) -> bool:
        return self.apart and self.inner.has_cutting_planes

    @property
    def rises(self) -> bool:
        return not self.has_ball and self.inner.p >= 2 and self.between.p >= 2

    @property
    def damped(self) -> bool:
        return not self.has_ball and not self.rises

    @property
    def selects(self) -> str | None:
        return "kernels" if self.inner.p == 1 else "groups" if self.between.p == 1 else None

    # -- both sides --------------------------------------------------------------------------------

    def _each(self, function: Callable, values: np.ndarray) -> np.ndarray:
        """function of the values of every group, put back in the places of its entries."""
        out = np.empty(len(self.groups))
        for member in self.members:
            out[member] = function(values[member])
        return out

    def _of_groups(self, function: Callable, values: np.ndarray) -> np.ndarray:
        """(G,) a number of the values of every group."""
        return np.array([function(values[member]) for member in self.members])

    def start(self, n_kernels):
        inside = self._each(lambda part: self.inner.start(len(part)), np.zeros(n_kernels))
        return inside if self.apart else inside * self.between.start(len(self.members))[self.index]

    def dual(self, s):
        sizes = [self.inner.dual(s[member]) for member in self.members]
        return float(sum(sizes)) if self.apart else self.between.dual(np.array(sizes))

    def primal(self, lengths):
        squares = [self.inner.primal(lengths[member]) for member in self.members]
        return float(sum(squares)) if self.apart else self.between.primal(np.sqrt(squares))

    def weights(self, s):
        inside = self._each(self.inner.weights, s)
        if self.apart:
            return inside
        sizes = self._of_groups(self.inner.dual, s)
        return inside * self.between.weights(sizes)[self.index] if sizes.max() > 0 else self.start(len(s))

    def weights_from_lengths(self, lengths: np.ndarray) -> np.ndarray:
        """Weights that are optimal for a primal point, on both levels; p and outer in [1, 2].

        Parameters
        ----------
        lengths : ndarray of shape (M,)
            Lengths ||w_m||.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        inside = self._each(self.inner.weights_from_lengths, lengths)
        if self.apart:
            return inside
        squares = self._of_groups(self.inner.primal, lengths)
        return inside * self.between.weights_from_lengths(np.sqrt(squares))[self.index]

    def towards(self, theta, s):
        """On each level what is best there: from the lengths for a norm below 2, from the quadratic terms for
        one above.

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
        if self.has_ball:
            return self.weights_from_lengths(theta * np.sqrt(s))
        lengths = theta * np.sqrt(s)
        inside = np.empty(len(s))
        sizes = np.empty(len(self.members))
        for g, member in enumerate(self.members):
            inside[member] = self.inner.towards(theta[member], s[member])
            if self.between.p < 2:
                sizes[g] = np.sqrt(self.inner.primal(lengths[member]))
            else:  # the quadratic term of the group as it is combined now
                sizes[g] = theta[member] @ s[member] / max(self.inner.gauge(theta[member]), TINY)
        outside = (
            self.between.weights_from_lengths(sizes) if self.between.p < 2 else self.between.weights(sizes)
        )
        return inside * outside[self.index]

    def project(self, theta):
        if self.apart:
            return self._each(self.inner.project, theta)
        theta = np.maximum(theta, 0.0)
        if self.between.p > 2:
            return theta
        size = self.between.gauge(self._of_groups(self.inner.gauge, theta))
        return theta / size if size > 0 else self.start(len(theta))

    def curvature(self, s):
        if self.fixed or np.isinf(max(self.exponents)):
            return None
        G, M = len(self.members), len(s)
        d, c, t = np.zeros(M), np.zeros(G), np.zeros((G, M))
        if self.apart:
            for g, member in enumerate(self.members):
                d[member], c[g], t[g, member] = self.inner.curvature(s[member])
            return d, c, t
        s = np.maximum(s, TINY)
        sizes = self._of_groups(self.inner.dual, s)
        with np.errstate(over="ignore"):
            outside = self.between.weights(sizes)
            inside = self._each(self.inner.weights, s)
            for g, member in enumerate(self.members):
                t[g, member] = inside[member]
            theta = inside * outside[self.index]
            k, outer = self.exponents
            c = (k - outer) * outside / sizes
            return (k - 1.0) * theta / s, np.append(c, (outer - 1.0) / self.dual(s)), np.vstack([t, theta])

    def floor(self, s, used, tol):
        if not self.apart:
            return super().floor(s, used, tol)
        if self.inner.bounded:
            return 0.0
        share = 0.5 * tol * self.k / max(used.sum(), 1)
        return self._each(self.inner.dual, s) * share ** (1.0 / self.k)

    def weight_gap(self, at_theta, primal, dual):
        return (
            self.inner.weight_gap(at_theta, primal, dual)
            if self.apart
            else super().weight_gap(at_theta, primal, dual)
        )

    def largest(self, values):
        return self._each(np.max, values) if self.apart else values.max()
