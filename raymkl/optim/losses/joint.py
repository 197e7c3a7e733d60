"""One loss over all classes: the margin between the right class and the best wrong one.

    loss_i = max_k( [k != y_i] + f_k(x_i) - f_{y_i}(x_i) )
    term_i = a_{i,y_i},      a_ik <= c_i [k = y_i],    sum_k a_ik = 0 for every row

Every class is a head with dual variables of its own, which share rows, kernels and weights; what couples them
is here. The derivative of the dual objective is `residual_ik = [k = y_i] - f_k(x_i)`, and a row is optimal
when no class that may grow has a larger residual than any other class. There is no intercept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .loss import Loss


@dataclass(frozen=True)
class JointHinge(Loss):
    """The part of one class. label : its number. Targets are the numbers of the rows' classes.

    term = a where it is the row's own class, else 0;    0 <= a <= c for rows of the class, -c <= a <= 0 for
    others.
    """

    label: int = 0
    name = "joint_hinge"
    is_joint = True

    def box(self, targets, bounds):
        own, bounds = targets == self.label, np.asarray(bounds, float)
        return np.where(own, 0.0, -bounds), np.where(own, bounds, 0.0)

    def linear(self, targets):
        return (np.asarray(targets) == self.label).astype(float)


def joint_losses(F: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(n,) losses. F : (n, K) decision values of all classes. targets : (n,) numbers of the rows' classes."""
    rows, own = np.arange(len(F)), np.asarray(targets, int)
    margins = F + 1.0
    margins[rows, own] -= 1.0
    return margins.max(axis=1) - F[rows, own]


def joint_violations(F: np.ndarray, A: np.ndarray, targets: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """(n,) how far every row is from optimal, given the others; zero for masked rows.

    A : (n, K) dual variables. bounds : (n,).
    """
    rows, own = np.arange(len(F)), np.asarray(targets, int)
    residual = -F
    residual[rows, own] += 1.0
    may_grow = A < 0.0
    may_grow[rows, own] = A[rows, own] < bounds
    top = np.where(may_grow, residual, -np.inf).max(axis=1)
    return np.where(bounds > 0, np.maximum(top - residual.min(axis=1), 0.0), 0.0)
