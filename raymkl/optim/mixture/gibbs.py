"""Collapsed Gibbs sampling of a Dirichlet process mixture of Gaussians: sticks and components are integrated
out.

    p(z_n = k | all others, x, y)   proportional to   N_k      t_k(x_n)  exp(-beta loss_k(x_n, y_n))      for
    a cluster that is there
                                                      alpha    t_0(x_n)  exp(-beta)                       for
                                                               a new one

t_k is the Student t that the other rows of cluster k predict. A new cluster has a machine of zeros, whose
loss is one. Taking a row out of a cluster, or in, changes its scatter by a matrix of rank one: inverse and
determinant follow without a fresh decomposition. Rows are u = x - m0 (n, d); slots are numbers of clusters,
of which some are empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log

import numpy as np
from numba import njit

from .posterior import Prior

# A slot's inverse and determinant are made anew after so many changes, so that round-off does not add up.
FRESH_AFTER = 512


@dataclass
class Slots:
    """Clusters of a sampler.

    counts : (S,). sums : (S, d). scatters, inverses : (S, d, d). logdets : (S,). changes : (S,) since fresh.
    """

    counts: np.ndarray
    sums: np.ndarray
    scatters: np.ndarray
    inverses: np.ndarray
    logdets: np.ndarray
    changes: np.ndarray

    @classmethod
    def of(cls, U: np.ndarray, labels: np.ndarray, n_slots: int, prior: Prior) -> Slots:
        """Slots of rows U (n, d) in clusters labels (n,)."""
        d = U.shape[1]
        counts = np.bincount(labels, minlength=n_slots).astype(np.float64)
        sums = np.zeros((n_slots, d))
        np.add.at(sums, labels, U)
        scatters = np.empty((n_slots, d, d))
        for k in range(n_slots):
            rows = U[labels == k]
            scatters[k] = (
                prior.scatter
                + rows.T @ rows
                - np.outer(sums[k], sums[k]) / (prior.mean_precision + counts[k])
            )
        return cls(
            counts,
            sums,
            scatters,
            np.linalg.inv(scatters),
            np.linalg.slogdet(scatters)[1],
            np.zeros(n_slots, np.int64),
        )

    def more(self, prior: Prior, inverse: np.ndarray, logdet: float) -> Slots:
        """The same and as many empty ones. inverse, logdet : of the prior's scatter."""
        S, d = self.sums.shape
        empty = (
            np.zeros(S),
            np.zeros((S, d)),
            np.tile(prior.scatter, (S, 1, 1)),
            np.tile(inverse, (S, 1, 1)),
            np.full(S, logdet),
        )
        mine = (self.counts, self.sums, self.scatters, self.inverses, self.logdets)
        joined = [np.concatenate(parts) for parts in zip(mine, empty, strict=True)]
        return Slots(*joined, np.concatenate([self.changes, np.zeros(S, np.int64)]))


@njit(cache=True, nogil=True)
def _refresh(k, scatters, inverses, logdets, changes):
    inverses[k] = np.linalg.inv(scatters[k])
    logdets[k] = np.linalg.slogdet(scatters[k])[1]
    changes[k] = 0


@njit(cache=True, nogil=True)
def _add(u, k, sign, tau0, counts, sums, scatters, inverses, logdets, changes):
    """Put a row into a cluster (sign = 1), or take it out (sign = -1).

    With the row in, S+ = S + c (u - m)(u - m)', m the mean without it and c = tau / (tau + 1), tau without
    it.
    """
    d = len(u)
    if sign > 0:
        tau = tau0 + counts[k]
        delta = u - sums[k] / tau
        c = tau / (tau + 1.0)
        counts[k] += 1.0
        sums[k] += u
    else:
        counts[k] -= 1.0
        sums[k] -= u
        if counts[k] < 0.5:
            counts[k] = 0.0
            sums[k] = 0.0
        tau = tau0 + counts[k]
        delta = u - sums[k] / tau
        c = -tau / (tau + 1.0)
    w = inverses[k] @ delta
    factor = 1.0 + c * (delta @ w)
    for i in range(d):
        for j in range(d):
            scatters[k, i, j] += c * delta[i] * delta[j]
    changes[k] += 1
    # Where little is left of the determinant, round-off is all of it.
    if factor < 1e-6 or changes[k] >= FRESH_AFTER:
        _refresh(k, scatters, inverses, logdets, changes)
        return
    for i in range(d):
        for j in range(d):
            inverses[k, i, j] -= c / factor * w[i] * w[j]
    logdets[k] += log(factor)


