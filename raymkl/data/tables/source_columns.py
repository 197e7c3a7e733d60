"""Columns that stay in their Parquet or Arrow file and are read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ..sources import RowSource
from .arrow import from_arrow, holds_numbers
from .columns import Columns, DataError, short


@dataclass(frozen=True)
class Facts:
    """What one pass over a column has shown: its mean, deviation, smallest and largest values, (width,)
    each.
    """

    mean: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray


class SourceColumns(Columns):
    """Columns of a Parquet or Arrow file that stay there. rows : the source that reads them."""

    def __init__(self, source: str, rows: RowSource):
        super().__init__(source, {})
        self.rows = rows
        self._facts: dict[str, Facts] = {}

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def names(self) -> list[str]:
        return self.rows.column_names

    def array(self, name: str) -> Any:
        """One column, read as a whole: labels."""
        if name not in self.names:
            raise DataError(f"{self.source} has no column {name!r}; columns: {short(self.names)}")
        return from_arrow(self.rows.read(0, self.n_rows, [name]), self.source).arrays[name]

    def holds_numbers(self, name: str) -> bool:
        return holds_numbers(self.rows.schema.field(name).type)

    def width(self, name: str) -> int:
        """Numbers in a row of a column."""
        kind = self.rows.schema.field(name).type
        return kind.list_size if pa.types.is_fixed_size_list(kind) else 1

    def loaded(self) -> Columns:
        return from_arrow(self.rows.read(0, self.n_rows), self.source)

    def batches(
        self, names: list[str], batch_rows: int | None = None, first: int = 0, last: int | None = None
    ) -> Iterator[Columns]:
        """Some columns of rows first <= i < last, batch by batch."""
        for table in self.rows.stream(first, self.n_rows if last is None else last, names, batch_rows):
            yield from_arrow(table, self.source, first)
            first += table.num_rows

    def facts(self, names: list[str]) -> dict[str, Facts]:
        """What is known of columns of numbers after one pass over all rows, which is made once; bad values
        are named.
        """
        if any(name not in self._facts for name in names):
            seen: dict[str, list] = {name: [] for name in names}
            for part in self.batches(names):
                for name in names:
                    array = part.numbers(name)
                    mean = array.mean(axis=0, dtype=np.float64)
                    spread = np.square(array - mean).sum(axis=0, dtype=np.float64)
                    seen[name].append((len(array), mean, spread, array.min(axis=0), array.max(axis=0)))
            self._facts.update({name: _joined(parts) for name, parts in seen.items()})
        return {name: self._facts[name] for name in names}


def _joined(parts: list[tuple]) -> Facts:
    """Facts of a column out of (rows, mean, sum of squared differences from it, smallest, largest) of its
    batches.
    """
    counts, means, spreads, lows, highs = (np.array(values) for values in zip(*parts, strict=True))
    mean = counts @ means / counts.sum()
    squares = spreads.sum(axis=0) + counts @ np.square(means - mean)
    return Facts(mean, np.sqrt(squares / counts.sum()), lows.min(axis=0), highs.max(axis=0))
