"""Machines of clusters as they travel: what a shard needs to compute losses and gradients of its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Layout:
    """What all machines have in common. n_features : D. n_classes : M. seed : of the noise. center : (d,)
    where features have angle 0.

    Angles are those of x - center, so that scales can be learned of columns that are far from zero; the model
    that is handed over has them of x (see `random_features.moved_origin`).
    """

    n_features: int
    n_classes: int
    seed: int
    center: np.ndarray


@dataclass(frozen=True)
class Machines:
    """One machine per cluster. coef : (K, M, 2 D). log_scales : (K, d). origins : (K,) whose noise they have.

    stamps : (K,) numbers that no two different machines of a run share: what was computed of a machine is
    known by its stamp.
    """

    coef: np.ndarray
    log_scales: np.ndarray
    origins: np.ndarray
    stamps: np.ndarray

    def take(self, chosen: np.ndarray) -> Machines:
        """Machines of some clusters, in another order."""
        return Machines(self.coef[chosen], self.log_scales[chosen], self.origins[chosen], self.stamps[chosen])

    def moved(self, coef: np.ndarray, log_scales: np.ndarray, stamps: np.ndarray) -> Machines:
        """The same after a descent."""
        return replace(self, coef=coef, log_scales=log_scales, stamps=stamps)

    @property
    def squared_norms(self) -> np.ndarray:
        """(K,) ||coef_k||^2."""
        return np.einsum("kmj,kmj->k", self.coef, self.coef)


@dataclass(frozen=True)
class Batch:
    """One step of the descent. coef, log_scales : of the clusters (A,) that take part in it, float32. epoch,
    step : where in the schedule.

    origins : (A,). clusters : (A,) their numbers. steps : (A,) of an epoch. seed : of the draws. scales :
    whether to move the scales.
    """

    clusters: np.ndarray
    coef: np.ndarray
    log_scales: np.ndarray
    origins: np.ndarray
    steps: np.ndarray
    epoch: int
    step: int
    seed: int
    scales: bool
