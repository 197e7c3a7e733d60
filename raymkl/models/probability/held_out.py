"""The folds of a fit as heads beside it, and what comes of their decision values for the rows that they hold out.

The fit on all rows and its folds are heads over one set of kernel blocks. A fold is a row mask, comes after the head of the same class on
all rows, and begins where that has ended. Its constants of `normalize` and its class weights are those of its own training rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...data.lazy_rows import fetch
from ...engine import Head
from ..expansion import Expansion
from .conformal import FoldModels
from .splits import Splits

# Training rows whose decision values are computed at a time.
ROWS_AT_ONCE = 4_096


@dataclass(eq=False)
class FoldsBeside:
    """Folds of a fit: heads to train beside those of all rows, and then their results.

    splits : (train, test) row numbers. heads : F * H, those of a fold next to each other. shifts : (F,) what is added to decision values.
    results : of the heads. rows, gates, gate_of_entry : all training rows by view key, their gates (n, J) and the gate of every entry.
    """

    splits: Splits
    heads: list[Head]
    shifts: np.ndarray
    results: list = field(default_factory=list)
    rows: Any = None
    gates: np.ndarray | None = None
    gate_of_entry: list[int] | None = None

    @classmethod
    def of(cls, estimator: Any, y: np.ndarray, sample_weight: np.ndarray | None, splits: Splits, path: tuple[float, ...]) -> FoldsBeside:
        """Folds of rows with targets y (n,), for a path over C. The heads of all rows come before them, in the order of the classes."""
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
        return len(self.heads) // len(self.splits)

    def decisions(self) -> np.ndarray:
        """(n,), or (n, H) where there are several, decision values of every row by the fold that holds it out."""
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
        expansion = Expansion.of_training(kernels, weights, a[:, support], support, self.rows, self.gates, self.gate_of_entry)
        intercepts = np.array([result.intercept for result in self.results]) + np.repeat(self.shifts, self.per_fold)
        return expansion, intercepts

    def decisions_by(self, expansion: Expansion, intercepts: np.ndarray) -> np.ndarray:
        """(n, H) decision values of every row by the fold that holds it out, out of the very sums by which new rows get theirs.

        What is counted is who is stranger than whom: a new row that is a copy of a training row must meet the same number.
        """
        values = np.empty((expansion.n_train, self.per_fold))
        for fold, (_, test) in enumerate(self.splits):
            own = slice(fold * self.per_fold, (fold + 1) * self.per_fold)
            model = replace(expansion, weights=expansion.weights[own], coefficients=expansion.coefficients[own])
            for start in range(0, len(test), ROWS_AT_ONCE):
                ids = test[start : start + ROWS_AT_ONCE]
                gates = None if self.gates is None else self.gates[ids]
                values[ids] = model.decision(training_rows(self.rows, ids, expansion.support), gates) + intercepts[own]
        return values

    def kept(self, kernels: list, score: Any) -> FoldModels:
        """The models of the folds, and score(values (n, H)) (n,) of every training row by the one that holds it out."""
        expansion, intercepts = self.models(kernels)
        return FoldModels(expansion, intercepts, self.fold, score(self.decisions_by(expansion, intercepts)))


def joined(splits: Splits, parts: list[np.ndarray]) -> np.ndarray:
    """(n, H) from the values of every fold's test rows. parts : F * H arrays, those of a fold next to each other."""
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