@njit(cache=True, nogil=True)
def _log_t(u, count, total, inverse, logdet, tau0, nu0):
    """log of the Student t density at u that a cluster predicts."""
    d = len(u)
    tau, nu = tau0 + count, nu0 + count
    delta = u - total / tau
    distance = delta @ (inverse @ delta)
    value = (
        lgamma((nu + 1.0) / 2.0)
        - lgamma((nu + 1.0 - d) / 2.0)
        + d / 2.0 * log(tau / (tau + 1.0) / np.pi)
        - logdet / 2.0
    )
    return value - (nu + 1.0) / 2.0 * np.log1p(tau / (tau + 1.0) * max(distance, 0.0))


@njit(cache=True, nogil=True)
def _sweep(
    first, U, labels, penalties, fresh, draws, alpha, new_penalty, tau0, nu0, S0, inverse0, logdet0, slots
):
    """Visit rows from `first` on; returns the row before which a free slot is wanted, or n."""
    counts, sums, scatters, inverses, logdets, changes = slots
    n, S = len(U), len(counts)
    zero = np.zeros(U.shape[1])
    logs = np.empty(S)
    for row in range(first, n):
        u = U[row]
        k = labels[row]
        empty = -1
        for s in range(S):
            if counts[s] == 0.0 or (s == k and counts[s] == 1.0):
                empty = s
                break
        if empty < 0:
            return row
        _add(u, k, -1.0, tau0, counts, sums, scatters, inverses, logdets, changes)
        if counts[k] == 0.0:  # it forgets its machine, too
            fresh[k] = True
        highest = -np.inf
        for s in range(S):
            if s == empty:
                logs[s] = log(alpha) + _log_t(u, 0.0, zero, inverse0, logdet0, tau0, nu0) - new_penalty
            elif counts[s] == 0.0:
                logs[s] = -np.inf
            else:
                penalty = new_penalty if fresh[s] else penalties[row, s]
                logs[s] = (
                    log(counts[s])
                    + _log_t(u, counts[s], sums[s], inverses[s], logdets[s], tau0, nu0)
                    - penalty
                )
            highest = max(highest, logs[s])
        total = 0.0
        for s in range(S):
            total += np.exp(logs[s] - highest)
        left, chosen = draws[row] * total, empty
        for s in range(S):
            if logs[s] > -np.inf:
                chosen = s
                left -= np.exp(logs[s] - highest)
                if left <= 0.0:
                    break
        labels[row] = chosen
        if chosen == empty:
            scatters[chosen], inverses[chosen], logdets[chosen], changes[chosen] = S0, inverse0, logdet0, 0
            fresh[chosen] = True
        _add(u, chosen, 1.0, tau0, counts, sums, scatters, inverses, logdets, changes)
    return n


def sweep(
    U: np.ndarray,
    labels: np.ndarray,
    penalties: np.ndarray,
    new_penalty: float,
    prior: Prior,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """One visit of every row. labels : (n,) slots before. penalties : (n, S) beta times the losses of the
    slots' machines, of every row.
    new_penalty : that of a machine of zeros.

    Returns labels (n,), and (S',) whether the cluster in a slot began during the sweep or is empty: it has no
    machine then. There are more slots than before where the sweep needed them.
    """
    n, row = len(U), 0
    U, labels, draws = np.ascontiguousarray(U), labels.astype(np.int64), random.random(n)
    inverse0, logdet0 = np.linalg.inv(prior.scatter), float(np.linalg.slogdet(prior.scatter)[1])
    slots = Slots.of(U, labels, penalties.shape[1], prior)
    fresh = slots.counts == 0
    while row < n:
        arrays = (slots.counts, slots.sums, slots.scatters, slots.inverses, slots.logdets, slots.changes)
        row = _sweep(
            row,
            U,
            labels,
            penalties,
            fresh,
            draws,
            float(prior.concentration),
            float(new_penalty),
            float(prior.mean_precision),
            float(prior.degrees_of_freedom),
            np.ascontiguousarray(prior.scatter),
            inverse0,
            logdet0,
            arrays,
        )
        if row < n:
            slots = slots.more(prior, inverse0, logdet0)
            more = len(slots.counts) - len(fresh)
            fresh = np.concatenate([fresh, np.ones(more, bool)])
            penalties = np.hstack([penalties, np.zeros((n, more))])
    return labels, fresh
