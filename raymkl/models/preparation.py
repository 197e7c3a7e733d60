"""What becomes of the columns of a table before a model sees them: found by name, put into views, scaled.

Tables in Parquet and Arrow files stay there: what the model sees is then a `PreparedSource`, whose batches
are prepared as they are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from ..data.lazy_rows import SourceView, Survey, ViewKind
from ..data.packed import digest
from ..data.sources import RowSource
from ..data.tables import Columns, DataError, SourceColumns, from_arrow, open_columns
from ..data.views import arrow_of, is_dict, is_frame, is_other_frame, is_table
from .sources import SourceInput


@dataclass(frozen=True)
class Preparation:
    """What becomes of a table before a model sees it.

    Parameters
    ----------
    views : view name -> names of its columns. One view under the name None: X is an array; else X is a dict
        of views.
    widths : column name -> numbers in it (1 for a plain column, d for a column of vectors). Columns of text
        are not in it.
    mean, scale : column name -> (width,) arrays, (x - mean) / scale is what the model sees; empty: the
        numbers as they are. Sparse columns are divided by their scale and not shifted, which would fill them.
    target : name of the column of labels, or None.
    """

    views: dict[str | None, list[str]]
    widths: dict[str, int]
    mean: dict[str, np.ndarray] = field(default_factory=dict)
    scale: dict[str, np.ndarray] = field(default_factory=dict)
    target: str | None = None

    @classmethod
    def fit(
        cls,
        columns: Columns,
        views: Mapping[str | None, list[str]],
        text: Any = (),
        standardize: bool = False,
        target: str | None = None,
    ) -> Preparation:
        """Learn widths, means and deviations of the columns of `views`; those in `text` are read as text."""
        names = list(dict.fromkeys(name for members in views.values() for name in members))
        numbers = [name for name in names if name not in text]
        mean, scale = {}, {}
        if isinstance(columns, SourceColumns):  # bad values are found when batches are read
            for name, facts in (columns.facts(numbers) if standardize else {}).items():
                mean[name], scale[name] = facts.mean, _scale(facts.deviation, np.abs(facts.mean))
            widths = {name: columns.width(name) for name in numbers}
        else:
            arrays = {name: columns.numbers(name) for name in numbers}
            for name in text:
                columns.text(name)
            for name, array in arrays.items() if standardize else ():
                mean[name], scale[name] = _moments(array)
            widths = {name: int(array.shape[1]) for name, array in arrays.items()}
        wild = [name for name, values in scale.items() if not np.isfinite(values).all()]
        if wild:
            raise DataError(
                f"{columns.source}: column {wild[0]!r} has numbers too large to standardize: their squares "
                "are beyond float64"
            )
        return cls({key: list(members) for key, members in views.items()}, widths, mean, scale, target)

    @property
    def feature_names(self) -> list[str]:
        """The columns that are read, in order."""
        return list(dict.fromkeys(name for members in self.views.values() for name in members))

    def columns_of(self, view: str | None) -> list[str]:
        """A name for every feature of a view: its column, or `column[k]` for parts of a vector."""
        return [
            name if self.widths[name] == 1 else f"{name}[{k}]"
            for name in self.views[view]
            if name in self.widths
            for k in range(self.widths[name])
        ]

    def transform(self, X: Any) -> Any:
        """Array, CSR matrix or dict of views for the model, of `Columns`, a DataFrame, a `pyarrow.Table`, a
        dict of columns or an array.

        An array holds all columns of numbers in the order of training. Of a path of a Parquet or Arrow file
        (or `SourceColumns`), X is a `SourceInput` that the model reads batch by batch.
        """
        columns = self._columns(X)
        missing = [name for name in self.feature_names if name not in columns.names]
        if missing:
            raise DataError(f"{columns.source} has no column {missing[0]!r}, which the model was trained on")
        if isinstance(columns, SourceColumns):
            return SourceInput(PreparedSource(columns, self), named=False)
        built = self.built(columns, self.views)
        return built.get(None, built)

    def built(self, columns: Columns, views: Iterable[str | None]) -> dict:
        """Arrays by view of columns in memory."""
        names = dict.fromkeys(name for view in views for name in self.views[view])
        parts = {name: self._column(columns, name) for name in names}
        return {view: _beside([parts[name] for name in self.views[view]]) for view in views}

    def _column(self, columns: Columns, name: str) -> Any:
        if name not in self.widths:
            return columns.text(name)
        array, width = columns.numbers(name), self.widths[name]
        if (
            sp.issparse(array) and array.shape[1] < width
        ):  # a sparse file does not say how many columns there are
            array = sp.csr_matrix((array.data, array.indices, array.indptr), (array.shape[0], width))
        if array.shape[1] != width:
            raise DataError(
                f"{columns.source}: column {name!r} has width {array.shape[1]}, the model was trained on "
                f"{width}"
            )
        if name not in self.scale:
            return array
        if sp.issparse(array):
            return array.multiply(1.0 / self.scale[name]).tocsr()
        return (array - self.mean[name]) / self.scale[name]

    def _columns(self, X: Any) -> Columns:
        if isinstance(X, Columns):
            return X
        if isinstance(X, str | os.PathLike):
            return open_columns(X)
        if is_frame(X):
            return from_arrow(pa.Table.from_pandas(X, preserve_index=False), "X")
        if is_table(X) or is_other_frame(X):
            return from_arrow(arrow_of(X), "X")
        if is_dict(X):
            return Columns(
                "X",
                {
                    name: value.tocsr() if sp.issparse(value) else np.asarray(value)
                    for name, value in X.items()
                },
            )
        array = X.tocsr() if sp.issparse(X) else np.asarray(X)
        total = sum(self.widths.values())
        if len(self.widths) < len(self.feature_names) or array.ndim != 2 or array.shape[1] != total:
            raise DataError(
                f"X has shape {array.shape}; the model takes tables with the columns "
                f"{', '.join(self.feature_names[:12])}"
                f"{', ...' if len(self.feature_names) > 12 else ''} or arrays of shape (n, {total})"
            )
        edges = np.cumsum([0, *self.widths.values()])
        return Columns("X", {name: array[:, edges[i] : edges[i + 1]] for i, name in enumerate(self.widths)})


def _moments(array: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of every column of (n, width); 1 for the deviation of constant ones."""
    if sp.issparse(array):
        mean = np.zeros(array.shape[1])
        first = np.asarray(array.mean(axis=0)).ravel()
        scale = np.sqrt(np.maximum(np.asarray(array.multiply(array).mean(axis=0)).ravel() - first**2, 0.0))
        size = np.abs(first)
    else:
        mean = array.mean(axis=0, dtype=np.float64)
        scale = array.std(axis=0, dtype=np.float64)
        size = np.abs(mean)
    return mean, _scale(scale, size)


