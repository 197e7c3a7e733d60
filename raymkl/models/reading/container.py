"""Containers that views can be taken from: what X may be, and what an estimator remembers of its columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from ...data.strings import looks_like_strings
from ...data.views import is_dict, is_frame, is_other_frame, is_table, is_views, n_rows, unmasked
from ...kernels.base import Kernel
from .. import sources
from .numbers import floats


def check_container(estimator: Any, X: Any, reset: bool) -> Any:
    """X as a container that views can be taken from; scikit-learn's checks for arrays and frames of one
    view.
    """
    if isinstance(X, sources.SourceInput | sources.Batch):
        if reset:
            estimator.n_features_in_ = X.shape[1]
            vars(estimator).pop("feature_names_in_", None)
            if getattr(X, "named", True):
                estimator.feature_names_in_ = np.asarray(X.features, object)
        return X
    if is_dict(X) or is_table(X) or is_views(X):
        if reset:
            vars(estimator).pop("feature_names_in_", None)
            estimator.n_features_in_ = _width(X)
        return X
    if is_frame(X) or is_other_frame(X):
        from sklearn.utils.validation import _check_feature_names, _check_n_features

        _check_feature_names(estimator, X, reset=reset)
        _check_n_features(estimator, X, reset=reset)
        if len(X) == 0:
            raise ValueError("X has 0 rows; at least one example is needed")
        return X
    if looks_like_strings(X) or (
        getattr(getattr(X, "dtype", None), "kind", "") == "O" and _reads_strings(estimator)
    ):
        return _check_strings(estimator, X, reset)
    try:
        array = validate_data(
            estimator,
            unmasked(X),
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=1,
        )
    except ValueError:
        _check_columns(X)
        raise
    if array.dtype.kind == "O":
        _check_columns(X)
    return array


def _check_columns(X: Any) -> None:
    """Raise ValueError that names the first column without numbers of a table of another library, such as
    polars.
    """
    for name in getattr(X, "columns", ()):
        floats(np.asarray(X[name]), "X", lambda _, name=name: repr(name))


def _reads_strings(estimator: Any) -> bool:
    """Whether one of the kernels of an estimator reads strings."""
    given = getattr(estimator, "kernels", ())
    kernels = given if isinstance(given, list | tuple) else [given]
    return any(isinstance(kernel, Kernel) and kernel.string_views() for kernel in kernels)


def _check_strings(estimator: Any, X: Any, reset: bool) -> Any:
    """A plain container of strings.

    It has no number of features: as in scikit-learn, `n_features_in_` is then not set.
    """
    if not _reads_strings(estimator):
        raise ValueError(
            "X holds strings, but none of the kernels reads strings; see raymkl.kernels.Spectrum and "
            "WeightedDegree"
        )
    if reset:
        for name in ("n_features_in_", "feature_names_in_"):
            vars(estimator).pop(name, None)
    elif hasattr(estimator, "feature_names_in_"):
        raise ValueError(
            "X is a plain list of strings; the model was fitted to the columns "
            f"{list(estimator.feature_names_in_)!r}"
        )
    return X


def _width(X: Any) -> int:
    if is_table(X):
        return X.num_columns
    if is_views(X):
        # Of a ready-made matrix the columns of the own rows count, as in a dict.
        views = dict(X.items())
        return sum(
            len(X) * int(np.prod(view.shape[2:])) if name in X.matrices else _width({name: view})
            for name, view in views.items()
        )
    return sum(int(np.prod(getattr(value, "shape", (0, 1))[1:])) for value in X.values())


def count_rows(X: Any) -> int:
    """Number of examples, with a clear error for containers that have none."""
    n = n_rows(X)
    if n == 0:
        raise ValueError("X has 0 rows; at least one example is needed")
    return n
