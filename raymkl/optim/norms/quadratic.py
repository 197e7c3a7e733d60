"""A norm that says which kernels go together, by a matrix.

    N(l) = min_{t >= l}  t' E^-1 t                       N*(s) = min_{z >= v}  z' E z,   v_m = sqrt(s_m)

    l = E z >= 0,   theta_m = l_m / v_m,   zero where z_m > v_m

Both are quadratic programs with one matrix each, set up once and solved again from where the last one ended
(OSQP). Its answer tells which constraints hold with equality; given these the solution is that of a linear
system, which makes it exact.

References
----------
Kloft, Brefeld, Sonnenburg, Zien: lp-norm multiple kernel learning. JMLR 12, 2011, section on non-isotropic
norms. Stellato, Banjac, Goulart, Bemporad, Boyd: OSQP: an operator splitting solver for quadratic programs.
Math. Prog. Comp. 12, 2020.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from .base import TINY, Norm

# E must be symmetric to this part of its largest entry, and its smallest eigenvalue at least this part of the
# largest.
SYMMETRIC = 1e-10
DEFINITE = 1e-12
# Conditions of optimality hold to this part of the largest number.
EXACT = 1e-12
# Of the solver whose answer is made exact.
PRECISION = 1e-7
# Matrices up to this size are shown in full.
SHOWN = 8


class Above:
    """min_{z >= v}  z' A z   for one positive definite A (M, M) and one v (M,) after the other.

        A z = l >= 0,    l_m (z_m - v_m) = 0

    Thread-safe: what it remembers of the last solution is where the next one is looked for first, no more.
    """

    def __init__(self, A: np.ndarray):
        self.A = A
        self.lock = Lock()
        self.free = np.zeros(len(A), bool)  # where z > v, last time
        self.solver: Any = None

    def solve(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """z (M,), l = A z (M,) and whether z > v (M,). v : (M,), >= 0."""
        top = float(v.max(initial=0.0))
        if top <= 0:
            return np.zeros(len(v)), np.zeros(len(v)), np.zeros(len(v), bool)
        v = v / top
        with self.lock:
            found = self._exact(v, self.free) or self._exact(v, self._from_osqp(v))
            z, lengths, self.free = found or self._solution(v, self._from_least_squares(v))[0]
        return top * z, top * lengths, self.free

    def _exact(self, v: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The solution if z > v where `free` says so and nowhere else; None if that breaks a condition."""
        found, breach = self._solution(v, free)
        return found if breach <= EXACT else None

    def _solution(
        self, v: np.ndarray, free: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], float]:
        """z = v, or A z = 0 where it is free, without what breaks the conditions; and by how much they were
        broken, relatively.
        """
        z = v.copy()
        if free.any():
            z[free] = -np.linalg.solve(self.A[np.ix_(free, free)], self.A[np.ix_(free, ~free)] @ v[~free])
        lengths, scale = np.where(free, 0.0, self.A @ z), np.abs(z).max()
        breach = max(float((v - z).max()), float(-lengths.min()) / np.abs(self.A).max()) / scale
        return (np.maximum(z, v), np.maximum(lengths, 0.0), free), breach

    def _from_osqp(self, v: np.ndarray) -> np.ndarray:
        """Where z > v, (M,), by a first-order method that begins with its last answer."""
        if self.solver is None:
            import osqp
            import scipy.sparse as sp

            self.solver, M = osqp.OSQP(), len(v)
            settings = {
                "eps_abs": PRECISION,
                "eps_rel": PRECISION,
                "max_iter": 20_000,
                "verbose": False,
                "polishing": False,
            }
            # Fixed intervals: what adapts by the clock would make the same call give different answers.
            self.solver.setup(
                P=sp.triu(2.0 * self.A, format="csc"),
                q=np.zeros(M),
                A=sp.eye(M, format="csc"),
                l=v,
                u=np.full(M, np.inf),
                adaptive_rho_interval=50,
                warm_starting=True,
                **settings,
            )
        else:
            self.solver.update(l=v)
        answer = self.solver.solve(raise_error=False)
        if answer.x is None or not np.isfinite(answer.x).all():
            return self.free
        return (answer.x - v) > np.maximum(-answer.y, 0.0) / np.diag(self.A)

    def _from_least_squares(self, v: np.ndarray) -> np.ndarray:
        """The same by non-negative least squares: l minimises l' A^-1 l - 2 l'v over l >= 0, and z > v where
        it is zero.
        """
        from scipy.optimize import nnls

        root = np.linalg.cholesky(self.A)
        inverse = np.linalg.inv(root)  # A^-1 = inverse' inverse
        lengths = nnls(inverse, root.T @ v, maxiter=50 * len(v))[0]
        return lengths <= 0


