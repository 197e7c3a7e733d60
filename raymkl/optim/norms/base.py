"""What a norm over kernels is to the optimiser.

    primal   1/2 N(l) + losses,   l_m = ||w_m||           dual   value(a) - 1/2 N*(s),   s_m = a' K_m a,   v_m
             = sqrt(s_m)

    N*(s) = max_{l >= 0}  2 l'v - N(l)                    theta = dN*/ds,   l_m = theta_m v_m

Norms proper (all but `PricedNorm`) are homogeneous of degree two in the lengths l and v, so that theta does
not depend on the scale of s, and theta's = N*(s). Where N
is concave in the squares of the lengths (p <= 2), N*(s) is the largest theta's over a set of weights; where
it is convex in them (p >= 2), the smallest. Norms that are neither mix both.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

TINY = 1e-300
# A floor under the quadratic terms is raised by this factor, so many times at most, while the dual penalty
# stays nearly the same.
RAISED = 4.0
RAISES = 8


def power_norm(values: np.ndarray, k: float) -> float:
    """(sum_m values_m^k)^(1/k) for non-negative values and any k > 0, scaled against overflow."""
    largest = float(np.max(values, initial=0.0))
    if largest <= 0:
        return 0.0
    if np.isinf(k):
        return largest
    return largest * float(np.sum((values / largest) ** k)) ** (1.0 / k)


class Norm:
    """A norm over kernels, as the optimiser sees it.

    Below, s (M,) are the quadratic terms a'K_m a of a dual point a, theta (M,) weights of kernels, and l (M,)
    the lengths ||w_m||. Subclasses give `dual`, `primal` and `weights`; properties say what the
    optimiser may rely on.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import norms
    >>> norm = norms.LpNorm(4 / 3)
    >>> isinstance(norm, norms.Norm), norm.weights(np.array([1.0, 1.0])).round(3)
    (True, array([0.707, 0.707]))
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Methods without words of their own have those of the base class, for `help` and the reference."""
        super().__init_subclass__(**options)
        for name, method in vars(cls).items():
            if inspect.isfunction(method) and not method.__doc__ and not name.startswith("_"):
                method.__doc__ = getattr(getattr(Norm, name, None), "__doc__", None)

    # -- questions about the weights ---------------------------------------------------------------

    @property
    def fixed(self) -> bool:
        """Whether the weights are the same for all s."""
        return False

    @property
    def bounded(self) -> bool:
        """Whether weights stay bounded as a quadratic term vanishes."""
        return True

    @property
    def exponents(self) -> tuple[float, ...]:
        """k > 0 of the powers by which weights answer to s, theta ~ s^(k-1); none where it is no power."""
        return ()

    @property
    def has_ball(self) -> bool:
        """Whether the weights lie in a ball, to whose boundary `project` scales."""
        return False

    @property
    def has_cutting_planes(self) -> bool:
        """Whether every group of `members` has a ball of its own, that of one block norm."""
        return False

    @property
    def rises(self) -> bool:
        """Whether N* is concave in s, so that going all the way `towards` its weights increases the dual."""
        return False

    @property
    def damped(self) -> bool:
        """Whether steps `towards` other weights must be short."""
        return False

    @property
    def selects(self) -> str | None:
        """ "kernels" or "groups", whatever the norm selects few of; None if it keeps all."""
        return None

    @property
    def takes_zeros(self) -> bool:
        """Whether `curvature` is right for a quadratic term of zero, too."""
        return False

    @property
    def trusts_small_terms(self) -> bool | np.ndarray:
        """Whether weights do not answer to quadratic terms as small as their round-off: a bool, or (M,)."""
        return False

    @property
    def members(self) -> list[np.ndarray | slice]:
        """Positions of the entries of every group; here all entries are one group."""
        return [slice(None)]

    # -- both sides --------------------------------------------------------------------------------

    def check(self, n_kernels: int) -> None:
        """Raise ValueError unless this is a norm over so many kernels.

        Parameters
        ----------
        n_kernels : int
            M.
        """

    def start(self, n_kernels: int) -> np.ndarray:
        """Feasible weights to begin with, (M,).

        Parameters
        ----------
        n_kernels : int
            M.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        return self.weights(np.ones(n_kernels))

    def start_over(self, entries: np.ndarray) -> np.ndarray:
        """Feasible weights to begin with where some kernels are left out.

        Parameters
        ----------
        entries : ndarray of shape (M,)
            bool, the kernels that take part.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights, zero for the others.
        """
        return np.where(entries, self.start(len(entries)), 0.0)

    def dual(self, s: np.ndarray) -> float:
        """N*(s), the value whose half is the dual penalty.

        Parameters
        ----------
        s : ndarray of shape (M,)
            Quadratic terms.

        Returns
        -------
        value : float
            N*(s).
        """
        raise TypeError(f"{type(self).__name__} has no dual")

    def primal(self, lengths: np.ndarray) -> float:
        """N(l) of the lengths l_m = ||w_m||.

        Parameters
        ----------
        lengths : ndarray of shape (M,)
            Lengths ||w_m||.

        Returns
        -------
        value : float
            N(l).
        """
        raise TypeError(f"{type(self).__name__} has no primal")

    def weights(self, s: np.ndarray) -> np.ndarray:
        """Weights that are optimal for the dual point behind s: the gradient of `dual`.

        Parameters
        ----------
        s : ndarray of shape (M,)
            Quadratic terms.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        raise TypeError(f"{type(self).__name__} has no weights")

    def towards(self, theta: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Weights (M,) to go towards from theta (M,), once the dual variables have answered to theta with s.

        Either those that belong to s, or those that belong to the lengths theta_m sqrt(s_m): theta_m = l_m /
        (dN/dl_m / 2).

        Parameters
        ----------
        theta : ndarray of shape (M,)
            Weights now.
        s : ndarray of shape (M,)
            Quadratic terms that answer to them.

        Returns
        -------
        theta : ndarray of shape (M,)
            Other weights.
        """
        return self.weights(s)

    def without_idle(self, theta: np.ndarray, s: np.ndarray, negligible: float) -> np.ndarray:
        """Weights with zeros for kernels that the norm has no use for at s.

        Parameters
        ----------
        theta : ndarray of shape (M,)
            Weights.
        s : ndarray of shape (M,)
            Quadratic terms.
        negligible : float
            What all their theta_m s_m together may be.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        return theta

    def curvature(
        self, s: np.ndarray
    ) -> tuple[np.ndarray, float | np.ndarray, np.ndarray] | np.ndarray | None:
        """Derivative d(weights)/d(s).

        A matrix (M, M), or (d, c, t) for diag(d) - c t t', or None where the weights do not follow s. c may
        be (G,) and t (G, M), the second part is then sum_g c_g t_g t_g'.

        Parameters
        ----------
        s : ndarray of shape (M,)
            Quadratic terms.

        Returns
        -------
        derivative : ndarray of shape (M, M), tuple or None
            As above.
        """
        return None

    def project(self, theta: np.ndarray) -> np.ndarray:
        """Weights scaled to the boundary of their ball, where there is one; negative entries become zero.

        Parameters
        ----------
        theta : ndarray of shape (M,)
            Weights.

        Returns
        -------
        theta : ndarray of shape (M,)
            Weights.
        """
        return np.maximum(theta, 0.0)

    def floor(self, s: np.ndarray, used: np.ndarray, tol: float) -> np.ndarray | float:
        """What may be added to s so that no weight of a kernel that is used is infinite.

        N* grows by at most tol / 2 of it.

        The root of N* is a norm of v, so that a floor f changes it by at most that of sqrt(f). Where N* is
        concave in s it is often less, and the floor may be higher; elsewhere N* need not see what a higher
        one does to its parts.

        Parameters
        ----------
        s : ndarray of shape (M,)
            Quadratic terms.
        used : ndarray of shape (M,)
            bool, the kernels that count.
        tol : float
            Relative duality gap that is aimed at.

        Returns
        -------
        floor : float or ndarray of shape (M,)
            Never negative.
        """
        if self.bounded:
            return 0.0
        size, ones = self.dual(s), used.astype(float)
        least = (0.25 * tol) ** 2 * size / max(self.dual(ones), TINY)
        for _ in range(RAISES if self.rises else 0):
            if not self.dual(s + RAISED * least * ones) <= (1.0 + 0.5 * tol) * size:
                break
            least *= RAISED
        return least

    def weight_gap(self, at_theta: float, primal: float, dual: float) -> float:
        """The weights' part of the duality gap, >= 0.

        Parameters
        ----------
        at_theta : float
            theta's.
        primal, dual : float
            N of the lengths theta_m sqrt(s_m), and N*(s).

        Returns
        -------
        gap : float
            Absolute.
        """
        return max(0.5 * (primal + dual) - at_theta, 0.0)

    def largest(self, values: np.ndarray) -> np.ndarray | float:
        """The largest of the values among the entries that share a ball with each entry.

        Parameters
        ----------
        values : ndarray of shape (M,)
            One per kernel.

        Returns
        -------
        largest : float or ndarray of shape (M,)
            A number when all entries share one ball.
        """
        return values.max()


def block_exponent(name: str, p: object) -> float:
    """p as a float in [1, inf]; else ValueError that names the argument."""
    try:
        number = float(p)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = np.nan
    if isinstance(p, bool | str) or not number >= 1:
        raise ValueError(f"{name} must be a number in [1, inf], a block norm; got {p!r}")
    return number
