"""`PerView`: a transformer for each view, fitted to the rows that have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ...data.multiview.container import Views
from ...data.views import is_dict, n_rows

WORDS = ("passthrough", "drop")


class PerView(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """A transformer for each view of a `Views`, in the manner of scikit-learn's ColumnTransformer.

    Each transformer is cloned and fitted to those rows that have its view, with their y, and gets the view in
    its own container: a scaler an array, a column transformer a table of pandas or polars. Rows that lack a
    view go on lacking it.

    Parameters
    ----------
    transformers : dict
        From names of views to transformers, "passthrough" (the view stays as it is) or "drop".
    remainder : {"passthrough", "drop"}
        What happens to views without a transformer.

    Attributes
    ----------
    transformers_ : dict
        From names of views to fitted transformers (or words), in the order of `transformers`.
    views_in_ : tuple of str
        The views there were.
    n_features_in_ : int
        Their number.

    Notes
    -----
    Parameters of single transformers are set by `<view>__<parameter>`, in a pipeline
    `perview__<view>__<parameter>`.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLClassifier, PerView, Views, kernels
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> rng = np.random.default_rng(0)
    >>> V = Views({"rna": 100 * rng.normal(size=(40, 6)), "ct": rng.normal(size=(40, 3))})
    >>> y = V["rna"][:, 0] + 100 * V["ct"][:, 0] > 0
    >>> bank = [kernels.RBF(0.1, view="rna"), kernels.RBF(0.1, view="ct")]
    >>> model = make_pipeline(PerView({"rna": StandardScaler()}), MKLClassifier(bank,
    ...     engine="local")).fit(V[:30], y[:30])
    >>> model.predict(V[30:]).shape
    (10,)
    """

    def __init__(self, transformers: Mapping[str, Any], *, remainder: str = "passthrough"):
        self.transformers = transformers
        self.remainder = remainder

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.no_validation = True
        return tags

    # -- parameters --------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; deep ones are the transformers by view, and theirs as `<view>__<parameter>`.

        Parameters
        ----------
        deep : bool
            Whether parameters of the transformers are wanted, too.

        Returns
        -------
        params : dict
            Values by name.
        """
        params = {"transformers": self.transformers, "remainder": self.remainder}
        if deep and isinstance(self.transformers, Mapping):
            for name, transformer in self.transformers.items():
                params[name] = transformer
                if hasattr(transformer, "get_params") and not isinstance(transformer, type):
                    params.update(
                        {
                            f"{name}__{inner}": value
                            for inner, value in transformer.get_params(deep=True).items()
                        }
                    )
        return params

    def set_params(self, **params: Any) -> PerView:
        """Set parameters by the names of `get_params`; a transformer itself by the name of its view.

        Parameters
        ----------
        **params : dict
            New values by name.

        Returns
        -------
        self : PerView
            The object itself.
        """
        if "transformers" in params:
            self.transformers = params.pop("transformers")
        if isinstance(self.transformers, Mapping):
            replaced = {
                name: params.pop(name)
                for name in list(params)
                if name in self.transformers and name != "remainder"
            }
            if replaced:
                self.transformers = {**self.transformers, **replaced}  # the dict may be another one's, too
        return super().set_params(**params)

    def set_output(self, *, transform: Any = None) -> PerView:
        """Ask the transformers for tables ("pandas", "polars") or arrays ("default"), as in scikit-learn.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            None leaves it as it is.

        Returns
        -------
        self : PerView
            The object itself.
        """
        for transformer in [*self.transformers.values(), *getattr(self, "transformers_", {}).values()]:
            if hasattr(transformer, "set_output"):
                transformer.set_output(transform=transform)
        return self

    def _check_params(self, X: Views) -> None:
        if not isinstance(self.transformers, Mapping):
            raise TypeError(
                "transformers must be a dict from names of views to transformers, got "
                f"{type(self.transformers).__name__}"
            )
        if not isinstance(self.remainder, str) or self.remainder not in WORDS:
            raise ValueError(
                f"remainder must be one of {', '.join(map(repr, WORDS))}; got {self.remainder!r}"
            )
        for name, transformer in self.transformers.items():
            if name not in X:
                raise ValueError(
                    f"transformers names the view {name!r}, which is not in X; its views are {list(X.names)}"
                )
            if name in ("transformers", "remainder") or "__" in name:
                raise ValueError(
                    f"a view that has a transformer cannot be called {name!r}, which would be a parameter; "
                    "rename it"
                )
            if isinstance(transformer, str) and transformer in WORDS:
                continue
            if isinstance(transformer, type) or not all(
                hasattr(transformer, method) for method in ("fit", "transform")
            ):
                raise TypeError(
                    f"transformers[{name!r}] must have fit and transform, or be one of "
                    f"{', '.join(map(repr, WORDS))}; got {transformer!r}"
                )
            if name in X.matrices:
                raise ValueError(
                    f"view {name!r} is a ready-made matrix, whose rows know their columns; it cannot be "
                    "transformed"
                )
            if not X.has(name).any():
                raise ValueError(f"no row of X has view {name!r}, so {transformer!r} cannot be fitted")

    # -- fitting and transforming ------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> PerView:
        """Fit every transformer to the rows that have its view.

        Parameters
        ----------
        X : Views or dict
            The views, of n rows.
        y : array-like of shape (n,), or None
            Labels, for transformers that use them.

        Returns
        -------
        self : PerView
            Fitted.
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Views:
        """Fit every transformer to the rows that have its view, and transform these; see `fit` and
        `transform`.

        Parameters
        ----------
        X : Views or dict
            Rows.
        y : array-like of shape (n,), or None
            Targets, for transformers that take them.

        Returns
        -------
        views : Views
            The same rows, transformed.
        """
        X = _as_views(X)
        self._check_params(X)
        if y is not None and n_rows(y) != len(X):
            raise ValueError(f"X and y have different lengths: X has {len(X)} rows, y has {n_rows(y)}")
        fitted: dict[str, Any] = {}
        done, examples = {}, {}
        for name, transformer in self.transformers.items():
            fitted[name] = transformer if isinstance(transformer, str) else clone(transformer)
            if isinstance(transformer, str):
                continue
            there = np.flatnonzero(X.has(name))
            view = X.rows_with(name)
            own_y = y if y is None or len(there) == len(X) else _safe_indexing(y, there)
            if hasattr(transformer, "fit_transform"):
                done[name] = fitted[name].fit_transform(view, own_y)
            else:
                done[name] = fitted[name].fit(view, own_y).transform(view)
            _check_rows(done[name], len(there), name, transformer)
            examples[name] = Views({name: done[name]})[:1]
        self.transformers_, self.views_in_, self.n_features_in_ = fitted, X.names, len(X.names)
        # What a transformer makes of a row: the columns of a view that no row has are known by it.
        self._examples = examples
        return self._put_together(X, done)

    def transform(self, X: Any) -> Views:
        """Transform every view, of the rows that have it.

        Parameters
        ----------
        X : Views or dict
            With the views that `fit` has seen.

        Returns
        -------
        views : Views
            The same rows; a view that a row lacked is lacking still.
        """
        check_is_fitted(self, "transformers_")
        X = _as_views(X)
        lost = [name for name in self.views_in_ if name not in X and self._what(name) != "drop"]
        if lost:
            raise ValueError(f"X has no view {lost[0]!r}, which fit has seen; its views are {list(X.names)}")
        done = {}
        for name, transformer in self.transformers_.items():
            if isinstance(transformer, str):
                continue
            there = int(X.has(name).sum())
            if there:
                done[name] = transformer.transform(X.rows_with(name))
                _check_rows(done[name], there, name, transformer)
            else:
                done[name] = self._examples[name][name]
        return self._put_together(X, done)

    def _what(self, name: str) -> Any:
        """What happens to a view: a fitted transformer or a word."""
        return self.transformers_.get(name, self.remainder)

    def _put_together(self, X: Views, done: dict) -> Views:
        """Views in the order of `fit`, of which `done` are transformed."""
        kept = [name for name in self.views_in_ if self._what(name) != "drop"]
        if not kept:
            raise ValueError("no view is left: all of them are dropped")
        return X.with_views(kept, done)


def _as_views(X: Any) -> Views:
    if isinstance(X, Views):
        return X
    if is_dict(X):
        return Views(X)
    raise TypeError(f"PerView takes a raymkl.Views or a dict of views, got {type(X).__name__}")


def _check_rows(view: Any, n: int, name: str, transformer: Any) -> None:
    if n_rows(view) != n:
        raise ValueError(
            f"the transformer of view {name!r} made {n_rows(view)} rows of {n}; each row must stay one: "
            f"{transformer!r}"
        )
