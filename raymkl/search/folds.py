"""Folds and settings as heads over one set of kernel blocks.

A fold is a row mask: masked rows keep a_i = 0, and the f_i that the shards maintain anyway is their held-out prediction. Settings
that differ only in C are stages of one path; settings that differ in another parameter of a head (p, say) are heads of their own;
settings that differ in anything else need blocks of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier

from ..data.views import subset
from ..kernels.base import Kernel
from ..kernels.normalize import TailSum
from ..models.base import BaseMKL
from ..models.probability.splits import are_masks as are_masks
from ..models.probability.splits import splits_of as splits_of
from ..optim.norms import Norm
from .checkpoints import redirected


def knows_heads(estimator: Any) -> bool:
    """Whether this kind of estimator can state its folds as heads."""
    return isinstance(estimator, BaseMKL) and estimator._can_fold


def learns_by_heads(estimator: Any, setting: dict | None = None) -> bool:
    """Whether folds with a setting can be heads: nothing but weights and constants may be learned from the rows.

    kernels=None is a bank made from the training rows, and so one of its own for every fold.
    """
    return knows_heads(estimator) and {"kernels": estimator.kernels, **(setting or {})}["kernels"] is not None


def key_of(value: Any) -> Hashable:
    """Something to tell values of a parameter apart; what is neither plain, a kernel nor a collection is told apart as an object."""
    if isinstance(value, str | bool | type(None) | Kernel | Norm | TailSum):
        return value
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return tuple(map(key_of, value))
    if isinstance(value, dict):
        return tuple((key_of(k), key_of(v)) for k, v in value.items())
    return id(value)


def wide_norm(estimator: Any, setting: dict) -> bool:
    """Weights that are not bounded (p > 2) ask for more precise statistics, see models.base; such settings have blocks of their own."""
    norm, p = setting.get("norm", getattr(estimator, "norm", None)), setting.get("p", getattr(estimator, "p", 2.0))
    if norm is not None:
        return isinstance(norm, Norm) and not norm.bounded
    return isinstance(p, Real) and bool(p > 2)


def blocks_key(estimator: Any, setting: dict) -> Hashable:
    """Settings with the same key can share one set of kernel blocks (all, where there are none to share)."""
    if not knows_heads(estimator):
        return ()
    other = tuple((name, key_of(value)) for name, value in sorted(setting.items()) if name not in estimator._head_params)
    return other, wide_norm(estimator, setting)


def blocks_of(estimator: Any, settings: list[dict]) -> list[list[int]]:
    """Positions of the settings that can share one set of kernel blocks."""
    found: dict[Hashable, list[int]] = {}
    for position, setting in enumerate(settings):
        found.setdefault(blocks_key(estimator, setting), []).append(position)
    return list(found.values())


def template_of(estimator: Any, setting: dict) -> Any:
    """The estimator with those parameters of a setting that decide about its blocks."""
    common = {name: value for name, value in setting.items() if name not in estimator._head_params}
    if wide_norm(estimator, setting):
        common.update({name: setting.get(name, getattr(estimator, name)) for name in ("p", "norm") if hasattr(estimator, name)})
    return clone(estimator).set_params(**clone(common, safe=False))


def of_heads(estimator: Any, setting: dict) -> dict:
    """The part of a setting that heads over the same blocks can differ in."""
    return {name: value for name, value in setting.items() if name in estimator._head_params}


def paths_of(settings: list[dict], positions: list[int], default: float, beta: float = 0.0) -> list[list[int]]:
    """The given settings grouped so that only C differs, in the order of ascending C. default, beta : C and beta where a setting has none.

    Prices of kernels grow with C, so that the norm would be another one at every stage: such settings are paths of their own.
    """
    found: dict[Hashable, list[int]] = {}
    for position in positions:
        setting = settings[position]
        priced = bool(setting.get("beta", beta))
        other = [(name, key_of(value)) for name, value in sorted(setting.items()) if name != "C" or priced]
        found.setdefault(tuple(other), []).append(position)
    return [sorted(path, key=lambda position: settings[position].get("C", default)) for path in found.values()]


class Folds:
    """Rows, labels and splits of a cross-validation, and the blocks' template estimator."""

    def __init__(self, estimator: BaseMKL, X: Any, y: Any, splits: list[tuple[np.ndarray, np.ndarray]], sample_weight: Any = None):
        """estimator : with the parameters that all heads have in common; X is read and checked here."""
        estimator._check_params()
        if y is None and is_classifier(estimator):
            raise ValueError("requires y to be passed, but the target y is None")
        self.estimator, self.splits = estimator, splits
        self.X, self.y = X, np.asarray(y)
        _, self.rows, self.kernels = estimator._read(X, reset=True)
        n = next(iter(self.rows.values())).shape[0]
        if len(self.y) != n:
            raise ValueError(f"X and y have different lengths: X has {n} rows, y has {len(self.y)}")
        self.sample_weight = None if sample_weight is None else np.asarray(sample_weight, float)
        if self.sample_weight is not None and self.sample_weight.shape != (n,):
            raise ValueError(f"sample_weight must have one number for each of the {n} rows, got shape {self.sample_weight.shape}")
        self.tests: dict[tuple, tuple] = {}
        self.tails: dict = {}  # tail sums of the kernels over the training rows of folds
        self.groups = 0  # of heads that share their weights, so far

    def heads(self, setting: dict, fold: int, path: tuple[float, ...], watch_all: bool = False) -> tuple[list, Any]:
        """Heads of one fold with a setting (without C) and a path over C, and the maker of what is to be scored."""
        estimator = clone(self.estimator).set_params(**setting)
        estimator._check_params()
        estimator._norm_of(len(self.kernels))
        train, test = self.splits[fold]
        heads, held_out = estimator._fold_to_score(self.y, self.sample_weight, train)
        for head in heads:
            head.path = path
            if head.watch is None:  # else it belongs to a fold within this one
                head.watch = np.arange(len(self.y)) if watch_all else np.asarray(test, np.int64)
            if head.group is not None:
                head.group += self.groups
        self.groups += 1 + max((head.group - self.groups for head in heads if head.group is not None), default=0)
        estimator._set_constants(self.rows, self.kernels, heads, self.tails)
        return heads, held_out

    def values_of(self, values: list[np.ndarray], fold: int, part: str) -> list[np.ndarray]:
        """Of decision values of heads that watch all rows, those of a fold's test or training rows.

        Those of folds within it stay as they are.
        """
        index = self.splits[fold][part == "test"]
        return [f[index] if len(f) == len(self.y) else f for f in values]

    def problem(self, heads: list) -> tuple[Any, dict]:
        """The engine's problem, and its rows."""
        problem, working, _ = self.estimator._describe(self.rows, self.kernels, heads, constants=False)
        return problem, working

    def score(self, scorer: Any, held_out: Any, values: list[np.ndarray], fold: int, part: str = "test") -> Any:
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

    def __init__(self, estimator: Any, X: Any, y: Any, splits: list[tuple[np.ndarray, np.ndarray]], sample_weight: Any = None):
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
        more = {} if self.sample_weight is None else {"sample_weight": self.sample_weight[self.splits[fold][0]]}
        with redirected(model, None):
            return model.fit(*self.rows(fold, "train"), **more)

    def score(self, scorer: Any, model: Any, fold: int, part: str = "test") -> Any:
        """Score of a fitted model on a fold's test or training rows."""
        index = self.splits[fold][part == "test"]
        more = {"sample_weight": self.sample_weight[index]} if self.sample_weight is not None and accepts_weights(scorer) else {}
        return scorer(model, *self.rows(fold, part), **more)


def accepts_weights(scorer: Any) -> bool:
    """Whether a scorer takes `sample_weight`."""
    if hasattr(scorer, "_accept_sample_weight"):
        return bool(scorer._accept_sample_weight())
    return "sample_weight" in inspect.signature(scorer).parameters