@dataclass(frozen=True, eq=False, repr=False)
class QuadraticNorm(Norm):
    """Which kernels go together, by a matrix: N(l) = min_{t >= l} t' E^-1 t.

    A diagonal E multiplies the kernels by its entries, with the plain sum (p = 2). Where E has positive
    entries beside the diagonal (the alignments of kernels, say), the dual penalises kernels that are active
    together, and weights even out; negative entries (the Laplacian of a graph of kernels) let neighbours
    share their weight.

    Parameters
    ----------
    E : array-like of shape (M, M)
        Symmetric and positive definite.

    Examples
    --------
    >>> norm = QuadraticNorm([[1.0, 0.0], [0.0, 2.0]])
    >>> norm.weights(np.array([3.0, 5.0])).tolist(), norm.dual(np.array([3.0, 5.0]))
    ([1.0, 2.0], 13.0)
    """

    E: np.ndarray

    def __post_init__(self):
        try:
            E = np.array(self.E, float)
        except (TypeError, ValueError):
            raise ValueError(f"E must be a matrix of numbers, got {self.E!r}") from None
        if E.ndim != 2 or E.shape[0] != E.shape[1] or not len(E):
            raise ValueError(
                f"E must be a square matrix, with a row and a column per kernel; got shape {E.shape}"
            )
        if not np.isfinite(E).all():
            raise ValueError("E contains NaN or infinity; all entries must be numbers")
        if np.abs(E - E.T).max() > SYMMETRIC * np.abs(E).max():
            raise ValueError(
                "E must be symmetric; its entries differ from those across the diagonal by up to "
                f"{np.abs(E - E.T).max():.3g}"
            )
        E = (E + E.T) / 2
        values = np.linalg.eigvalsh(E)
        if not values[0] > DEFINITE * max(values[-1], 0.0):
            raise ValueError(
                f"E must be positive definite; its eigenvalues lie between {values[0]:.3g} and "
                f"{values[-1]:.3g}"
            )
        E.setflags(write=False)
        object.__setattr__(self, "E", E)

    def __repr__(self) -> str:
        if len(self.E) <= SHOWN:
            return f"QuadraticNorm(E={self.E.tolist()})"
        return (
            f"QuadraticNorm(E=<{len(self.E)} x {len(self.E)}, "
            f"{hashlib.blake2b(self.E.tobytes(), digest_size=8).hexdigest()}>)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuadraticNorm) and np.array_equal(self.E, other.E)

    def __hash__(self) -> int:
        return hash((type(self), self.E.shape, self.E.tobytes()))

    def __reduce__(self) -> tuple:
        return QuadraticNorm, (np.array(self.E),)  # without the solvers

    def check(self, n_kernels):
        if len(self.E) != n_kernels:
            raise ValueError(
                f"E must have the shape {(n_kernels, n_kernels)}, a row and a column per kernel; got shape "
                f"{self.E.shape}"
            )

    @cached_property
    def _beside(self) -> np.ndarray:
        """Entries of E beside its diagonal, without what round-off has left of zeros."""
        found = self.E[~np.eye(len(self.E), dtype=bool)]
        return np.where(np.abs(found) > EXACT * np.abs(self.E).max(), found, 0.0)

    @property
    def fixed(self) -> bool:
        return not self._beside.any()

    @property
    def bounded(self) -> bool:
        return not np.any(self._beside > 0)

    @property
    def rises(self) -> bool:
        return not self.fixed and not np.any(self._beside < 0)

    @property
    def takes_zeros(self) -> bool:
        return True

    @property
    def damped(self) -> bool:
        return not self.bounded and not self.rises

    @cached_property
    def _above(self) -> Above:
        return Above(self.E)

    @cached_property
    def _above_inverse(self) -> Above:
        inverse = np.linalg.inv(self.E)
        return Above((inverse + inverse.T) / 2)

    # -- both sides --------------------------------------------------------------------------------

    def dual(self, s):
        v = np.sqrt(np.maximum(s, 0.0))
        return float(self._above.solve(v)[1] @ v)

    def primal(self, lengths):
        lengths = np.maximum(lengths, 0.0)
        return float(self._above_inverse.solve(lengths)[1] @ lengths)

    def weights(self, s):
        v = np.sqrt(np.maximum(s, 0.0))
        if v.max(initial=0.0) <= 0:
            return self.start(len(s))
        lengths = self._above.solve(v)[1]
        return lengths / np.where(v > 0, v, np.inf)

    def towards(self, theta, s):
        """Weights to go towards.

        From the lengths where no entry of E beside the diagonal is positive: theta_m = l_m / (E^-1 l)_m.

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
        if not self.bounded:
            return self.weights(s)
        lengths = theta * np.sqrt(s)
        if lengths.max(initial=0.0) <= 0:
            return self.start(len(theta))
        return lengths / np.maximum(self._above_inverse.solve(lengths)[1], TINY)

    def curvature(self, s):
        """Derivative of the weights.

        From d l / d v, which is the Schur complement of the part of E where z > v: H = diag(1/v) (dl/dv -
        diag(l/v)) diag(1/2v).

        Parameters
        ----------
        s : ndarray of shape (M,)
            Quadratic terms.

        Returns
        -------
        derivative : ndarray of shape (M, M), or None
            See `Norm.curvature`.
        """
        if self.fixed:
            return None
        v = np.sqrt(np.maximum(s, 0.0))
        _, lengths, free = self._above.solve(v)
        held = np.flatnonzero(~free & (v > 0))
        moving = self.E[np.ix_(held, held)]
        if free.any():
            across = self.E[np.ix_(free, held)]
            moving = moving - across.T @ np.linalg.solve(self.E[np.ix_(free, free)], across)
        v, found = v[held], np.zeros((len(s), len(s)))
        found[np.ix_(held, held)] = (moving - np.diag(lengths[held] / v)) / (2.0 * np.outer(v, v))
        return found
