"""Mirror descent by dual averaging, as far as it knows nothing of rows: weights of kernels, lost margins,
certificates, row orders.

    min_w  1/2 ||w||_{2,p}^2 + sum_m rho_m ||w_m|| + sum_i C_i max_k( [k != y_i] + f_k(x_i) - f_{y_i}(x_i) ),
           f_k = sum_m <w_km, phi_m>

A row whose best wrong class comes within one of the right one has lost its margin: N[i, y_i] grows by the
row's weight c_i, N[i, k] of the wrong class falls by it. After t visits, with theta_m = sum_i phi_m(x_i) N_i,
n rows in all and alpha = 1/(C n),

    w_m = mu_m theta_m / (alpha t),     mu_m = nu_m^(q-1) / (||nu||_q^(q-2) ||theta_m||),     nu_m =
    (||theta_m|| - t price_m)_+

At the end of an epoch every row was visited t / n times, so `A = C n N / t` has a_ik <= C_i [k = y_i] and
rows that sum to zero: it is
feasible in the dual problem  max_a sum_i a_{i,y_i} - 1/2 || ( (sqrt(s_m) - rho_m)_+ )_m ||_q^2,  s_m = sum_k
a_k' K_m a_k.  There is no
further price for primal value, dual value and gap than the losses of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# Scores that differ by less than this part of their size are taken for equal: round-off, another one for
# every number of shards, does not decide between them.
SAME_SCORE = 1e-10
# Streams of random numbers of one seed.
ORDER, LANDMARKS = 0, 1


@dataclass(frozen=True)
class Task:
    """What is to be learned, besides rows.

    y : (n,) classes 0..K-1. weights : (n,) of the rows, 0 for those that do not count. C, q : of the problem.
    prices : (M,) beta times the cost of every kernel; rho_m = prices[m] * sum_i C_i. batch_size, max_iter,
    tol, seed : of the run. window : rows that are shuffled among each other, or None for all.
    """

    y: np.ndarray
    weights: np.ndarray
    n_classes: int
    C: float
    q: float
    prices: np.ndarray
    batch_size: int
    max_iter: int
    tol: float
    seed: int
    window: int | None = None

    @property
    def n(self) -> int:
        """Rows that count."""
        return int(np.count_nonzero(self.weights))

    @property
    def mean_weight(self) -> float:
        return float(self.weights.sum()) / self.n

    def scale(self, t: int) -> float:
        """What makes a dual point of N after t visits: 1 / (alpha t)."""
        return self.C * self.n / t if t else 0.0

    def kernel_weights(self, squares: np.ndarray, t: int) -> np.ndarray:
        """(M,) mu after t visits. squares : (M,) ||theta_m||^2."""
        return kernel_weights(np.sqrt(np.maximum(squares, 0.0)), t * self.mean_weight * self.prices, self.q)

    def certificate(self, squares: np.ndarray, gain: float, losses: float, t: int) -> dict:
        """Primal value, dual value and relative gap at the end of an epoch, t visits.

        squares : (M,) ||theta_m||^2. gain : sum_i N[i, y_i]. losses : sum_i c_i loss_i at w.
        """
        scale = self.scale(t)
        lengths = scale * np.sqrt(np.maximum(squares, 0.0))
        rho = self.C * float(self.weights.sum()) * self.prices
        mu = self.kernel_weights(squares, t)
        w = mu * lengths
        p = self.q / (self.q - 1.0)
        primal = 0.5 * norm(w, p) ** 2 + float(rho @ w) + self.C * losses
        dual = scale * gain - 0.5 * norm(np.maximum(lengths - rho, 0.0), self.q) ** 2
        return {"primal": primal, "dual": dual, "gap": (primal - dual) / max(abs(primal), 1e-300)}


def norm(values: np.ndarray, p: float) -> float:
    """p-norm of values >= 0, without overflow."""
    largest = float(values.max(initial=0.0))
    return largest * float(np.sum((values / largest) ** p)) ** (1.0 / p) if largest > 0 else 0.0


def kernel_weights(lengths: np.ndarray, prices: np.ndarray, q: float) -> np.ndarray:
    """(M,) mu of lengths ||theta_m|| and what they are lowered by; 0 for kernels that are not worth their
    price.
    """
    nu = np.maximum(lengths - prices, 0.0)
    largest = float(nu.max(initial=0.0))
    if largest <= 0.0:
        return np.zeros(len(nu))
    part = nu / largest
    size = float(np.sum(part**q)) ** (1.0 / q)
    return np.where(
        nu > 0, part ** (q - 1.0) * (largest / size ** (q - 2.0)) / np.where(nu > 0, lengths, 1.0), 0.0
    )


def exponent(p: float | None, n_kernels: int) -> float:
    """q = p / (p - 1) of the block norm; max(2, 2 log M) for None."""
    return max(2.0, 2.0 * np.log(n_kernels)) if p is None else p / (p - 1.0)


def lost_margins(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(b, K) what rows add to N: their weight for the right class, minus it for the best wrong one, if it
    comes within one of it.
    """
    rows = np.arange(len(y))
    rival = scores + 1.0
    rival[rows, y] = -np.inf
    slack = SAME_SCORE * (1.0 + np.abs(scores).max(axis=1))
    best = (rival >= (rival.max(axis=1) - slack)[:, None]).argmax(axis=1)  # the first of equals
    lost = np.flatnonzero(rival[rows, best] > scores[rows, y] + slack)
    change = np.zeros_like(scores)
    change[lost, y[lost]] = weights[lost]
    change[lost, best[lost]] = -weights[lost]
    return change


def row_losses(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n,) max_k( [k != y_i] + f_k(x_i) - f_{y_i}(x_i) ). scores : (n, K)."""
    rows = np.arange(len(y))
    rival = scores + 1.0
    rival[rows, y] = scores[rows, y]
    return rival.max(axis=1) - scores[rows, y]


def visits(
    ids: np.ndarray, seed: int, epoch: int, window: int | None = None
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Row numbers of an epoch in the order of their visits, as (first, last, ids): those of first <= i <
    last, in random order.

    ids : (n,) ascending numbers of all rows that count. window : how far first and last are apart at most;
    None puts no end to it.
    """
    random = np.random.default_rng([seed, ORDER, epoch])
    end = int(ids[-1]) + 1
    step = end if window is None else window
    for first in range(0, end, step):
        last = min(first + step, end)
        inside = ids[slice(*np.searchsorted(ids, (first, last)))]
        if len(inside):
            yield first, last, random.permutation(inside)


def choose_landmarks(ids: np.ndarray, count: int, seed: int) -> np.ndarray:
    """(count,) ascending numbers of rows, out of ids (n,)."""
    return np.sort(np.random.default_rng([seed, LANDMARKS]).choice(ids, count, replace=False))
