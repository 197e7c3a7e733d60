"""Rows of a ready-made matrix that know their columns.

Row i of K (N, N) or (N, N, M) holds what example i shares with all N examples. Some of the rows keep all N
columns, by reference, and their numbers; which columns are wanted is known later: their own in `fit`, those
of the training rows in `predict`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..store import KernelStore, is_store


class MatrixRows:
    """Some rows of a ready-made matrix, with all of its columns.

    source : the matrix or those of its rows that are at hand, array (k, N) or (k, N, M), memory map, or
    kernel store; read, never written.
    at : (n,) where the rows stand in source. numbers : (n,) of the rows in the matrix, which are the columns
    that they stand for too.
    identity : equal for rows of one matrix, also after `pickle`. of_square : whether the matrix is (N, N);
    one of new examples, (n, N), has columns that are not its rows.
    """

    def __init__(self, source: Any, at: np.ndarray, numbers: np.ndarray, identity: str, of_square: bool):
        self.source, self.at, self.numbers, self.identity, self.of_square = (
            source,
            at,
            numbers,
            identity,
            of_square,
        )

    @classmethod
    def of_matrix(cls, matrix: Any, name: str) -> MatrixRows:
        """All rows of a matrix that came in. name : of its view, for errors."""
        if isinstance(matrix, str | os.PathLike):
            if not is_store(matrix):
                raise ValueError(
                    f"view {name!r} is named in matrices, but {matrix!r} is not the path of a kernel store"
                )
            matrix = KernelStore(matrix)
        if isinstance(matrix, KernelStore):
            source, identity = matrix, f"store {matrix.path}"
        elif isinstance(matrix, np.ndarray) and matrix.ndim in (2, 3) and matrix.dtype.kind in "fiub":
            source, identity = matrix.view(), uuid.uuid4().hex
            source.flags.writeable = False
        else:
            what = (
                f"an array of shape {matrix.shape}, dtype {matrix.dtype}"
                if isinstance(matrix, np.ndarray)
                else type(matrix).__name__
            )
            raise TypeError(
                f"view {name!r} is named in matrices, so it must be numbers (n, n) or (n, n, M): an array, a "
                "memory map or a kernel store; "
                f"got {what}"
            )
        rows = np.arange(source.shape[0])
        return cls(source, rows, rows, identity, source.shape[0] == source.shape[1])

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.at), *self.source.shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    def __len__(self) -> int:
        return len(self.at)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of a ready-made matrix, shape {self.shape}>"

    def __getitem__(self, rows: Any) -> MatrixRows:
        return MatrixRows(self.source, self.at[rows], self.numbers[rows], self.identity, self.of_square)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._rows(), dtype)

    def __getstate__(self) -> dict:
        """Rows that are not among these stay behind; of a kernel store only its path travels."""
        if isinstance(self.source, KernelStore):
            return dict(vars(self))
        used, at = np.unique(self.at, return_inverse=True)
        whole = len(used) == len(self.source)
        return {
            **vars(self),
            "source": self.source if whole else self.source[used],
            "at": self.at if whole else at,
        }

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        if isinstance(self.source, np.ndarray):
            self.source = self.source.view()
            self.source.flags.writeable = False

    def given(self) -> Any:
        """What a user sees: a read-only array (n, N) or (n, N, M), not copied where rows follow each other.

        Of a kernel store itself or, where there are some of its rows alone, these: `np.asarray` reads them.
        """
        if isinstance(self.source, KernelStore):
            return self.source if self.is_whole else self
        return self._rows()

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the matrix, once each, in its order."""
        return (
            len(self) == self.source.shape[1]
            and self.of_square
            and bool(np.array_equal(self.numbers, np.arange(len(self))))
        )

    def _rows(self) -> np.ndarray:
        if isinstance(self.source, KernelStore):
            return self.source.row_segments(self.at, 0, self.source.shape[1])
        start = int(self.at[0]) if len(self.at) else 0
        if np.array_equal(self.at, np.arange(start, start + len(self.at))):
            return self.source[start : start + len(self.at)]
        rows = self.source[self.at]
        rows.flags.writeable = False
        return rows

    def columns(self, numbers: np.ndarray) -> np.ndarray:
        """(n, k) or (n, k, M) entries of these rows in the columns numbers (k,)."""
        if isinstance(self.source, KernelStore):
            return self.source.entries(self.at, numbers)
        return self.source[np.ix_(self.at, numbers)]

    @staticmethod
    def stacked(parts: Sequence[MatrixRows], name: str) -> MatrixRows:
        """Rows of one matrix below each other."""
        if len({part.identity for part in parts}) > 1:
            raise ValueError(
                f"view {name!r} holds rows of {len({part.identity for part in parts})} ready-made matrices; "
                "they cannot stand below "
                "each other, since their columns stand for different examples"
            )
        numbers = np.concatenate([part.numbers for part in parts])
        first = parts[0].source
        if all(part.source is first or isinstance(first, KernelStore) for part in parts):
            return MatrixRows(
                first,
                np.concatenate([part.at for part in parts]),
                numbers,
                parts[0].identity,
                parts[0].of_square,
            )
        # Parts that came out of a file or another process bring their rows with them.
        source = np.concatenate([part._rows() for part in parts])
        source.flags.writeable = False
        return MatrixRows(source, np.arange(len(numbers)), numbers, parts[0].identity, parts[0].of_square)
