"""Checks of arguments, before anything starts, and what all studies ask of an estimator."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..data.views import is_dict, is_views, n_rows, view_name, view_of
from ..engine.session import SessionRows
from ..kernels.base import Kernel
from ..metrics import scorer as scorer_of
from ..models.base import BaseMKL
from ..models.checks import check_lengths
from ..models.sources import loaded
from ..search.settings import learns_by_heads


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    return int(value)


def between(name: str, value: Any, low: float, high: float) -> float:
    """A number strictly between two others."""
    if not isinstance(value, Real) or isinstance(value, bool) or not low < value < high:
        raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {value!r}")
    return float(value)


def check_estimator(estimator: Any) -> Any:
    """Raise TypeError for what cannot be fitted."""
    if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params") or isinstance(estimator, type):
        raise TypeError(f"estimator must be an estimator such as MKLClassifier(...), got {estimator!r}")
    return estimator


def rows_and_targets(
    estimator: Any, X: Any, y: Any, groups: Any = None
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """X in memory, y and groups as arrays, one for every row."""
    X, y = loaded(X, y, final_step(estimator))
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    n, y = n_rows(X), np.asarray(y)
    check_lengths(n, len(y))
    if groups is not None:
        groups = np.asarray(groups)
        if groups.shape != (n,):
            raise ValueError(f"groups must have one entry for each of the {n} rows, got shape {groups.shape}")
    return X, y, groups


def scorers_of(scoring: Any, estimator: Any) -> dict[str, Any]:
    """Scorers by name. scoring : None (the estimator's own score), a name, a callable, or a list or dict of
    them.
    """
    if scoring is None:
        named = {"score": None}
    elif isinstance(scoring, str):
        named = {scoring: scoring}
    elif callable(scoring):
        named = {getattr(scoring, "__name__", "score"): scoring}
    elif isinstance(scoring, Mapping):
        named = dict(scoring)
    elif isinstance(scoring, list | tuple | set):
        named = {name: name for name in scoring}
    else:
        raise ValueError(
            f"scoring must be None, a name, a callable, or a list or dict of them, got {scoring!r}"
        )
    if not named:
        raise ValueError("scoring is empty; name at least one score")
    return {str(name): scorer_of(one, estimator) for name, one in named.items()}


def one_scorer(scoring: Any, estimator: Any) -> Any:
    """The scorer of a study that has one score."""
    if scoring is not None and not isinstance(scoring, str) and not callable(scoring):
        raise ValueError(f"scoring must be None, a name or a callable here, got {scoring!r}")
    return next(iter(scorers_of(scoring, estimator).values()))


def final_step(estimator: Any) -> Any:
    """The last step of a pipeline, or the estimator itself."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def prefix_of(estimator: Any) -> str:
    """What the parameters of the last step of a pipeline begin with in its own; nothing for other
    estimators.
    """
    prefix = ""
    while isinstance(estimator, Pipeline):
        prefix += f"{estimator.steps[-1][0]}__"
        estimator = estimator.steps[-1][1]
    return prefix


def scores_by_heads(estimator: Any, scorers: Mapping[str, Any]) -> bool:
    """Whether scores of an estimator's folds can be made from the decision values of heads.

    Calibrated probabilities and prediction sets cannot; a callable may ask for them where the estimator has
    them.
    """
    if not learns_by_heads(estimator):
        return False
    more = getattr(estimator, "probability", None) is not None or bool(getattr(estimator, "conformal", False))
    if not more:
        return True
    return all(_asks_for_values(scorer) for scorer in scorers.values())


def _asks_for_values(scorer: Any) -> bool:
    """Whether a scorer is known to look at decision values, or labels, alone."""
    if type(scorer).__name__ == "_PassthroughScorer" or type(scorer).__module__.startswith("raymkl."):
        return True
    wanted = getattr(scorer, "_response_method", None)
    wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted or ())
    return bool(wanted) and wanted[0] in ("predict", "decision_function")


def bank_of(estimator: Any, X: Any) -> list[Kernel]:
    """The kernels of an estimator of ours, or of a pipeline that ends in one, as a list."""
    last = final_step(estimator)
    if not isinstance(last, BaseMKL):
        raise ValueError(
            f"the estimator must be one of ours, or a pipeline that ends in one, got {type(last).__name__}: "
            "it has no kernels"
        )
    if last.kernels is None:
        raise ValueError(
            "kernels=None makes kernels from the training rows; give the estimator a list of kernels to tell "
            "them apart"
        )
    if isinstance(last.kernels, str):
        return last._read(X, reset=True)[2]
    return [last.kernels] if isinstance(last.kernels, Kernel) else list(last.kernels)


def views_read(kernel: Kernel, X: Any) -> list[str]:
    """Names of the views of X that a kernel reads, each once; none of a kernel that reads no view of X (that
    of absence).
    """
    X = X.X if isinstance(X, SessionRows) else X
    keys = [view_of(key) for key in kernel.views]
    if is_views(X) or is_dict(X):
        names = dict.fromkeys(X.names if is_views(X) else X)
        if len(names) > 1 and any(isinstance(key, list) for key in keys):
            return []
        return list(dict.fromkeys(str(view_name(names, key)) for key in keys))
    return list(dict.fromkeys("" if key is None else str(key) for key in keys))
