"""Folds and settings as heads over one set of kernel blocks.

A fold is a row mask: masked rows keep a_i = 0, and the f_i that the shards maintain anyway is their held-out prediction. Settings
that differ only in C are stages of one path; settings that differ in another parameter of a head (p, say) are heads of their own;
settings that differ in anything else need blocks of their own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from sklearn.base import clone

from ..kernels.views import subset
from ..models.base import BaseMKL


def learns_by_heads(estimator: Any) -> bool:
    """Whether folds of this estimator can be heads: it knows how, and nothing but weights and constants is learned from the rows."""
    return isinstance(estimator, BaseMKL) and hasattr(estimator, "_fold") and getattr(estimator, "kernels", None) is not None


def key_of(value: Any) -> Hashable:
    """Something to tell values of a parameter apart; lists of kernels are told apart as objects."""
    return value if isinstance(value, str | int | float | bool | type(None)) else id(value)


def blocks_of(estimator: Any, settings: list[dict]) -> list[list[int]]:
    """Positions of the settings that can share one set of kernel blocks."""
    found: dict[Hashable, list[int]] = {}
    for position, setting in enumerate(settings):
        other = [(name, key_of(value)) for name, value in sorted(setting.items()) if name not in estimator._head_params]
        # p > 2 asks for more precise statistics, see models.base.
        wide = bool(setting.get("p", estimator.p) > 2) if isinstance(setting.get("p", estimator.p), int | float) else False
        found.setdefault((tuple(other), wide), []).append(position)
    return list(found.values())


def paths_of(settings: list[dict], positions: list[int], default: float) -> list[list[int]]:
    """The given settings grouped so that only C differs, in the order of ascending C."""
    found: dict[Hashable, list[int]] = {}
    for position in positions:
        other = [(name, key_of(value)) for name, value in sorted(settings[position].items()) if name != "C"]
        found.setdefault(tuple(other), []).append(position)
    return [sorted(path, key=lambda position: settings[position].get("C", default)) for path in found.values()]


class Folds:
    """Rows, labels and splits of a cross-validation, and the blocks' template estimator."""

    def __init__(self, estimator: BaseMKL, X: Any, y: Any, splits: list[tuple[np.ndarray, np.ndarray]], sample_weight: Any = None):
        """estimator : with the parameters that all heads have in common; X is read and checked here."""
        estimator._check_params()
        self.estimator, self.splits = estimator, splits
        self.X, self.y = X, np.asarray(y)
        self.sample_weight = None if sample_weight is None else np.asarray(sample_weight, float)
        _, self.rows, self.kernels = estimator._read(X, reset=True)
        n = next(iter(self.rows.values())).shape[0]
        if len(self.y) != n:
            raise ValueError(f"X and y have different lengths: X has {n} rows, y has {len(self.y)}")
        self.tests: dict[int, tuple] = {}

    def heads(self, setting: dict, fold: int, path: tuple[float, ...], watch_all: bool = False) -> tuple[list, Any]:
        """Heads of one fold with a setting (without C) and a path over C, and the maker of what is to be scored."""
        estimator = clone(self.estimator).set_params(**setting)
        estimator._check_params()
        train, test = self.splits[fold]
        heads, held_out = estimator._fold(self.y, self.sample_weight, train)
        for head in heads:
            head.path = path
            head.watch = np.arange(len(self.y)) if watch_all else np.asarray(test, np.int64)
        return heads, held_out

    def problem(self, heads: list) -> tuple[Any, dict]:
        """The engine's problem, and its rows."""
        problem, working, _ = self.estimator._describe(self.rows, self.kernels, heads)
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


def accepts_weights(scorer: Any) -> bool:
    """Whether a scorer takes `sample_weight`."""
    if hasattr(scorer, "_accept_sample_weight"):
        return bool(scorer._accept_sample_weight())
    import inspect

    return "sample_weight" in inspect.signature(scorer).parameters
