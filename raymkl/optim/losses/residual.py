"""Losses of regression: targets y are numbers.

(The squared loss serves classification, too, with targets +1 and -1.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .loss import Loss, unbounded


@dataclass(frozen=True)
class Squared(Loss):
    """loss(f, y) = 1/2 (y - f)^2,    term = y a - a^2 / 2c,    no box."""

    name = "squared"
    is_curved = True
    is_smooth = True

    def value(self, f, targets):
        return 0.5 * (targets - f) ** 2

    def box(self, targets, bounds):
        end = unbounded(bounds)
        return -end, end

    def at_slope(self, u, targets, bounds):
        return bounds * (targets - u)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """loss(f, y) = max(0, |y - f| - epsilon),    term = y a - epsilon |a|,    |a| <= c.

    a_i > 0 where f is too small (y_i - f > epsilon at the bound), a_i < 0 where it is too large, a_i = 0
    inside the tube.
    """

    epsilon: float = 0.1
    name = "epsilon_insensitive"

    @property
    def kink(self):
        return self.epsilon

    def value(self, f, targets):
        return np.maximum(0.0, np.abs(targets - f) - self.epsilon)

    def box(self, targets, bounds):
        return -np.asarray(bounds, float), np.asarray(bounds, float)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """loss(f, y) = 1/2 max(0, |y - f| - epsilon)^2,    term = y a - epsilon |a| - a^2 / 2c,    no box."""

    epsilon: float = 0.1
    name = "squared_epsilon_insensitive"
    is_curved = True

    @property
    def kink(self):
        return self.epsilon

    def value(self, f, targets):
        return 0.5 * np.maximum(0.0, np.abs(targets - f) - self.epsilon) ** 2

    def box(self, targets, bounds):
        end = unbounded(bounds)
        return -end, end


@dataclass(frozen=True)
class Huber(Loss):
    """loss(f, y) = r^2 / 2 for |r| <= delta, else delta |r| - delta^2 / 2, r = y - f,    term = y a - a^2 /
    2c,    |a| <= c delta.
    """

    delta: float = 1.0
    name = "huber"
    is_curved = True

    def value(self, f, targets):
        size = np.abs(targets - f)
        inner = np.minimum(size, self.delta)
        return inner * (size - 0.5 * inner)

    def box(self, targets, bounds):
        end = self.delta * np.asarray(bounds, float)
        return -end, end


@dataclass(frozen=True)
class Quantile(Loss):
    """loss(f, y) = max(t (y - f), (t - 1)(y - f)),    term = y a,    c (t - 1) <= a <= c t."""

    quantile: float = 0.5
    name = "quantile"

    def value(self, f, targets):
        residual = targets - f
        return np.maximum(self.quantile * residual, (self.quantile - 1.0) * residual)

    def box(self, targets, bounds):
        bounds = np.asarray(bounds, float)
        return (self.quantile - 1.0) * bounds, self.quantile * bounds
