"""Weights at p = 1 and very near it: the method of multipliers.

    max_a  dual_value(a) - 1/2 ||s(a)||_k,     s_m = a' K_m a,     k = p / (2p - 2): infinite at p = 1, where
           ||s||_k = max_m s_m

Kernels that are much alike have nearly the same s_m, and a small change of `a` makes the weights jump from
one to another. So the dual variables follow another norm, with an exponent h <= k small enough for them to
see where its weights go,

    ||s||_(r,h) = (sum_m r_m s_m^h)^(1/h),     theta_m = r_m (s_m / ||s||_(r,h))^(h-1),
    r_m = (last theta_m)^((k-h)/(k-1)),

whose reference r holds the weights of the last time. Where the weights come back as they went in, theta is
the gradient of ||s||_k: the optimum is that of the original problem, for every h; a larger h takes fewer
renewals of r, and more steps in `a` between them. At p = 1, r is the last theta and the steps are those of
Tomioka and Suzuki's SpicyMKL, with a norm in place of their barrier.

A norm over groups has two levels, theta_m = w_g u_m, and a reference on those of them whose exponent is
large: r_m for the weights u_m within the groups, R_g for the weights w_g of the groups,

    S_g = (sum_{m in g} r_m s_m^h)^(1/h),      T = (sum_g R_g S_g^H)^(1/H),      u_m = dS_g/ds_m,   w_g =
    dT/dS_g;

the other level stays as it is, with a reference of one and its own exponent.

Weights of such a norm are never zero. Once the certificate (always that of the original problem) is within
the tolerance, the fewest weights that make nearly the same f take their place, and are kept if their own
certificate is within the tolerance, too. Nothing is dropped earlier: a kernel without a reference would let
its s grow as it likes.

References
----------
Suzuki, Tomioka: SpicyMKL: a fast algorithm for multiple kernel learning with thousands of kernels. Machine
Learning 85, 2011.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..certificate import Certificate
from ..norms import TINY, GroupedNorm, LpNorm, Norm

# Dual exponents beyond this make the weights jump between kernels; a calmer norm, or the fixed point, is
# better there.
LARGEST_FOLLOWED_EXPONENT = 64.0
# Exponent h to begin with, and how it grows: whenever the reference is renewed, and faster when the dual
# variables are well ahead of the weights. With ENOUGH / tol the norms differ by less than the tolerance
# whatever the reference is.
FIRST_EXPONENT = 4.0
EXPONENT_FACTOR = 2.0
FAST_FACTOR = 4.0
ENOUGH = 10.0
# A step that the line search cuts below this part saw too little of where the weights go; the exponent falls.
SHORT_STEP = 0.3
# The reference is renewed once the dual variables' part of the gap is at most so many times the weights'
# part, or after so many rounds; the exponent rises only if it is at most so many times.
READY = 8.0
PATIENCE = 6
RISE = 2.0
# References keep this part of the tolerance for kernels that may come back, and this much when the problem
# changes (another stage of a path), with the exponent at most this.
RESERVE = 0.1
LIFTED = 1e-2
EXPONENT_AGAIN = 8.0
# Weights to end with make f to this part of its length; if their gap is too large, to a smaller part. After
# so many attempts the dual variables go on, and at the end of so many such times only weights below this part
# of the largest are dropped. Where even that costs too much (f is a small difference of large numbers),
# weights are kept as they are from so many times on.
LIKENESS = 3e-3
CLOSER = 0.25
CLOSEST = 1e-5
ATTEMPTS = 2
TIMES = 3
KEPT_AFTER = 6
NOTHING = 1e-9


@dataclass(frozen=True)
class TiltedNorm(Norm):
    """The norm above over the groups of `base`; reference : (M,) r, exponent : h, and the same of the groups:
    (G,) R, H.

    Without a reference of the groups their norms add up, as they do for H = 1.
    """

    base: LpNorm | GroupedNorm
    reference: np.ndarray
    exponent: float
    outer_reference: np.ndarray | None = None
    outer_exponent: float = 1.0

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
        sizes = [size for *_, size in self._groups(s)]
        return float(sum(sizes)) if self.outer_reference is None else self._outside(np.array(sizes))[0]

    def _outside(self, sizes: np.ndarray) -> tuple[float, np.ndarray]:
        """T, and the weights (G,) of the groups. sizes : (G,) S_g."""
        R, power, top = self.outer_reference, self.outer_exponent, sizes.max()
        if top <= 0:
            return 0.0, R
        total = top * float(R @ (sizes / top) ** power) ** (1.0 / power)
        return total, R * _power(sizes / max(total, TINY), power - 1.0)

    def weights(self, s):
        out, sizes = np.empty(len(s)), np.zeros(len(self.members))
        for g, (member, part, r, size) in enumerate(self._groups(s)):
            out[member] = r * _power(part / size, self.exponent - 1.0) if size > 0 else r
            sizes[g] = size
        if self.outer_reference is None:
            return out
        return out * self._outside(sizes)[1][self.base.index]

    def curvature(self, s):
        s = np.maximum(s, TINY)
        G, power = len(self.members), self.exponent - 1.0
        c, t, sizes = np.zeros(G), np.zeros((G, len(s))), np.zeros(G)
        for g, (member, part, r, size) in enumerate(self._groups(s)):
            sizes[g] = size
            c[g] = power / max(size, TINY)
            t[g, member] = r * (part / max(size, TINY)) ** power
        if self.outer_reference is None:
            return power * t.sum(axis=0) / s, c, t
        total, outside = self._outside(sizes)
        theta = t.sum(axis=0) * outside[self.base.index]
        c = (self.exponent - self.outer_exponent) * outside / np.maximum(sizes, TINY)
        return (
            power * theta / s,
            np.append(c, (self.outer_exponent - 1.0) / max(total, TINY)),
            np.vstack([t, theta]),
        )


def _power(values: np.ndarray, exponent: float) -> np.ndarray:
    """values^exponent, zero for values of zero: weights do not become infinite."""
    if exponent >= 0:
        return values**exponent
    return np.where(values > 0, np.where(values > 0, values, 1.0) ** exponent, 0.0)


class Multipliers:
    """Reference and exponent of one head, and when they change."""

    def __init__(self, norm: LpNorm | GroupedNorm, theta: np.ndarray, used: np.ndarray, tol: float):
        """theta : (M,) weights to begin with.

        used : (M,) kernels that are not zero on all rows. tol : relative gap to reach.
        """
        self.norm, self.used, self.tol = norm, used, tol
        self.smallest = self.exponent = min(FIRST_EXPONENT, max(norm.exponents))
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
        """Make theta (M,) the weights of the last time, with a reserve for kernels and groups that have
        gone.
        """
        norm, theta, ones = self.norm, np.where(self.used, theta, 0.0), np.where(self.used, 1.0, 0.0)
        if norm.between.fixed:
            self.last, self.last_outside = (
                (1.0 - reserve) * norm.project(theta) + reserve * norm.project(ones),
                None,
            )
            return
        present = np.array([bool(self.used[member].any()) for member in norm.members])
        outside = norm.between.project(np.array([norm.inner.gauge(theta[member]) for member in norm.members]))
        uniform = norm.between.project(present.astype(float))
        self.last_outside = np.where(present, (1.0 - reserve) * outside + reserve * uniform, 0.0)
        self.last = np.empty(len(theta))
        for member in norm.members:
            inside = (
                theta[member] if theta[member].any() else ones[member]
            )  # a group that has gone forgets its weights
            self.last[member] = (1.0 - reserve) * norm.inner.project(inside) + reserve * norm.inner.project(
                ones[member]
            )

    @property
    def followed(self) -> TiltedNorm:
        """The norm that the dual variables follow until the next change."""
        inside = _tilted(self.last, self.norm.inner.k, self.exponent)
        if self.last_outside is None:
            return TiltedNorm(self.norm, *inside)
        return TiltedNorm(self.norm, *inside, *_tilted(self.last_outside, self.norm.between.k, self.exponent))

    def after_step(self, t: float) -> None:
        """Take note of the length t in [0, 1] of a step along the dual of `followed`."""
        self.short = t < SHORT_STEP

    def after_round(
        self, certificate: Certificate, theta: np.ndarray, gram: Callable[[], np.ndarray]
    ) -> np.ndarray | None:
        """Move the reference and the exponent as the certificate asks, or return weights (M,) whose
        certificate is wanted next.

        theta : (M,) the weights that were certified. gram : returns (M, M) inner products of the kernels'
        parts of f.
        """
        if self.attempts:  # these were weights to end with
            if certificate.gap <= self.tol:
                return None
            self.likeness = max(CLOSER * self.likeness, CLOSEST)
            self.attempts -= 1
            return self._weights_to_keep() if self.attempts else None
        self._follow(certificate, theta)
        if certificate.gap <= self.tol:
            self.dense, self.gram, self.attempts = theta, gram() if self.norm.selects else None, ATTEMPTS
            self.times += 1
            few = self._weights_to_keep()
            if not np.array_equal(few, theta):
                return few
            self.attempts = 0
        return None

    def _follow(self, certificate: Certificate, theta: np.ndarray) -> None:
        """Renew the reference once the dual variables have answered the last one; a larger exponent once they
        do so with ease.
        """
        svm_gap, weight_gap = certificate.svm_gap, certificate.weight_gap
        self.waited += 1
        if svm_gap <= READY * weight_gap or self.waited > PATIENCE:
            self.waited = 0
            self._renew(theta, RESERVE * self.tol)
        if self.short:
            self.exponent = max(self.exponent / EXPONENT_FACTOR, self.smallest)
        elif svm_gap <= RISE * weight_gap:
            factor = EXPONENT_FACTOR if svm_gap > 0.1 * weight_gap else FAST_FACTOR
            self.exponent = min(factor * self.exponent, ENOUGH / self.tol, max(self.norm.exponents))

    def _weights_to_keep(self) -> np.ndarray:
        """Weights (M,) on the boundary of their ball that make nearly the same f; few of them where the norm
        selects kernels or groups (p = 1, say), and in the last attempt all.
        """
        if self.times > KEPT_AFTER:
            return self.dense
        norm, dense = self.norm, self.norm.project(self.dense)
        if norm.selects is None:
            return dense
        if self.attempts == 1 and self.times >= TIMES:
            return norm.project(np.where(dense >= NOTHING * norm.largest(dense), dense, 0.0))
        if norm.selects == "groups":
            # The function of a group is that of its weights on the boundary of its ball, times the weight of
            # the group.
            outside, parts = np.zeros(len(norm.members)), np.zeros((len(norm.members), len(dense)))
            for g, member in enumerate(norm.members):
                outside[g] = norm.inner.gauge(dense[member])
                parts[g, member] = dense[member] / max(outside[g], TINY)
            return norm.project(few_weights(parts @ self.gram @ parts.T, outside, self.likeness) @ parts)
        few = few_weights(self.gram, dense, self.likeness)
        for member in norm.members:
            if not few[member].any() and norm.between.p > 1:
                few[member] = dense[member]
        return norm.project(few)


def _tilted(last: np.ndarray, k: float, exponent: float) -> tuple[np.ndarray, float]:
    """Reference and exponent of a level, from the weights of the last time and its own exponent k."""
    if k <= LARGEST_FOLLOWED_EXPONENT:
        return np.where(last > 0, 1.0, 0.0), k
    exponent = min(exponent, k)
    power = 1.0 if np.isinf(k) else (k - exponent) / (k - 1.0)
    return np.where(last > 0, last**power, 0.0), exponent


def few_weights(gram: np.ndarray, theta: np.ndarray, likeness: float) -> np.ndarray:
    """Weights (M,) with few entries other than zero that make nearly the same function as theta.

        min_{x >= 0}  (x - theta)' gram (x - theta),    stopped when it is at most likeness^2 * theta' gram
        theta

    by the active-set method of Lawson and Hanson, which starts from zero and takes in one kernel after the
    other.
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
