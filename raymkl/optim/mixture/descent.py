"""Descent of all machines at once, by batches of rows.

    min over coef_k, scales_k  of   1/2 ||coef_k||^2 + C sum_n share_nk loss_nk          for every cluster k
                               by itself

An epoch visits every row of a cluster once, in so many steps as the cluster needs; steps of all clusters
happen together. The rates of Adam's steps fall to zero along a cosine. K clusters, M classes, D frequencies,
d columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

# Steps of an epoch: small clusters would learn nothing from one batch, and of large ones batches grow
# instead.
LEAST_STEPS, MOST_STEPS = 8, 256
# Logarithms of the scales move at this part of the rate.
SCALES_RATE = 0.3
# Decay of the means of gradients and of their squares, and what keeps the latter from zero.
DECAY, SQUARE_DECAY, TINY = 0.9, 0.999, 1e-8
_MASK = (1 << 64) - 1


@dataclass
class Adam:
    """Where the descent is.

    coef : (K, M, 2 D). log_scales : (K, d). means, squares : moments of the gradients, of both. steps : (K,).
    """

    coef: np.ndarray
    log_scales: np.ndarray
    means: list[np.ndarray] = field(default_factory=list)
    squares: list[np.ndarray] = field(default_factory=list)
    steps: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.steps is None:
            self.steps = np.zeros(len(self.coef), np.int64)
            self.means = [np.zeros_like(self.coef), np.zeros_like(self.log_scales)]
            self.squares = [np.zeros_like(self.coef), np.zeros_like(self.log_scales)]

    def step(
        self, active: np.ndarray, gradients: tuple[np.ndarray, np.ndarray], rate: float, totals: np.ndarray
    ) -> None:
        """Move the machines of some clusters (A,), in place.

        gradients : (A, M, 2 D) and (A, d). totals : (K,) steps in all.
        """
        falling = 0.5 * rate * (1.0 + np.cos(np.pi * self.steps[active] / totals[active]))
        self.steps[active] += 1
        done = self.steps[active]
        every = len(active) == len(self.coef)
        rates = falling * np.sqrt(1.0 - SQUARE_DECAY**done) / (1.0 - DECAY**done)
        for place, (values, part) in enumerate(((self.coef, 1.0), (self.log_scales, SCALES_RATE))):
            gradient, size = gradients[place], (len(active),) + (1,) * (values.ndim - 1)
            mean, square = self.means[place], self.squares[place]
            m, s = (mean, square) if every else (mean[active], square[active])
            m *= DECAY
            m += (1.0 - DECAY) * gradient
            s *= SQUARE_DECAY
            s += (1.0 - SQUARE_DECAY) * gradient * gradient
            move = (part * rates).reshape(size) * m / (np.sqrt(s) + TINY)
            if every:
                values -= move
            else:
                values[active] -= move
                mean[active], square[active] = m, s


def steps_of_epoch(rows: np.ndarray, batch_size: int) -> np.ndarray:
    """(K,) steps of an epoch, of clusters with so many rows (K,); none for those without any."""
    steps = np.clip(-(-rows // batch_size), LEAST_STEPS, MOST_STEPS)
    return np.where(rows > 0, steps, 0).astype(np.int64)


def row_draws(seed: int, epoch: int, numbers: np.ndarray) -> np.ndarray:
    """(n,) numbers in [0, 1) that depend on the seed, the epoch and the row's number alone: its place in the
    epoch.

    A counter-based generator (splitmix64), so that a row has the same place wherever it is.
    """
    start = (_mixed(seed & _MASK) ^ _mixed((epoch * 0x9E3779B97F4A7C15 + 1) & _MASK)) & _MASK
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
