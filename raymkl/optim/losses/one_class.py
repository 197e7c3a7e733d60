"""The loss of novelty detection, where there are no targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .loss import Loss


@dataclass(frozen=True)
class OneClass(Loss):
    """loss(f) = max(0, -f),    term = 0,    0 <= a <= c,    sum_i a_i = nu sum_i c_i,    and f has the
    intercept b = -rho.

    The primal problem adds `nu sum_i c_i * b`: the level rho that most rows are to exceed is pushed up.
    """

    name = "one_class"

    def value(self, f, targets):
        return np.maximum(0.0, -f)

    def box(self, targets, bounds):
        return np.zeros(len(bounds)), np.asarray(bounds, float)

    def linear(self, targets):
        return np.zeros(len(targets))

    def start(self, targets, bounds, total):
        """Rows at their upper end, spread evenly over the data, until their sum is the total."""
        a, used = np.zeros(len(bounds)), np.flatnonzero(bounds > 0)
        count = min(int(np.ceil(total / max(bounds[used].mean(), 1e-300))), len(used))
        spread = used[np.arange(count) * len(used) // max(count, 1)]
        order = np.concatenate([spread, np.setdiff1d(used, spread, assume_unique=True)])
        filled = np.cumsum(bounds[order])
        a[order] = np.clip(total - (filled - bounds[order]), 0.0, bounds[order])
        return a
