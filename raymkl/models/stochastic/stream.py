"""Rows that keep coming: what a part of a stream must be, before any work, and what is kept between parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from ...engine.programs.dual_averaging import Task, norm
from ...engine.programs.landmarks import Featured, State
from ..checks import check_lengths, given_weights


@dataclass
class Stream:
    """Where dual averaging stands, as if every row had been visited once, so that rows that come later count
    as much.

    state : sums over all rows so far. seed : of the order of rows. normalisation : (M,) factors of the
    kernels, those of the first rows.
    """

    state: State
    seed: int
    normalisation: np.ndarray

    @classmethod
    def after(cls, found: Featured, seed: int, epochs: int = 1) -> Stream:
        """After so many epochs over the same rows."""
        state = found.state
        once = State(state.theta / epochs, state.gain / epochs, state.t // epochs, state.weight / epochs)
        return cls(once, seed, found.normalisation)

    @classmethod
    def of(cls, kept: tuple) -> Stream:
        """Out of what `kept` gave."""
        theta, gain, t, weight, seed, normalisation = kept
        return cls(State(np.array(theta), float(gain), int(t), float(weight)), int(seed), normalisation)

    @property
    def kept(self) -> tuple:
        """As plain values, which files of models hold."""
        state = self.state
        return state.theta, state.gain, state.t, state.weight, self.seed, self.normalisation

    def dual(self, task: Task) -> float:
        """The dual value of all rows so far, with C and prices of a task: a lower bound of their optimum."""
        lengths = np.maximum(np.sqrt(self.state.squares) - self.state.weight * task.prices, 0.0)
        return float(task.C * self.state.gain - 0.5 * (task.C * norm(lengths, task.q)) ** 2)


def all_classes(classes: Any, known: np.ndarray | None) -> np.ndarray:
    """(K,) ascending labels that will ever come.

    classes : as given, or None. known : those of earlier calls, None for the first one.
    """
    if known is None and classes is None:
        raise ValueError(
            "classes must be given to the first call of partial_fit: all labels that will ever come"
        )
    if classes is None:
        return known
    labels = np.unique(column_or_1d(classes))
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ValueError("classes contains NaN or infinity")
    if known is not None and not np.array_equal(labels, known):
        raise ValueError(
            f"classes {labels.tolist()} are not those of the calls before, {known.tolist()}; leave them out, "
            "or begin anew"
        )
    if len(labels) < 2:
        raise ValueError(
            f"classes has {len(labels)} class(es), {labels.tolist()}; a classifier needs at least two classes"
        )
    return labels


def labels_among(y: Any, n: int, classes: np.ndarray) -> np.ndarray:
    """(n,) labels that are among the classes; not all of these need be there."""
    y = column_or_1d(y, warn=True)
    check_lengths(n, len(y))
    unknown = y[~np.isin(y, classes)]
    if len(unknown):
        raise ValueError(
            f"y has the label {unknown[:1].tolist()[0]!r}, which is not among the classes {classes.tolist()}"
        )
    return y


def weights_of(sample_weight: Any, class_weight: Any, y: np.ndarray) -> np.ndarray:
    """(n,) weights of rows: sample_weight times the weight of their class, some of them above 0."""
    weights = given_weights(sample_weight, len(y))
    if isinstance(class_weight, dict):
        by_class = np.array([class_weight.get(label, 1.0) for label in y.tolist()], np.float64)
        if not np.all(np.isfinite(by_class) & (by_class >= 0)):
            raise ValueError(f"class_weight must have finite numbers >= 0, got {class_weight!r}")
        weights = weights * by_class
    elif class_weight is not None:
        raise ValueError(
            f"class_weight={class_weight!r} counts all rows, which a stream does not show; give a dict"
        )
    if not weights.any():
        raise ValueError("sample_weight and class_weight leave no row with a weight above 0")
    return weights
