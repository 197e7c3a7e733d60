"""Prediction sets and intervals from the models of the folds, which have not seen the rows that they hold
out.

    strangeness   of x as one of class k is max_{l != k} f_l(x) - f_k(x), with f and -f for two classes
    sets          hold class k where (1 + #{i : strangeness_fold(i)(x, k) <= strangeness_fold(i)(x_i, y_i)})
                  / (n + 1) exceeds 1 - coverage (cross-conformal)
    intervals     reach from the floor((1 - coverage)(n + 1))-th smallest f_fold(i)(x) - |r_i|
                  to the ceil(coverage (n + 1))-th smallest f_fold(i)(x) + |r_i| (CV+)

with row i = 1..n held out by fold(i), and r_i = y_i - f_fold(i)(x_i). Both are promises about many rows, not
one.

References
----------
Vovk: Cross-conformal predictors. Annals of Mathematics and Artificial Intelligence 74, 2015.
Barber, Candès, Ramdas, Tibshirani: Predictive inference with the jackknife+. Annals of Statistics 49, 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..expansion import Expansion

# Bytes of the values of some new rows and all training rows that are looked at together.
TILE_BYTES = 32 * 2**20
# Numbers of rows are whole, whatever round-off makes of (1 - 0.9) * 10.
ROUND_OFF = 1e-9
# A new row that is a copy of a training row is as strange as that; its values come out of other sums, though.
TIE = 1e-9


@dataclass(frozen=True, eq=False)
class FoldModels:
    """The models of F folds with H decision values each, and how strange each training row is to its own.

    expansion : of F * H heads, those of a fold next to each other, over the union of their support rows, so
    that new rows cost one pass of kernel values. intercepts : (F * H,). fold : (n,) the fold that holds each
    training row out. scores : (n,) strangeness of its own class, or |r_i|.
    """

    expansion: Expansion
    intercepts: np.ndarray
    fold: np.ndarray
    scores: np.ndarray

    def __repr__(self) -> str:
        return f"FoldModels({self.n_folds} folds of {len(self.fold)} rows, {self.expansion!r})"

    @property
    def n_folds(self) -> int:
        return int(self.fold.max()) + 1

    def scores_of(self, fold: int) -> np.ndarray:
        """Sorted scores of the rows that a fold holds out."""
        return np.sort(self.scores[self.fold == fold])

    def check(self, n_values: int) -> None:
        """Raise ValueError for parts that do not fit each other, as a file may have them.

        n_values : decision values of a fold per row.
        """
        arrays = all(
            isinstance(part, np.ndarray) and part.ndim == 1
            for part in (self.intercepts, self.fold, self.scores)
        )
        fine = (
            isinstance(self.expansion, Expansion)
            and arrays
            and len(self.fold) == len(self.scores) == self.expansion.n_train
        )
        if fine:
            folds = np.unique(self.fold)
            fine = (
                (self.fold.dtype.kind in "iu" and self.scores.dtype.kind == self.intercepts.dtype.kind == "f")
                and (len(folds) > 0 and folds[0] == 0 and folds[-1] == len(folds) - 1)
                and len(self.intercepts) == len(folds) * n_values == len(self.expansion.weights)
                and not np.isnan(self.scores).any()
            )
        if not fine:
            raise ValueError("the parts of the model do not fit together: its folds")


def check_coverage(coverage: Any) -> float:
    """coverage as a float in (0, 1); else ValueError."""
    if not (isinstance(coverage, Real) and not isinstance(coverage, bool | np.bool_) and 0 < coverage < 1):
        raise ValueError(
            f"coverage must be a number in (0, 1), the part of new rows to cover; got {coverage!r}"
        )
    return float(coverage)


def strangeness(values: np.ndarray) -> np.ndarray:
    """(n, n_classes) from decision values (n, 1) of two classes, or (n, n_classes)."""
    if values.shape[1] == 1:
        return 2.0 * np.concatenate([values, -values], axis=1)
    best = values.argmax(axis=1)
    rows, others = np.arange(len(values)), values.copy()
    others[rows, best] = -np.inf
    rivals = np.repeat(values[rows, best][:, None], values.shape[1], axis=1)
    rivals[rows, best] = others.max(axis=1)
    return rivals - values


def sets(values: np.ndarray, models: FoldModels, coverage: float) -> np.ndarray:
    """(n_new, n_classes) bool, classes that fit.

    values : (n_new, F * H) decision values of the models of the folds.
    """
    n, per_fold, total = len(models.scores), values.shape[1] // models.n_folds, 0
    for fold in range(models.n_folds):
        new, old = strangeness(values[:, fold * per_fold : (fold + 1) * per_fold]), models.scores_of(fold)
        total = total + (
            len(old) - np.searchsorted(old, new - TIE * np.maximum(np.abs(new), 1.0), side="left")
        )
    return 1 + total > (1.0 - coverage) * (n + 1) + ROUND_OFF


def intervals(values: np.ndarray, models: FoldModels, coverage: float) -> np.ndarray:
    """(n_new, 2) lower and upper ends, infinite where n is too small to say.

    values : (n_new, F) predictions of the models of the folds.
    """
    n = len(models.scores)
    low, high = (
        int(np.floor((1.0 - coverage) * (n + 1) + ROUND_OFF)),
        int(np.ceil(coverage * (n + 1) - ROUND_OFF)),
    )
    ends = np.empty((len(values), 2))
    ends[:] = -np.inf, np.inf
    step = max(1, TILE_BYTES // (8 * n))
    for start in range(0, len(values), step):
        part = slice(start, start + step)
        at = values[part][:, models.fold]
        if low >= 1:
            ends[part, 0] = np.partition(at - models.scores, low - 1, axis=1)[:, low - 1]
        if high <= n:
            ends[part, 1] = np.partition(at + models.scores, high - 1, axis=1)[:, high - 1]
    return ends
