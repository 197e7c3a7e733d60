"""What a served model takes: a body of JSON becomes columns, or an error that names column and row.

Nothing here needs Ray.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.views import view_of
from ..models.reading import is_matrix
from ..models.table_model import TableModel

# Name of the only column of models without names.
ROW = ""


class BadRows(ValueError):
    """Rows or a body that the model cannot take; the text says which column of which row."""


@dataclass(frozen=True)
class Inputs:
    """What a model takes.

    kind : "records" (named columns), "views" (a dict of arrays) or "arrays" (rows without names).
    widths : numbers per row by column or view (`ROW` for arrays); None where any number will do.
    text : those that hold text.
    """

    kind: str
    widths: dict[str, int | None]
    text: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: Any) -> "Inputs":
        """Of a fitted model, from its public attributes.

        ValueError for models of ready-made kernel matrices.
        """
        if isinstance(model, TableModel):
            known = model.preparation.widths
            names = model.preparation.feature_names
            return cls(
                "records", {name: known.get(name) for name in names}, frozenset(set(names) - set(known))
            )
        kernels = list(getattr(model, "kernels_", ()))
        if any(map(is_matrix, kernels)):
            raise ValueError(
                "a model of ready-made kernel matrices cannot be served: it takes kernel values with its "
                "training rows"
            )
        read = {key: view_of(key) for kernel in kernels for key in kernel.views}
        texts = [view_of(key) for kernel in kernels for key in kernel.string_views()]
        rows = model.expansion_.support_rows if hasattr(model, "expansion_") else {}
        if hasattr(model, "feature_names_in_"):
            names = [str(name) for name in model.feature_names_in_]
            text = frozenset(names[0] if view is None else str(view) for view in texts)
            # A view of one column that is wider than one is a column of vectors.
            return cls(
                "records",
                {name: rows[name].shape[1] if name in rows and name not in text else 1 for name in names},
                text,
            )
        widths: dict[str, int | None] = {}
        for key, view in read.items():
            if isinstance(view, str):
                widths[view] = rows[key].shape[1]
            elif isinstance(view, tuple) and isinstance(view[0], str):
                widths.setdefault(view[0], None)
            elif isinstance(view, list) and all(isinstance(part, str) for part in view):
                return cls(
                    "records", dict.fromkeys((str(part) for one in read.values() for part in _listed(one)), 1)
                )
        if widths:
            return cls("views", widths, frozenset(view for view in texts if isinstance(view, str)))
        text = frozenset([ROW] if texts else [])
        return cls("arrays", {ROW: getattr(model, "n_features_in_", None)}, text)

    def columns(self, rows: Any) -> dict[str, np.ndarray]:
        """The "rows" of a body as columns: (n,) texts or numbers, or (n, width). Raises BadRows.

        rows : list of n records {name: value}, of n arrays for models without names, or a dict of views with
        n entries each. Columns that the model does not know are left out.
        """
        if isinstance(rows, dict) and self.kind != "arrays":
            lists = {name: _known(rows, name, "rows") for name in self.widths}
            wrong = [name for name, values in lists.items() if not isinstance(values, list)]
            if wrong:
                raise BadRows(
                    f"column {wrong[0]!r} must be a list with one entry per row, got "
                    f"{_shown(lists[wrong[0]])}"
                )
            lengths = {name: len(values) for name, values in lists.items()}
            if len(set(lengths.values())) > 1:
                raise BadRows(f"columns have different numbers of rows: {lengths}")
        elif not isinstance(rows, list):
            raise BadRows(
                f'"rows" must be a list with one {"array" if self.kind == "arrays" else "record"} per row, '
                f"got {_shown(rows)}"
            )
        elif self.kind == "arrays":
            lists = {ROW: rows}
        else:
            for i, row in enumerate(rows):
                if not isinstance(row, dict):
                    raise BadRows(
                        f"row {i} must be a record with the columns {', '.join(map(repr, self.widths))}, got "
                        f"{_shown(row)}"
                    )
            lists = {
                name: [_known(row, name, f"row {i}") for i, row in enumerate(rows)] for name in self.widths
            }
        if not next(iter(lists.values())):
            raise BadRows('"rows" is empty; at least one row is needed')
        return {name: self._column(name, values) for name, values in lists.items()}

    def _column(self, name: str, values: list) -> np.ndarray:
        if name in self.text:
            for i, value in enumerate(values):
                if not isinstance(value, str):
                    raise BadRows(f"{_place(i, name)} must be text, got {_shown(value)}")
            return np.array(values, object)
        width = self.widths[name]
        if width == 1 and self.kind == "records":
            return np.array([_number(value, i, name) for i, value in enumerate(values)])
        width = len(values[0]) if width is None and isinstance(values[0], list) else width
        out = []
        for i, value in enumerate(values):
            if not isinstance(value, list):
                raise BadRows(
                    f"{_place(i, name)} must be an array of {width or 'several'} numbers, got {_shown(value)}"
                )
            if len(value) != width:
                raise BadRows(f"{_place(i, name)} has length {len(value)}; the model takes {width} numbers")
            out.append([_number(part, i, name, k) for k, part in enumerate(value)])
        return np.array(out, np.float64).reshape(len(values), -1)

    def container(self, model: Any, columns: dict[str, np.ndarray]) -> Any:
        """X for the model's methods, of columns made by `columns`."""
        if self.kind == "arrays":
            return columns[ROW]
        if self.kind == "views" or isinstance(model, TableModel):
            return columns
        if not hasattr(model, "feature_names_in_"):  # fitted to a table
            import pyarrow as pa

            return pa.table(columns)
        import pandas as pd

        return pd.DataFrame(
            {name: list(array) if array.ndim == 2 else array for name, array in columns.items()}
        )


