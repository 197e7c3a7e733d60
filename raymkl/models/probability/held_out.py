"""The folds of a fit as heads beside it, and what comes of their decision values for rows they hold out.

The fit on all rows and its folds are heads over one set of kernel blocks. A fold is a row mask, comes after
the head of the same class on all rows, and begins where that has ended. Its constants of `normalize` and its
class weights are those of its own training rows.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ...data.lazy_rows import fetch
from ...data.views import subset
from ...engine import Head
from ...engine.session import SessionRows
from ..description.diagonals import spherical_gates
from ..expansion import Expansion
from ..sources import SourceInput
from .conformal import FoldModels
from .splits import Splits, partition_of

# What a fit with folds beside it leaves in an estimator.
LEFT = ("folds_", "fold_gaps_", "held_out_decision_", "calibration_", "fold_models_")
# Training rows whose decision values are computed at a time.
ROWS_AT_ONCE = 4_096


@dataclass(eq=False)
class FoldsBeside:
    """Folds of a fit: heads to train beside those of all rows, and then their results.

    splits : (train, test) row numbers. heads : F * H, those of a fold next to each other. shifts : (F,) what
    is added to decision values.
    results : of the heads. rows, gates, gate_of_entry : all training rows by view key, their gates (n, J) and
    the gate of every entry.
    """

    splits: Splits
    heads: list[Head]
    shifts: np.ndarray
    results: list = field(default_factory=list)
    rows: Any = None
    gates: np.ndarray | None = None
    gate_of_entry: list[int] | None = None

    @classmethod
    def of(
        cls,
        estimator: Any,
        y: np.ndarray,
        sample_weight: np.ndarray | None,
        splits: Splits,
        path: tuple[float, ...],
    ) -> FoldsBeside:
        """Folds of rows with targets y (n,), for a path over C.

        The heads of all rows come before them, in the order of the classes.
        """
        heads: list[Head] = []
        shifts = np.zeros(len(splits))
        for fold, (train, test) in enumerate(splits):
            try:
                own, held_out = estimator._fold(y, sample_weight, train)
            except ValueError as error:
                raise ValueError(f"fold {fold} of cv: {error}") from None
            shifts[fold] = getattr(held_out, "shift", 0.0)
            for place, head in enumerate(own):
                head.path, head.watch, head.after = path, test, place
                head.group = None if head.group is None else 1 + fold
            heads += own
        return cls(splits, heads, shifts)

    @property
    def fold(self) -> np.ndarray:
        """(n,) the fold that holds each row out."""
        found = np.empty(sum(len(test) for _, test in self.splits), np.int64)
        for fold, (_, test) in enumerate(self.splits):
            found[test] = fold
        return found

    @property
    def per_fold(self) -> int:
        """Decision values of a fold per row."""
        return len(self.results) // len(self.splits)

    @property
    def worst(self) -> float:
        """The largest relative duality gap of a problem that stopped above its tolerance, or 0."""
        return max((result.certificate.gap for result in self.results if not result.converged), default=0.0)

    def decisions(self) -> np.ndarray:
        """(n,), or (n, H) for several classes, decision values of every row by the fold that holds it out."""
        values = joined(self.splits, [result.f for result in self.results]) + self.shifts[self.fold][:, None]
        return values[:, 0] if values.shape[1] == 1 else values

    def gaps(self, one_certificate: bool) -> np.ndarray:
        """(F,), or (F, H) where every class has a certificate of its own, relative duality gaps."""
        gaps = np.array([result.certificate.gap for result in self.results]).reshape(len(self.splits), -1)
        return gaps[:, 0] if one_certificate or self.per_fold == 1 else gaps

    def models(self, kernels: list) -> tuple[Expansion, np.ndarray]:
        """The models of all folds over the union of their support rows, and their intercepts (F * H,)."""
        a = np.stack([result.a for result in self.results])
        support = np.flatnonzero(np.any(a != 0, axis=0))
        weights = np.stack([result.theta * result.scale for result in self.results])
        expansion = Expansion.of_training(
            kernels, weights, a[:, support], support, self.rows, self.gates, self.gate_of_entry
        )
        intercepts = np.array([result.intercept for result in self.results]) + np.repeat(
            self.shifts, self.per_fold
        )
        return expansion, intercepts

    def decisions_by(self, expansion: Expansion, intercepts: np.ndarray) -> np.ndarray:
        """(n, H) decision values of every row by the fold that holds it out, by the sums that new rows get.

        What is counted is who is stranger than whom: a copy of a training row must meet the same number.
        """
        values = np.empty((expansion.n_train, self.per_fold))
        for fold, (_, test) in enumerate(self.splits):
            own = slice(fold * self.per_fold, (fold + 1) * self.per_fold)
            model = replace(
                expansion, weights=expansion.weights[own], coefficients=expansion.coefficients[own]
            )
            for start in range(0, len(test), ROWS_AT_ONCE):
                ids = test[start : start + ROWS_AT_ONCE]
                gates = None if self.gates is None else self.gates[ids]
                values[ids] = (
                    model.decision(training_rows(self.rows, ids, expansion.support), gates) + intercepts[own]
                )
        return values

    def kept(self, kernels: list, score: Any) -> FoldModels:
        """The models of the folds, and score(values (n, H)) (n,) of every training row by its own."""
        expansion, intercepts = self.models(kernels)
        return FoldModels(expansion, intercepts, self.fold, score(self.decisions_by(expansion, intercepts)))


class FoldsApart(FoldsBeside):
    """Folds that are fits of their own, because each has a bank of its own, as kernels=None wants it.

    fitted : the model of every fold.
    """

    def __init__(
        self, estimator: Any, X: Any, y: np.ndarray, sample_weight: np.ndarray | None, splits: Splits
    ):
        super().__init__(splits, [], np.zeros(len(splits)))
        self.fitted, values = [], []
        for train, test in splits:
            weights = None if sample_weight is None else sample_weight[train]
            asked = {
                name: value
                for name, value in (("probability", None), ("conformal", False))
                if hasattr(estimator, name)
            }
            model = clone(estimator).set_params(**asked).fit(subset(X, train), y[train], weights)
            values.append(model._decision(subset(X, test)))
            self.fitted.append(model)
        self.values = joined(splits, [column for part in values for column in part.T])

    @property
    def per_fold(self) -> int:
        return self.values.shape[1]

    @property
    def worst(self) -> float:
        return max(
            (float(np.max(model.duality_gap_)) for model in self.fitted if not model.converged_), default=0.0
        )

    def decisions(self) -> np.ndarray:
        return self.values[:, 0] if self.per_fold == 1 else self.values

    def gaps(self, one_certificate: bool) -> np.ndarray:
        return np.stack([model.duality_gap_ for model in self.fitted])

    def models(self, kernels: list) -> tuple[Expansion, np.ndarray]:
        """The models of all folds over the kernels of all of them, each with weights for its own."""
        parts = [model.expansion_ for model in self.fitted]
        places = [train[part.support] for (train, _), part in zip(self.splits, parts, strict=True)]
        support = np.unique(np.concatenate(places))
        coefficients = np.zeros((len(parts) * self.per_fold, len(support)))
        for fold, (part, place) in enumerate(zip(parts, places, strict=True)):
            own = slice(fold * self.per_fold, (fold + 1) * self.per_fold)
            coefficients[own, np.searchsorted(support, place)] = part.coefficients
        bank = [kernel for part in parts for kernel in part.kernels]
        weights = block_diag(*(part.weights for part in parts))
        gates, gate_of_entry = (
            spherical_gates(bank, self.rows)
            if any(part.support_gates is not None for part in parts)
            else (None, None)
        )
        expansion = Expansion.of_training(
            bank, weights, coefficients, support, self.rows, gates, gate_of_entry
        )
        self.gates = gates
        return expansion, np.concatenate([model.intercept_ for model in self.fitted])


def joined(splits: Splits, parts: list[np.ndarray]) -> np.ndarray:
    """(n, H) from the values of every fold's test rows.

    parts : F * H arrays, those of a fold next to each other.
    """
    per_fold = len(parts) // len(splits)
    values = np.empty((sum(len(test) for _, test in splits), per_fold))
    for fold, (_, test) in enumerate(splits):
        values[test] = np.stack(parts[fold * per_fold : (fold + 1) * per_fold], axis=1)
    return values


def training_rows(rows: Any, ids: np.ndarray, columns: np.ndarray) -> dict:
    """Some training rows by view key as an expansion takes them, of ready-made matrices the given columns."""
    stacks = {key: array for key, array in rows.items() if getattr(array, "ndim", 2) == 3}
    found = fetch({key: array for key, array in rows.items() if key not in stacks}, ids)
    for key, stack in stacks.items():
        found[key] = stack.entries(ids, columns) if hasattr(stack, "entries") else stack[ids][:, columns]
    return found


# -- what estimators do with them
# ---------------------------------------------------------------------------------------


def known_weights(sample_weight: Any) -> np.ndarray | None:
    """Weights of rows (n,) as numbers, None where there are none."""
    return None if sample_weight is None else np.asarray(sample_weight, np.float64)


def folds_beside(
    estimator: Any, X: Any, y: np.ndarray, sample_weight: Any, classifier: bool
) -> FoldsBeside | None:
    """The folds that `probability` or `conformal` of an estimator ask for, None where nobody does. What
    earlier ones left is forgotten.

    X, y : the rows, as they were read, and their targets (n,). Raises ValueError for folds that are no
    partition, or that leave too little to learn from.
    """
    for name in LEFT:
        vars(estimator).pop(name, None)
    if getattr(estimator, "probability", None) is None and not getattr(estimator, "conformal", False):
        return None
    splits, weights = partition_of(estimator.cv, y, classifier), known_weights(sample_weight)
    if estimator.kernels is not None:
        return FoldsBeside.of(estimator, y, weights, splits, (float(estimator.C),))
    if isinstance(X, SourceInput):
        raise ValueError(
            "kernels=None is a bank made from the rows of each fold, which is not done for a path or "
            "Dataset; give a list of kernels"
        )
    return FoldsApart(estimator, X.X if isinstance(X, SessionRows) else X, y, weights, splits)


def keep_folds(estimator: Any, folds: FoldsBeside) -> None:
    """Let a fitted estimator keep what is public of its folds."""
    estimator.folds_ = folds.fold
    estimator.fold_gaps_ = folds.gaps(estimator._one_certificate)
    estimator.held_out_decision_ = folds.decisions()
    if folds.worst > 0:
        warnings.warn(
            f"folds of cv stopped above tol={estimator.tol:g}, the worst at a relative duality gap of "
            f"{folds.worst:.3g}; raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=4,
        )


def decision_of_folds(estimator: Any, X: Any) -> np.ndarray:
    """(n, F * H) decision values of new rows X by the models of the folds that a fitted estimator holds."""
    check_is_fitted(estimator, "fold_models_")
    beside = copy(estimator)  # reads X as ever
    beside.expansion_, beside.intercept_ = estimator.fold_models_.expansion, estimator.fold_models_.intercepts
    beside.kernels_ = beside.expansion_.kernels  # those of the estimator, except for kernels=None
    return beside._decision(X)
