"""Weights at p = 1 and very near it: the method of multipliers.

    max_a  dual_value(a) - 1/2 ||s(a)||_k,     s_m = a' K_m a,     k = p / (2p - 2): infinite at p = 1, where ||s||_k = max_m s_m

Kernels that are much alike have nearly the same s_m, and a small change of `a` makes the weights jump from one to another. So the
dual variables follow another norm, with an exponent h <= k small enough for them to see where its weights go,

    ||s||_(r,h) = (sum_m r_m s_m^h)^(1/h),     theta_m = r_m (s_m / ||s||_(r,h))^(h-1),     r_m = (last theta_m)^((k-h)/(k-1)),

whose reference r holds the weights of the last time. Where the weights come back as they went in, theta is the gradient of ||s||_k: the
optimum is that of the original problem, for every h; a larger h takes fewer renewals of r, and more steps in `a` between them.
At p = 1, r is the last theta and the steps are those of Tomioka and Suzuki's SpicyMKL, with a norm in place of their barrier.

Weights of such a norm are never zero. Once the certificate (always that of the original problem) is within the tolerance, the fewest
weights that make nearly the same f take their place, and are kept if their own certificate is within the tolerance, too. Nothing is
dropped earlier: a kernel without a reference would let its s grow as it likes.

References
----------
Suzuki, Tomioka: SpicyMKL: a fast algorithm for multiple kernel learning with thousands of kernels. Machine Learning 85, 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .certificate import Certificate
from .norms import TINY, GroupedNorm, LpNorm, Norm

# Exponent h to begin with, and how it grows: whenever the reference is renewed, and faster when the dual variables are well ahead of
# the weights. With ENOUGH / tol the norms differ by less than the tolerance whatever the reference is.
FIRST_EXPONENT = 4.0
EXPONENT_FACTOR = 2.0
FAST_FACTOR = 4.0
ENOUGH = 10.0
# A step that the line search cuts below this part saw too little of where the weights go; the exponent falls.
SHORT_STEP = 0.3
# The reference is renewed once the dual variables' part of the gap is at most so many times the weights' part, or after so many rounds;
# the exponent rises only if it is at most so many times.
READY = 8.0
PATIENCE = 6
RISE = 2.0
# References keep this part of the tolerance for kernels that may come back, and this much when the problem changes (another stage
# of a path), with the exponent at most this.
RESERVE = 0.1
LIFTED = 1e-2
EXPONENT_AGAIN = 8.0
# Weights to end with make f to this part of its length; if their gap is too large, to a smaller part. After so many attempts the dual
# variables go on, and at the end of so many such times only weights below this part of the largest are dropped.
LIKENESS = 3e-3
CLOSER = 0.25
CLOSEST = 1e-5
ATTEMPTS = 2
TIMES = 3
NOTHING = 1e-9


@dataclass(frozen=True)
class TiltedNorm(Norm):
    """The norm above, sum over the groups of `base`; reference : (M,) r, exponent : h."""

    base: LpNorm | GroupedNorm
    reference: np.ndarray
    exponent: float

    @property
    def p(self) -> float:
        return self.base.p

    @property
    def k(self) -> float:
        return self.exponent

    @property
    def members(self) -> list[np.ndarray | slice]:
        return self.base.members

    def _groups(self, s: np.ndarray) -> Iterator[tuple]:
        """(member, s, r, size) of every group."""
        for member in self.members:
            part, r = np.maximum(s[member], 0.0), self.reference[member]
            top = part.max(initial=0.0)
            size = top * float(r @ (part / top) ** self.exponent) ** (1.0 / self.exponent) if top > 0 else 0.0
            yield member, part, r, size

    def dual(self, s):
        return float(sum(size for *_, size in self._groups(s)))

    def weights(self, s):
        out = np.empty(len(s))
        for member, part, r, size in self._groups(s):
            out[member] = r * (part / size) ** (self.exponent - 1.0) if size > 0 else r
        return out

    def curvature(self, s):
        s = np.maximum(s, TINY)
        c, t = np.zeros(len(self.members)), np.zeros((len(self.members), len(s)))
        for g, (member, part, r, size) in enumerate(self._groups(s)):
            c[g] = (self.exponent - 1.0) / max(size, TINY)
            t[g, member] = r * (part / max(size, TINY)) ** (self.exponent - 1.0)
        return (self.exponent - 1.0) * t.sum(axis=0) / s, c, t


class Multipliers:
    """Reference and exponent of one head, and when they change."""

    def __init__(self, norm: LpNorm | GroupedNorm, theta: np.ndarray, used: np.ndarray, tol: float):
        """theta : (M,) weights to begin with. used : (M,) kernels that are not zero on all rows. tol : relative gap to reach."""
        self.norm, self.used, self.tol = norm, used, tol
        self.smallest = self.exponent = min(FIRST_EXPONENT, norm.k)
        self._begin(theta, RESERVE * tol)

    def _begin(self, theta: np.ndarray, reserve: float) -> None:
        self.short, self.waited = False, 0
        self.attempts, self.times, self.likeness = 0, 0, LIKENESS
        self._renew(theta, reserve)

    def new_bounds(self, theta: np.ndarray) -> None:
        """Go on with another box for the dual variables, from the weights theta (M,) of the last one."""
        self.exponent = min(self.exponent, max(EXPONENT_AGAIN, self.smallest))
        self._begin(theta, LIFTED)

    def _renew(self, theta: np.ndarray, reserve: float) -> None:
        """Make theta (M,) the weights of the last time, with a reserve for kernels that have gone."""
        start = self.norm.project(np.where(self.used, 1.0, 0.0))
        self.last = (1.0 - reserve) * self.norm.project(np.where(self.used, theta, 0.0)) + reserve * start

    @property
    def followed(self) -> TiltedNorm:
        """The norm that the dual variables follow until the next change."""
        k = self.norm.k
        power = 1.0 if np.isinf(k) else (k - self.exponent) / (k - 1.0)
        return TiltedNorm(self.norm, np.where(self.last > 0, self.last**power, 0.0), self.exponent)

    def after_step(self, t: float) -> None:
        """Take note of the length t in [0, 1] of a step along the dual of `followed`."""
        self.short = t < SHORT_STEP

    def after_round(self, certificate: Certificate, theta: np.ndarray, gram: Callable[[], np.ndarray]) -> np.ndarray | None:
        """Move the reference and the exponent as the certificate asks, or return weights (M,) whose certificate is wanted next.

        theta : (M,) the weights that were certified. gram : returns (M, M) inner products of the kernels' parts of f.
        """
        if self.attempts:  # these were weights to end with
            if certificate.gap <= self.tol:
                return None
            self.likeness = max(CLOSER * self.likeness, CLOSEST)
            self.attempts -= 1
            return self._weights_to_keep() if self.attempts else None
        self._follow(certificate, theta)
        if certificate.gap <= self.tol:
            self.dense, self.gram, self.attempts = theta, gram() if self.norm.p == 1 else None, ATTEMPTS
            self.times += 1
            few = self._weights_to_keep()
            if not np.array_equal(few, theta):
                return few
            self.attempts = 0
        return None

    def _follow(self, certificate: Certificate, theta: np.ndarray) -> None:
        """Renew the reference once the dual variables have answered the last one; a larger exponent once they do so with ease."""
        svm_gap, weight_gap = certificate.svm_gap, certificate.weight_gap
        self.waited += 1
        if svm_gap <= READY * weight_gap or self.waited > PATIENCE:
            self.waited = 0
            self._renew(theta, RESERVE * self.tol)
        if self.short:
            self.exponent = max(self.exponent / EXPONENT_FACTOR, self.smallest)
        elif svm_gap <= RISE * weight_gap:
            factor = EXPONENT_FACTOR if svm_gap > 0.1 * weight_gap else FAST_FACTOR
            self.exponent = min(factor * self.exponent, ENOUGH / self.tol, self.norm.k)

    def _weights_to_keep(self) -> np.ndarray:
        """Weights (M,) on the boundary of their ball that make nearly the same f; at p = 1 few of them, and in the last attempt all."""
        dense = self.norm.project(self.dense)
        if self.norm.p != 1:
            return dense
        if self.attempts == 1 and self.times >= TIMES:
            return self.norm.project(np.where(dense >= NOTHING * self.norm.largest(dense), dense, 0.0))
        few = few_weights(self.gram, dense, self.likeness)
        for member in self.norm.members:
            if not few[member].any():
                few[member] = dense[member]
        return self.norm.project(few)


def few_weights(gram: np.ndarray, theta: np.ndarray, likeness: float) -> np.ndarray:
    """Weights (M,) with few entries other than zero that make nearly the same function as theta.

        min_{x >= 0}  (x - theta)' gram (x - theta),    stopped when it is at most likeness^2 * theta' gram theta

    by the active-set method of Lawson and Hanson, which starts from zero and takes in one kernel after the other.
    gram : (M, M) inner products of the functions.
    """
    target, lengths = gram @ theta, np.sqrt(np.maximum(np.diag(gram), TINY))
    total, x, active = float(theta @ target), np.zeros(len(theta)), np.zeros(len(theta), bool)
    for _ in range(2 * len(theta)):
        if total - 2.0 * float(x @ target) + float(x @ gram @ x) <= likeness**2 * total:
            return x
        slope = np.where(active | (theta <= 0), -np.inf, (target - gram @ x) / lengths)
        if not slope.max() > 0:
            break
        active[slope.argmax()] = True
        while active.any():
            best = np.zeros(len(theta))
            best[active] = np.linalg.lstsq(gram[np.ix_(active, active)], target[active], rcond=1e-12)[0]
            if best[active].min() > 0:
                break
            falling = active & (best <= 0)
            part = np.min(x[falling] / np.maximum(x[falling] - best[falling], TINY))
            x = x + part * (best - x)
            active &= x > 1e-14 * x.max(initial=TINY)
            x[~active] = 0.0
        x = best
    return theta