def _listed(view: Any) -> list:
    return view if isinstance(view, list) else [view]


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _place(row: int, name: str, entry: int | None = None) -> str:
    if name == ROW:
        return f"row {row}" if entry is None else f"row {row}, column {entry}"
    return f"row {row}, column {name!r}" + ("" if entry is None else f", entry {entry}")


def _known(record: dict, name: str, where: str) -> Any:
    if name not in record:
        raise BadRows(f"{where}: column {name!r} is missing")
    return record[name]


def _number(value: Any, row: int, name: str, entry: int | None = None) -> float:
    """A finite number of JSON (true and false are none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRows(f"{_place(row, name, entry)} must be a number, got {_shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadRows(
            f"{_place(row, name, entry)} must be a finite number, got "
            f"{'NaN' if math.isnan(number) else 'infinity'}"
        )
    return number


def parsed(model: Any, inputs: Inputs, body: bytes) -> tuple[dict[str, np.ndarray], bool]:
    """Columns, and whether contributions are asked for, of the text of a request. Raises BadRows."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRows('the body is not JSON; it must be {"rows": [...]}') from None
    if not isinstance(content, dict) or "rows" not in content:
        raise BadRows(f'the body must be {{"rows": [...]}}, got {_shown(content)}')
    unknown = sorted(set(content) - {"rows", "contributions"})
    if unknown:
        raise BadRows(f'the body has an unknown entry {unknown[0]!r}; it takes "rows" and "contributions"')
    wanted = content.get("contributions", False)
    if not isinstance(wanted, bool):
        raise BadRows(f'"contributions" must be true or false, got {_shown(wanted)}')
    if wanted and not has_contributions(model):
        raise BadRows(f"a {type(inner(model)).__name__} has no contributions of kernels")
    return inputs.columns(content["rows"]), wanted


def inner(model: Any) -> Any:
    """The estimator of a model that was trained from a table, else the model itself."""
    return model.model if isinstance(model, TableModel) else model


def has_contributions(model: Any) -> bool:
    """Whether the decisions of a model are sums of parts of its kernels."""
    return hasattr(inner(model), "contributions")
