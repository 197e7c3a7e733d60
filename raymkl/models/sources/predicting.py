"""Rows of a source for a fitted model: the columns that it reads, batch by batch or in one piece."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ...data.vector_columns import plain_schema, plain_table
from ...data.views import view_key, view_of, where_of
from ...kernels.base import Kernel
from ...kernels.given import Absence
from .inputs import Batch, SourceInput
from .surveying import batches, columns_of


def batches_to_predict(model: Any, X: SourceInput) -> Iterator[Batch]:
    """All rows of a source for a fitted model, batch by batch."""
    columns, features = _columns_to_predict(model, X)
    return batches(X.source, features, columns)


def batch_of(model: Any, table: pa.Table) -> Batch | pa.Table:
    """A table of a Dataset, all of it, as a batch for a fitted model; a `TableModel` takes it as it is."""
    if hasattr(model, "preparation"):
        return table
    table = plain_table(table, plain_schema(table.schema, table, "the Dataset"), 0, "the Dataset")
    columns, features = _columns_to_predict(model, TableInput(table))
    return Batch(table.select(columns), range(table.num_rows), features)


class TableInput:
    """A table in the place of a `SourceInput`, as far as its columns go."""

    def __init__(self, table: pa.Table):
        self.source, self.features = table, list(table.column_names)


def whole_to_predict(model: Any, X: SourceInput) -> Batch:
    """The same in one piece, for what is not made for streams; an error when it is too large."""
    return X.in_memory(*_columns_to_predict(model, X))


def _columns_to_predict(model: Any, X: SourceInput) -> tuple[list[str], list[str]]:
    """Columns that a fitted model reads, and those that a view of everything reads; other columns do not
    matter.
    """
    features = [str(name) for name in getattr(model, "feature_names_in_", X.features)]
    keys = _views_read(model)
    if None in keys:
        missing = [name for name in features if name not in X.source.column_names]
        if missing:
            where = "the Dataset" if isinstance(X.source, pa.Table) else X.source
            raise ValueError(f"{where} has no column {missing[0]!r}, which the model was fitted to")
    columns = [
        name
        for key in keys
        for name in columns_of(
            view_of(key), X.source.column_names, features if key is None else X.source.column_names
        )
    ]
    return list(dict.fromkeys(columns)), features


def check_widths(rows: dict, support_rows: dict) -> None:
    """Raise ValueError when rows have another number of features than the model was fitted to."""
    for key, array in rows.items():
        fitted = support_rows.get(key)
        if fitted is not None and fitted.dtype.kind == "f" and fitted.shape[1] != array.shape[1]:
            where = where_of(key)
            raise ValueError(
                f"{where} has {array.shape[1]} features, but the model was fitted to {fitted.shape[1]}"
            )


def _views_read(model: Any) -> list:
    """Keys of the views that a fitted model reads, for its kernels and for its gates."""
    if not hasattr(model, "kernels_"):  # a mixture reads all columns
        return [None]
    keys = [key for kernel in model.kernels_ if not isinstance(kernel, Absence) for key in kernel.views]
    for value in model.get_params(deep=False).values():
        keys += value.views if isinstance(value, Kernel) else ()
    if hasattr(model, "gating_view"):
        keys.append(view_key(model.gating_view))
    return list(dict.fromkeys(keys))
