"""Folds as heads over one set of kernel blocks, and folds that are fitted one by one.

A fold is a row mask: masked rows keep a_i = 0, and the f_i that the shards maintain anyway is their held-out
prediction.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ..data.views import subset
from ..models.base import BaseMKL
from ..models.probability.splits import are_masks as are_masks
from ..models.probability.splits import splits_of as splits_of
from .cases import Case, SharedRows
from .checkpoints import redirected


class Folds(SharedRows):
    """Rows, labels and splits of a cross-validation, and the blocks' template estimator."""

    def __init__(
        self,
        estimator: BaseMKL,
        X: Any,
        y: Any,
        splits: list[tuple[np.ndarray, np.ndarray]],
        sample_weight: Any = None,
    ):
        """estimator : with the parameters that all heads have in common; X is read and checked here."""
        super().__init__(estimator, X, sample_weight)
        self.X, self.y, self.splits = X, self.check_targets(y), splits
        self.tests: dict[tuple, tuple] = {}

    def fold(
        self, setting: dict, fold: int, path: tuple[float, ...], watch_all: bool = False
    ) -> tuple[list, Any]:
        """Heads of one fold with a setting (without C) and a path over C, and the maker of what is to be
        scored.
        """
        train, test = self.splits[fold]
        watch = np.arange(len(self.y)) if watch_all else test
        return self.heads(Case(self.y, train, watch, path, setting, calibrated=True))

    def values_of(self, values: list[np.ndarray], fold: int, part: str) -> list[np.ndarray]:
        """Of decision values of heads that watch all rows, those of a fold's test or training rows.

        Those of folds within it stay as they are.
        """
        index = self.splits[fold][part == "test"]
        return [f[index] if len(f) == len(self.y) else f for f in values]

    def score(
        self, scorer: Any, held_out: Any, values: list[np.ndarray], fold: int, part: str = "test"
    ) -> Any:
        """Score of decision values (one array per head) of a fold's test or training rows."""
        index = self.splits[fold][part == "test"]
        if (fold, part) not in self.tests:
            self.tests[fold, part] = (subset(self.X, index), self.y[index])
        X, y = self.tests[fold, part]
        more = {}
        if self.sample_weight is not None and accepts_weights(scorer):
            more["sample_weight"] = self.sample_weight[index]
        return scorer(held_out.with_values(values), X, y, **more)


class FoldByFold:
    """Folds of any estimator, each with rows of its own: for estimators that cannot learn by heads."""

    def __init__(
        self,
        estimator: Any,
        X: Any,
        y: Any,
        splits: list[tuple[np.ndarray, np.ndarray]],
        sample_weight: Any = None,
    ):
        self.X, self.y, self.splits = X, None if y is None else np.asarray(y), splits
        self.sample_weight = None if sample_weight is None else np.asarray(sample_weight, float)
        tags = getattr(estimator, "__sklearn_tags__", None)
        self.pairwise = tags is not None and tags().input_tags.pairwise

    def rows(self, fold: int, part: str) -> tuple[Any, np.ndarray | None]:
        """X and y of a fold's training or test rows."""
        train, test = self.splits[fold]
        index = test if part == "test" else train
        X = np.asarray(self.X)[np.ix_(index, train)] if self.pairwise else subset(self.X, index)
        return X, None if self.y is None else self.y[index]

    def fit(self, model: Any, fold: int) -> Any:
        """The model fitted to a fold's training rows; such short runs write no checkpoints."""
        more = (
            {} if self.sample_weight is None else {"sample_weight": self.sample_weight[self.splits[fold][0]]}
        )
        with redirected(model, None):
            return model.fit(*self.rows(fold, "train"), **more)

    def fit_all(self, model: Any) -> Any:
        """The model fitted to all rows."""
        more = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        with redirected(model, None):
            return model.fit(self.X, self.y, **more)

    def score(self, scorer: Any, model: Any, fold: int, part: str = "test") -> Any:
        """Score of a fitted model on a fold's test or training rows."""
        index = self.splits[fold][part == "test"]
        more = (
            {"sample_weight": self.sample_weight[index]}
            if self.sample_weight is not None and accepts_weights(scorer)
            else {}
        )
        return scorer(model, *self.rows(fold, part), **more)


def accepts_weights(scorer: Any) -> bool:
    """Whether a scorer takes `sample_weight`."""
    if hasattr(scorer, "_accept_sample_weight"):
        return bool(scorer._accept_sample_weight())
    return "sample_weight" in inspect.signature(scorer).parameters
