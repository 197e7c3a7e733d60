"""Losses of classification: targets y are +1 or -1, and alpha_i = y_i a_i."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, xlogy

from .loss import Loss, reciprocal, unbounded

# Shares alpha / c of the logistic loss stay this far from 0 and 1: nearer to 1 they could not be told apart
# from it.
SMALLEST_SHARE = 1e-15


@dataclass(frozen=True)
class Hinge(Loss):
    """loss(f, y) = max(0, 1 - y f),    term = alpha,    0 <= alpha <= c."""

    name = "hinge"

    def value(self, f, targets):
        return np.maximum(0.0, 1.0 - targets * f)

    def box(self, targets, bounds):
        return np.minimum(0.0, targets * bounds), np.maximum(0.0, targets * bounds)


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """loss(f, y) = 1/2 max(0, 1 - y f)^2,    term = alpha - alpha^2 / 2c,    0 <= alpha."""

    name = "squared_hinge"
    is_curved = True

    def value(self, f, targets):
        return 0.5 * np.maximum(0.0, 1.0 - targets * f) ** 2

    def box(self, targets, bounds):
        end = unbounded(bounds)
        return np.where(targets > 0, 0.0, -end), np.where(targets > 0, end, 0.0)


@dataclass(frozen=True)
class Logistic(Loss):
    """loss(f, y) = log(1 + exp(-y f)),    term = c (h(alpha/c) + h(1 - alpha/c)),  h(r) = -r log r,    0 <=
    alpha <= c.

    The slope of a term is the log odds y log((1 - r) / r) of its share r = alpha / c, infinite at both ends.
    Rows that no working set has met yet have a share of zero; those that one has met never have again.
    """

    name = "logistic"
    is_curved = True
    is_smooth = True

    def value(self, f, targets):
        return np.logaddexp(0.0, -targets * f)

    def box(self, targets, bounds):
        return np.minimum(0.0, targets * bounds), np.maximum(0.0, targets * bounds)

    @staticmethod
    def _share(a, targets, bounds):
        return np.clip(targets * a * reciprocal(bounds), SMALLEST_SHARE, 1.0 - SMALLEST_SHARE)

    def slope(self, a, targets, bounds):
        share = self._share(a, targets, bounds)
        return np.where(bounds > 0, targets * (np.log1p(-share) - np.log(share)), 0.0)

    def curvature(self, a, targets, bounds):
        share = self._share(a, targets, bounds)
        return reciprocal(bounds) / (share * (1.0 - share))

    def least_curvature(self, bounds):
        return 4.0 * reciprocal(bounds)

    def at_slope(self, u, targets, bounds):
        return targets * bounds * np.clip(expit(-targets * u), SMALLEST_SHARE, 1.0 - SMALLEST_SHARE)

    def conjugate(self, a, targets, bounds):
        share = targets * a * reciprocal(bounds)
        inside = (share >= -1e-9) & (share <= 1.0 + 1e-9) & ((bounds > 0) | (a == 0))
        share = np.clip(share, 0.0, 1.0)
        return np.where(inside, bounds * (xlogy(share, share) + xlogy(1.0 - share, 1.0 - share)), np.inf)
