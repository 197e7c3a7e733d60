"""What estimators ask of parameters, labels and weights, before any work; errors name the argument, what came
and what is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from ..engine import RayParams
from ..engine.session import check_engine


def check_number(name: str, value: Any, low: float, strict: bool = False, whole: bool = False) -> None:
    """Raise ValueError unless a parameter is a number >= low, or > low where `strict`."""
    kind: Any = Integral if whole else Real
    fine = (
        isinstance(value, kind)
        and not isinstance(value, bool)
        and np.isfinite(value)
        and (value > low if strict else value >= low)
    )
    if not fine:
        what = "a whole number" if whole else "a finite number"
        raise ValueError(f"{name} must be {what} {'>' if strict else '>='} {low:g}, got {value!r}")


def check_loss(loss: Any, known: Mapping, who: str, others: Mapping) -> None:
    """Raise ValueError for what is no loss of this kind of estimator. others : losses of the other kind."""
    if isinstance(loss, str) and loss in known:
        return
    hint = f"; {loss!r} is not a loss of {who}" if isinstance(loss, str) and loss in others else ""
    raise ValueError(f"loss must be one of {', '.join(map(repr, known))}; got {loss!r}{hint}")


def check_place(engine: Any, ray_params: Any) -> None:
    """Raise ValueError or TypeError unless these say where to compute."""
    check_engine(engine)
    check_ray_params(ray_params)


def check_ray_params(ray_params: Any) -> None:
    """Raise TypeError for what is not a `RayParams` or None."""
    if ray_params is not None and not isinstance(ray_params, RayParams):
        raise TypeError(f"ray_params must be a raymkl.RayParams or None, got {type(ray_params).__name__}")


# -- labels and weights ----------------------------------------------------------------------------


def check_lengths(n_rows: int, n_labels: int) -> None:
    """Raise ValueError unless there is one label per row."""
    if n_labels != n_rows:
        raise ValueError(f"X and y have different lengths: X has {n_rows} rows, y has {n_labels}")


def label_column(y: Any, n: int) -> np.ndarray:
    """(n,) labels of any type, none of them NaN."""
    y = column_or_1d(y, warn=True)
    check_lengths(n, len(y))
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity; class labels must be known for every row")
    return y


def check_labels(y: Any, n: int) -> np.ndarray:
    """(n,) labels of two or more classes."""
    y = label_column(y, n)
    # Whole numbers and texts are labels; looking at each costs as much as a small head.
    if y.dtype.kind not in "biuUS":
        check_classification_targets(y)
    if len(np.unique(y)) < 2:
        raise ValueError(
            f"y has 1 class ({np.unique(y).tolist()[0]!r}); a classifier needs examples of at least two "
            "classes"
        )
    return y


def check_targets(y: Any, n: int) -> np.ndarray:
    """(n,) finite numbers to be predicted, in float64."""
    y = column_or_1d(y, warn=True)
    try:
        y = y.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"y must be numbers for regression, got dtype {y.dtype}") from None
    check_lengths(n, len(y))
    if not np.isfinite(y).all():
        raise ValueError("y contains NaN or infinity; the target must be known for every row")
    return y


def given_weights(sample_weight: Any, n: int) -> np.ndarray:
    """(n,) weights >= 0 of the rows; ones for None."""
    return _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)


def row_weights(sample_weight: Any, n: int) -> np.ndarray:
    """The same, some of them positive."""
    weights = given_weights(sample_weight, n)
    if not np.any(weights > 0):
        raise ValueError("sample_weight is zero for every row; some example must count")
    return weights


def label_weights(sample_weight: Any, class_weight: Any, y: np.ndarray) -> np.ndarray:
    """sample_weight times the weight of the class, (n,); every class must keep some weight."""
    weights = given_weights(sample_weight, len(y))
    classes = np.unique(y)
    index = np.searchsorted(classes, y)
    if isinstance(class_weight, str) and class_weight == "balanced":
        # By weight, not by rows, so that a weight of two is the same as a row that occurs twice.
        sums = np.bincount(index, weights=weights, minlength=len(classes))
        weights = weights * (weights.sum() / (len(classes) * np.maximum(sums, 1e-300)))[index]
    elif class_weight is not None:
        weights = weights * compute_class_weight(class_weight, classes=classes, y=y)[index]
    empty = [label for label in classes.tolist() if not np.any(weights[y == label] > 0)]
    if empty:
        raise ValueError(f"class {empty[0]!r} has no example with a positive weight; every class needs one")
    return weights