def _scale(deviation: np.ndarray, size: np.ndarray) -> np.ndarray:
    """What to divide by: a column that varies by round-off alone is constant."""
    return np.where(deviation > 1e-12 * size, np.where(deviation > 0, deviation, 1.0), 1.0)


def _beside(parts: list) -> Any:
    if len(parts) == 1:
        return parts[0]
    return sp.hstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.hstack(parts)


class PreparedSource(RowSource):
    """What a model sees of a table in a file: one column per view, of vectors or of text, prepared batch by
    batch.
    """

    kind = "prepared table"

    def __init__(self, columns: SourceColumns, preparation: Preparation):
        self.columns, self.preparation = columns, preparation
        self.counts = columns.rows.counts
        self.views = {"X" if view is None else view: view for view in preparation.views}
        self.schema = pa.schema(
            [(name, self._kind(preparation.views[view])) for name, view in self.views.items()]
        )
        texts = {
            name: preparation.views[view]
            for name, view in self.views.items()
            if pa.types.is_string(self.schema.field(name).type)
        }
        self.measured = {name: columns.rows.row_bytes(members) for name, members in texts.items()}

    def __str__(self) -> str:
        return self.columns.source

    def fingerprint(self) -> str:
        known = vars(self.preparation)
        return json.dumps(
            [
                self.kind,
                self.columns.rows.fingerprint(),
                digest(repr({name: known[name] for name in ("views", "widths")})),
                digest(
                    *(
                        part
                        for record in ("mean", "scale")
                        for name, array in known[record].items()
                        for part in (record, name, np.asarray(array))
                    )
                ),
            ]
        )

    def seen(self) -> Any:
        """Stand-ins of the arrays that the model will see, like `Preparation.transform` in memory; they know
        their ranges.
        """
        found: dict[str | None, SourceView | None] = {}
        for name, view in self.views.items():
            kind = self.schema.field(name).type
            if pa.types.is_string(kind):
                found[view] = None
                continue
            survey = Survey({view: self._edge(view, "low")}, {view: self._edge(view, "high")})
            found[view] = SourceView(
                self,
                ViewKind(view, (name,), kind.value_type.to_pandas_dtype(), kind.list_size),
                survey=survey,
            )
        return found.get(None, found)

    def _edge(self, view: str | None, which: str) -> np.ndarray:
        """(width,) smallest or largest values of a view, after preparation."""
        members = self.preparation.views[view]
        facts = self.columns.facts(list(self.preparation.widths))
        mean, scale = self.preparation.mean, self.preparation.scale
        return np.concatenate(
            [(getattr(facts[name], which) - mean.get(name, 0.0)) / scale.get(name, 1.0) for name in members]
        )

    def _kind(self, members: list[str]) -> pa.DataType:
        widths, scaled = self.preparation.widths, self.preparation.scale
        if members[0] not in widths:
            return pa.string()
        kinds = [self.columns.rows.schema.field(name).type for name in members]
        inner = {kind.value_type if pa.types.is_fixed_size_list(kind) else kind for kind in kinds}
        narrow = inner == {pa.float32()} and not any(name in scaled for name in members)
        return pa.list_(pa.float32() if narrow else pa.float64(), sum(widths[name] for name in members))

    def _tables(self, portions, columns, batch_rows):
        edges, views = self._edges(), [self.views[name] for name in columns]
        names = list(dict.fromkeys(name for view in views for name in self.preparation.views[view]))
        for part in self.columns.batches(
            names, batch_rows, int(edges[portions[0]]), int(edges[portions[-1] + 1])
        ):
            built = self.preparation.built(part, views)
            yield pa.table(
                [_arrow(built[self.views[name]], self.schema.field(name).type) for name in columns],
                names=columns,
            )


def _arrow(array: np.ndarray, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array(array.tolist(), kind)
    flat = pa.array(np.ascontiguousarray(array, kind.value_type.to_pandas_dtype()).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, kind.list_size)
