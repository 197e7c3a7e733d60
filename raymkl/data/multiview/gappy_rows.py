"""Rows of a view of which some are not there: nothing stands for them, and columns keep their types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..views import is_frame, is_series, is_sparse, n_rows, subset

# Where a row would be that is not there.
NOWHERE = -1


class GappyRows:
    """Rows `at` (n,) of a table, an array, a sparse matrix or a list; `NOWHERE` where it has no such row.

    A column of whole numbers in which entries are missing is one of floats in pandas and in NumPy; so missing
    entries are put in for those alone who look at all rows.
    """

    def __init__(self, table: Any, at: np.ndarray):
        self.table, self.at = table, at

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.at), *getattr(self.table, "shape", (0,))[1:])

    def __len__(self) -> int:
        return len(self.at)

    def __getstate__(self) -> dict:
        """Rows that are not among these stay behind."""
        used = np.unique(self.at[self.at != NOWHERE])
        at = np.where(self.at == NOWHERE, NOWHERE, np.searchsorted(used, self.at))
        if not len(used):  # what a view would be like is said by a row of it, if there is one
            used = np.arange(min(1, n_rows(self.table)))
        return {"table": subset(self.table, used), "at": at}

    def __getitem__(self, index: np.ndarray) -> Any:
        """Rows index (k,); a plain container where all of them are there."""
        at = self.at[index]
        return GappyRows(self.table, at) if (at == NOWHERE).any() else subset(self.table, at)

    def given(self) -> Any:
        """All n rows in one container: those that are not there have missing entries, in a sparse matrix
        none.
        """
        absent = self.at == NOWHERE
        if is_frame(self.table) or is_series(self.table):
            return self.table.reset_index(drop=True).reindex(self.at).reset_index(drop=True)
        if type(self.table).__module__.startswith("pyarrow"):
            import pyarrow as pa

            return self.table.take(pa.array(self.at, mask=absent))
        somewhere = np.where(absent, 0, self.at)
        if isinstance(self.table, list):
            return [None if gone else self.table[row] for row, gone in zip(somewhere, absent, strict=True)]
        if is_sparse(self.table):
            from scipy.sparse import diags

            return (diags(np.where(absent, 0, 1).astype(self.table.dtype)) @ self.table[somewhere]).asformat(
                self.table.format
            )
        if isinstance(self.table, np.ndarray):
            kind = self.table.dtype.kind
            rows = self.table[somewhere].astype(
                {"i": float, "u": float, "b": float, "U": object, "S": object}.get(kind, self.table.dtype)
            )
            rows[absent] = None if rows.dtype == object else np.nan
            return rows
        return _with_nulls(self.table, np.where(absent, n_rows(self.table), self.at))


def _with_nulls(frame: Any, at: np.ndarray) -> Any:
    """Rows of a frame or column of polars; one beyond the last is a row of nulls."""
    import narwhals as nw

    known = nw.from_native(frame, eager_only=True, allow_series=True)
    if isinstance(known, nw.Series):
        table = _with_nulls(known.alias("column").to_frame().to_native(), at)
        return nw.from_native(table, eager_only=True).get_column("column").alias(known.name).to_native()
    nothing = nw.from_dict(
        {name: [None] for name in known.columns}, schema=known.schema, backend=known.implementation
    )
    return nw.concat([known, nothing])[at].to_native()


def gappy(view: Any) -> GappyRows:
    """A view, or rows of one, as rows of one."""
    return view if isinstance(view, GappyRows) else GappyRows(view, np.arange(n_rows(view)))
