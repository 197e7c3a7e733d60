"""Weights at p = 1 and very near it: the method of multipliers.

    max_a  dual_value(a) - 1/2 ||s(a)||_k,     s_m = a' K_m a,     k = p / (2p - 2): infinite at p = 1, where ||s||_k = max_m s_m

Kernels that are much alike have nearly the same s_m, and a small change of `a` makes the weights jump from one to another. So the
dual variables follow another norm, with an exponent h <= k small enough for them to see where its weights go,

    ||s||_(r,h) = (sum_m r_m s_m^h)^(1/h),     theta_m = r_m (s_m / ||s||_(r,h))^(h-1),     r_m = (last theta_m)^((k-h)/(k-1)),

whose reference r holds the weights of the last time. Where the weights come back as they went in, theta is the gradient of ||s||_k: the
optimum is that of the original problem, for every h; a larger h takes fewer renewals of r, and more steps in `a` between them.
At p = 1, r is the last theta and the steps are those of Tomioka and Suzuki's SpicyMKL, with a norm in place of their barrier.

Weights of such a norm are never zero. Once the certificate (always that of the original problem) is within the tolerance, small
ones are set to zero, and the certificate of what is left decides.

References
----------
Suzuki, Tomioka: SpicyMKL: a fast algorithm for multiple kernel learning with thousands of kernels. Machine Learning 85, 2011.
"""

from __future__ import annotations

from collections.abc import Iterator
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
# The reference is renewed once the dual variables' part of the gap is at most so many times the weights' part, or after so many rounds.
READY = 8.0
PATIENCE = 6
# References keep this part of the tolerance for kernels that may come back, and this much when the problem changes (another stage
# of a path), with the exponent at most this.
RESERVE = 0.1
LIFTED = 1e-2
EXPONENT_AGAIN = 8.0
# Weights settle once the gap is below so many times the tolerance: those below this part of the largest are dropped.
NEAR = 4.0
NEGLIGIBLE = 0.03
# A dropped kernel comes back if it alone costs this part of the tolerance. If the weights' part of the gap grows to so many times what
# it was to settle, that was too early: both numbers shrink.
MISSED = 0.25
FAR = 3.0
CLOSER = 0.5


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
        self.short = self.settling = False
        self.waited = 0
        self.negligible, self.near = NEGLIGIBLE, NEAR * self.tol
        self._renew(theta, reserve)

    def new_bounds(self, theta: np.ndarray) -> None:
        """Go on with another box for the dual variables, from the weights theta (M,) of the last one."""
        self.exponent = min(self.exponent, max(EXPONENT_AGAIN, self.smallest))
        self._begin(theta, LIFTED)

    def _renew(self, theta: np.ndarray, reserve: float) -> None:
        """Make theta (M,) the weights of the last time, with a reserve for kernels that have gone."""
        start = np.where(self.used, self.norm.start(len(theta)), 0.0)
        self.last = (1.0 - reserve) * self.norm.project(np.where(self.used, theta, 0.0)) + reserve * start

    @property
    def followed(self) -> TiltedNorm:
        """The norm that the dual variables follow until the next change."""
        k = self.norm.k
        power = 1.0 if np.isinf(k) else (k - self.exponent) / (k - 1.0)
        return TiltedNorm(self.norm, np.where(self.last > 0, self.last**power, 0.0), self.exponent)

    def after_step(self, t: float, theta: np.ndarray) -> np.ndarray:
        """Weights (M,) to certify after a step: theta (M,) are those of `followed` at its end, t in [0, 1] its length."""
        self.short = t < SHORT_STEP
        return self.norm.project(theta) if self.settling else theta

    def after_round(self, certificate: Certificate, theta: np.ndarray, s: np.ndarray) -> bool:
        """Move the reference and the exponent as the certificate asks; whether the weights it is of may be kept as they are.

        theta : (M,) the weights that were certified. s : (M,) quadratic terms of the dual point.
        """
        settled = self.settling or np.array_equal(self.norm.project(self._without_small(theta)), theta)
        self.waited += 1
        scale = max(abs(certificate.primal), TINY)
        svm_gap, weight_gap = certificate.svm_gap / scale, certificate.weight_gap / scale
        entering = not self.settling and certificate.gap <= self.near
        if self.settling and weight_gap > FAR * self.near:  # what was dropped is missed
            self.settling = False
            self.near, self.negligible = CLOSER * self.near, CLOSER * self.negligible
        self.settling = self.settling or entering
        ready = svm_gap <= READY * weight_gap
        if ready or entering or self.waited > PATIENCE:
            self.waited = 0
            if self.settling:
                self._renew_few(theta, s, 2.0 * MISSED * self.tol * scale)
            else:
                self._renew(theta, RESERVE * self.tol)
        if self.short:
            self.exponent = max(self.exponent / EXPONENT_FACTOR, self.smallest)
        elif ready:
            factor = EXPONENT_FACTOR if svm_gap > 0.1 * weight_gap else FAST_FACTOR
            self.exponent = min(factor * self.exponent, ENOUGH / self.tol, self.norm.k)
        return settled

    def _renew_few(self, theta: np.ndarray, s: np.ndarray, missed: float) -> None:
        """Make theta (M,) without its small entries the weights of the last time; kernels whose s is `missed` come back."""
        few = self._without_small(theta)
        if self.norm.p == 1:
            mean = np.empty(len(s))
            for member in self.norm.members:
                mean[member] = few[member] @ s[member] / max(few[member].sum(), TINY)
            few = np.where((few == 0) & self.used & (s - mean > missed), self.negligible * self.norm.largest(few), few)
        self.last = self.norm.project(few)

    def _without_small(self, theta: np.ndarray) -> np.ndarray:
        """theta (M,), at p = 1 without entries that are small beside the largest."""
        return np.where(theta >= self.negligible * self.norm.largest(theta), theta, 0.0) if self.norm.p == 1 else theta
