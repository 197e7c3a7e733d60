"""A model together with the preparation of its columns, so that it takes the same tables that it was trained
from.

    table --(columns by name, views, (x - mean) / scale)--> X --(MKLClassifier)--> labels

`raymkl train` makes one, its file holds both parts, and `raymkl.load` gives it back.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if

from .dataset_answers import datasets_too
from .files.saving import Saves
from .preparation import Preparation as Preparation

# The view of all columns of numbers, where there are several views.
ALL = "all"


class TableModel(Saves):
    """A fitted estimator that takes tables: columns are found by name, put into views and scaled as in
    training.

    Parameters
    ----------
    model : fitted estimator, such as `MKLClassifier`; its attributes (`kernel_weights_`, ...) can be read
        here too.
    preparation : Preparation

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from raymkl import MKLClassifier
    >>> from raymkl.models.table_model import Preparation, TableModel
    >>> frame = pd.DataFrame({"a": np.arange(20.0), "b": 100.0 * np.arange(20) % 7,
    ...     "label": ["low"] * 10 + ["high"] * 10})
    >>> preparation = Preparation({None: ["a", "b"]}, {"a": 1, "b": 1}, {"a": 9.5, "b": 3.0}, {"a": 5.8,
    ...     "b": 2.0}, "label")
    >>> model = MKLClassifier(engine="local").fit(preparation.transform(frame), frame["label"])
    >>> str(TableModel(model, preparation).predict(frame)[0])
    'low'
    """

    def __init__(self, model: Any, preparation: Preparation):
        self.model = model
        self.preparation = preparation

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not name.endswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.model, name)

    @datasets_too
    def predict(self, X: Any) -> np.ndarray:
        """Labels, or numbers, of the rows of a table.

        Parameters
        ----------
        X : DataFrame, pyarrow.Table, dict of columns, ndarray, or path
            Rows with the columns of training, as they are.

        Returns
        -------
        labels : ndarray of shape (n,)
            As the model predicts them.
        """
        return self.model.predict(self.preparation.transform(X))

    @datasets_too
    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values of the rows of a table.

        Parameters
        ----------
        X : DataFrame, pyarrow.Table, dict of columns, ndarray, or path
            Rows with the columns of training, as they are.

        Returns
        -------
        values : ndarray of shape (n,)
            With more than two classes (n, n_classes).
        """
        return self.model.decision_function(self.preparation.transform(X))

    @available_if(lambda self: hasattr(self.model, "predict_proba"))
    @datasets_too
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes.

        Parameters
        ----------
        X : DataFrame, pyarrow.Table, dict of columns, ndarray, or path
            Rows with the columns of training, as they are.

        Returns
        -------
        probabilities : ndarray of shape (n, n_classes)
            Where the model has them.
        """
        return self.model.predict_proba(self.preparation.transform(X))

    @available_if(lambda self: hasattr(self.model, "predict_set"))
    @datasets_too
    def predict_set(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Classes that fit each row, (n, n_classes) bool; see the model's `predict_set`."""
        return self.model.predict_set(self.preparation.transform(X), coverage)

    @available_if(lambda self: hasattr(self.model, "predict_interval"))
    @datasets_too
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Lower and upper ends (n, 2) for y; see the model's `predict_interval`."""
        return self.model.predict_interval(self.preparation.transform(X), coverage)

    @datasets_too
    def contributions(self, X: Any) -> np.ndarray:
        """What every kernel brings to the decision values; see the model's `contributions`.

        Parameters
        ----------
        X : DataFrame, pyarrow.Table, dict of columns, ndarray, or path
            Rows with the columns of training, as they are.

        Returns
        -------
        parts : ndarray of shape (n, M)
            With more than two classes (n, n_classes, M).
        """
        return self.model.contributions(self.preparation.transform(X))

    def score(self, X: Any, y: Any) -> float:
        """Score of the model on the rows of a table.

        Parameters
        ----------
        X : DataFrame, pyarrow.Table, dict of columns, ndarray, or path
            Rows with the columns of training, as they are.
        y : array-like of shape (n,)
            Labels.

        Returns
        -------
        score : float
            That of the model.
        """
        return self.model.score(self.preparation.transform(X), y)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"TableModel({self.model!r}, {len(self.preparation.feature_names)} columns)"
