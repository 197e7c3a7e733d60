"""Answers of fitted models for a `ray.data.Dataset`: another Dataset, made by workers that hold the model,
when somebody reads it.

| method | columns |
|---|---|
| predict | prediction |
| decision_function | decision; one per class, by its name, where there are more than two |
| predict_proba, predict_set | one per class, by its name |
| predict_interval | low, high |
| contributions | contributions: (M,) per row, or (n_classes, M) |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from sklearn.utils.validation import check_is_fitted

from ..data.sources import is_dataset
from . import sources

Method = TypeVar("Method", bound=Callable[..., Any])  # editors see what the method itself says
# Rows that a worker answers at a time.
BATCH_ROWS = 4_096


def datasets_too(method: Method) -> Method:
    """Let a method that takes rows X of a fitted model answer a Dataset with a Dataset."""

    @wraps(method)
    def answer(self: Any, X: Any, *more: Any, **options: Any) -> Any:
        if not is_dataset(X):
            return method(self, X, *more, **options)
        if hasattr(self, "fit"):  # a `TableModel` is always fitted
            check_is_fitted(self)
        return answers(self, X, method.__name__, *more, **options)

    return cast(Method, answer)


def answers(model: Any, dataset: Any, method: str, *more: Any, **options: Any) -> Any:
    """The Dataset of what a method of the model says about the rows of a Dataset, in their order. Nothing is
    computed yet.

    more, options : further arguments of the method.
    Datasets share their execution options with those they were made of; `preserve_order` is set in them.
    """
    import ray  # there is a Dataset, so it is loaded already

    schema = dataset.schema(fetch_if_missing=False)
    missing = [
        name
        for name in getattr(model, "feature_names_in_", ())
        if schema is not None and name not in schema.names
    ]
    if missing:
        raise ValueError(
            f"the Dataset has no column {missing[0]!r}, which the model was fitted to; its columns are "
            f"{schema.names}"
        )
    found = dataset.map_batches(
        Worker,
        fn_constructor_args=(
            [ray.put(model)],
            method,
            more,
            options,
        ),  # in a list, so that a worker that is started again finds it
        batch_size=BATCH_ROWS,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(
            min_size=1, max_size=max(1, int(ray.cluster_resources().get("CPU", 1)))
        ),
        num_cpus=1,
    )
    found.context.execution_options.preserve_order = True
    return found


class Worker:
    """Holds a model and answers batches.

    model : a list with a reference to it. more, options : further arguments of the method.
    """

    def __init__(self, model: list, method: str, more: tuple = (), options: dict | None = None):
        import ray

        (self.model,) = ray.get(model)
        self.method, self.more, self.options = method, more, options or {}

    def __call__(self, table: pa.Table) -> dict[str, np.ndarray]:
        if table.num_rows == 0:
            return {}
        values = np.asarray(
            getattr(self.model, self.method)(sources.batch_of(self.model, table), *self.more, **self.options)
        )
        if self.method == "predict_interval":
            return {"low": values[:, 0], "high": values[:, 1]}
        if self.method in ("predict", "contributions"):
            return {"prediction" if self.method == "predict" else "contributions": values}
        if values.ndim == 1:
            return {"decision": values}
        return {str(name): values[:, k] for k, name in enumerate(self.model.classes_)}
