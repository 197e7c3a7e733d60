"""Folds of a cross-validation: what splits the rows, and whether it holds every row out once."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, PredefinedSplit, StratifiedKFold, check_cv

from ...data.views import n_rows
from .calibration import METHODS

Splits = list[tuple[np.ndarray, np.ndarray]]
# Splitters that files can hold, and what each is made of.
SPLITTERS = {cls.__name__: cls for cls in (KFold, StratifiedKFold, PredefinedSplit)}
SETTINGS = {
    KFold: ("n_splits", "shuffle", "random_state"),
    StratifiedKFold: ("n_splits", "shuffle", "random_state"),
    PredefinedSplit: ("test_fold",),
}


def splits_of(cv: Any, X: Any, y: Any, groups: Any, classifier: bool) -> Splits:
    """(train, test) row numbers of every fold; cv as in scikit-learn, its parts may be masks."""
    index = np.arange(n_rows(X))
    # Splitters count the rows of X, which they can do with everything that has a shape.
    parts = check_cv(cv, y, classifier=classifier).split(X if hasattr(X, "shape") else index, y, groups)
    splits = [(index[_as_index(train)], index[_as_index(test)]) for train, test in parts]
    if not splits:
        raise ValueError("cv gave no splits; at least one is needed")
    for fold, (train, test) in enumerate(splits):
        if len(train) == 0 or len(test) == 0:
            raise ValueError(
                f"fold {fold} of cv has {len(train)} training and {len(test)} test rows; both must be there"
            )
    return splits


def _as_index(part: Any) -> np.ndarray:
    part = np.asarray(part)
    return part if part.dtype.kind in "biu" else part.astype(np.int64)


def are_masks(splits: Splits) -> bool:
    """Whether training rows are sets: a row that is drawn twice counts twice, which a mask cannot say."""
    return all(len(np.unique(train)) == len(train) for train, _ in splits)


def check_folds_params(conformal: Any, cv: Any, probability: Any = None) -> None:
    """Raise ValueError, which names the argument, unless they can be those of an estimator.

    `cv` counts where something asks for folds.
    """
    if not any(
        probability is known or (isinstance(probability, str) and probability == known)
        for known in (None, *METHODS)
    ):
        raise ValueError(
            f"probability must be None or one of {', '.join(map(repr, METHODS))}; got {probability!r}"
        )
    if not isinstance(conformal, bool | np.bool_):
        raise ValueError(f"conformal must be True or False, got {conformal!r}")
    if probability is None and not conformal:
        return
    number = isinstance(cv, Integral) and not isinstance(cv, bool)
    splits = hasattr(cv, "split") or (isinstance(cv, Iterable) and not isinstance(cv, dict))
    if isinstance(cv, str) or not (cv is None or (number and cv >= 2) or (not number and splits)):
        raise ValueError(
            "cv must be a number of folds >= 2, a splitter of scikit-learn or a list of (train, test), got "
            f"{cv!r}"
        )


def partition_of(cv: Any, y: np.ndarray, classifier: bool) -> Splits:
    """Folds of rows with targets y (n,) that hold every row out once, and have examples of every class to
    learn from.

    Raises ValueError, which names `cv`, for others.
    """
    n = len(y)
    rows = np.zeros((n, 1))  # what a splitter may look at: as many rows as there are
    splitter = check_cv(cv, y, classifier=classifier)
    if classifier:
        _check_sizes(y, splitter.get_n_splits(rows, y))
    splits = splits_of(splitter, rows, y, None, classifier)
    times = np.bincount(np.concatenate([test for _, test in splits]), minlength=n)
    if np.any(times != 1):
        row = int(np.flatnonzero(times != 1)[0])
        raise ValueError(
            f"the folds of cv={cv!r} must be a partition, every row held out once; row {row} is held out "
            f"{times[row]} times"
        )
    for fold, (train, test) in enumerate(splits):
        if np.isin(train, test).any():
            raise ValueError(
                f"fold {fold} of cv learns from row {int(train[np.isin(train, test)][0])}, which it holds out"
            )
        if classifier:
            missing = np.setdiff1d(y, y[train])
            if len(missing):
                raise ValueError(
                    f"fold {fold} of cv has no example of class {missing.tolist()[0]!r} to learn from; every "
                    "fold needs one"
                )
    if not are_masks(splits):
        raise ValueError(f"the folds of cv={cv!r} draw training rows twice; every row may be there once")
    return splits


def _check_sizes(y: np.ndarray, n_folds: int) -> None:
    """Raise ValueError for a class with fewer rows than there are folds."""
    classes, counts = np.unique(y, return_counts=True)
    small = np.flatnonzero(counts < n_folds)
    if len(small):
        label, count = classes.tolist()[small[0]], counts[small[0]]
        raise ValueError(
            f"class {label!r} has {count} row{'s' if count > 1 else ''}, fewer than the {n_folds} folds of "
            "cv; "
            f"every fold must hold one of each class out: take cv={max(count, 2)} or fewer, or more rows of "
            "it"
        )


def settings_of(splitter: Any) -> dict:
    """What one of SPLITTERS was made of."""
    return {name: getattr(splitter, name) for name in SETTINGS[type(splitter)]}


def storable(cv: Any, fold: np.ndarray | None) -> Any:
    """`cv` as a file can hold it: as it is, or the folds that were made of it.

    fold : (n,) fold of every row, None if there were none.
    """
    plain = isinstance(getattr(cv, "random_state", None), Integral | None)
    if cv is None or isinstance(cv, Integral) or (type(cv) in SETTINGS and plain):
        return cv
    if fold is None:
        raise TypeError(
            f"a model with cv={cv!r} cannot be saved: it is none of {', '.join(SPLITTERS)}; use pickle or "
            "joblib"
        )
    return PredefinedSplit(fold)
