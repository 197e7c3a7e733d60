"""Data files: what the command line reads and writes.

| suffix                                    | format                    | columns |
|---|---|---|
| .csv, .tsv (also .gz)                     | text with a header line   | one per name |
| .parquet, .pq                             | Parquet                   | one per name; lists of equal length are columns of vectors |
| .arrow, .feather, .ipc                    | Arrow IPC file            | the same |
| .npz                                      | NumPy arrays              | `X` (n, d), or `view_<name>` (n, d) per view; labels `y` |
| .libsvm, .svm, .svmlight (also .gz, .bz2) | label index:value ...     | `X` (n, d) sparse; labels `y` |

All of them become a `Columns`: names and arrays with one row per example. Those of Parquet and Arrow files may stay in the file
(`open_columns`), read batch by batch through `data.sources`; the others are read as a whole.
"""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from .sources import INDEX_COLUMN, ArrowSource, ParquetSource, RowSource

DEFAULT_TARGET = "y"
CSV_WHOLE = 2**30


class DataError(ValueError):
    """Something about a data file that its owner must change; the text says what and where."""


@dataclass
class Columns:
    """Named columns with one row per example.

    source : what to call it in messages, mostly a path.
    arrays : name -> (n,) numbers or text, (n, width) numbers, or a CSR matrix (n, width).
    target : the column of labels when the format has one of its own (`y`), else None.
    features : the columns that are features when the format says so (`X`, the views), else None: all but the target.
    first : number of the first row in the file, for errors.
    """

    source: str
    arrays: dict[str, Any]
    target: str | None = None
    features: list[str] | None = None
    first: int = 0

    @property
    def n_rows(self) -> int:
        return 0 if not self.arrays else int(next(iter(self.arrays.values())).shape[0])

    @property
    def names(self) -> list[str]:
        return list(self.arrays)

    def array(self, name: str) -> Any:
        """A column as it is; an error that says which ones there are when it is not there."""
        if name not in self.arrays:
            raise DataError(f"{self.source} has no column {name!r}; columns: {_short(self.names)}")
        return self.arrays[name]

    def holds_numbers(self, name: str) -> bool:
        return is_numeric(self.array(name))

    def loaded(self) -> Columns:
        """The same columns in memory."""
        return self

    def labels(self, target: str | None) -> np.ndarray:
        """(n,) labels out of the column `target`; an error that names it when it is not there or has gaps."""
        name = self.target if target is None else target
        if name is None:
            raise DataError(f"{self.source}: say which column holds the labels (--target NAME); columns: {_short(self.names)}")
        if name not in self.names:
            raise DataError(f"{self.source} has no column {name!r} (the target); columns: {_short(self.names)}")
        labels = self.array(name)
        if sp.issparse(labels) or labels.ndim != 1:
            raise DataError(f"{self.source}: the target column {name!r} holds vectors of {labels.shape[1]} numbers, not labels")
        missing = _missing(labels)
        if missing.any():
            raise DataError(f"{self.source}: the target column {name!r} has no label in row {self._row(missing)}")
        return _whole(labels)

    def feature_names(self, target: str | None) -> list[str]:
        """Names of all columns but the target."""
        target = self.target if target is None else target
        return [name for name in (self.features or self.names) if name != target]

    def text_columns(self, names: list[str]) -> list[str]:
        """Those of `names` that do not hold numbers."""
        return [name for name in names if not self.holds_numbers(name)]

    def numbers(self, name: str) -> Any:
        """(n, width) floats or CSR of one column; an error that names it for text, missing and infinite values."""
        array = self.array(name)
        if not is_numeric(array):
            raise DataError(f"{self.source}: column {name!r} does not hold numbers (its first entry is {array[0]!r})")
        if sp.issparse(array):
            array = array.tocsr()
            values = array.data
        else:
            array = array.reshape(len(array), -1)
            array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
            values = array
        if not np.isfinite(values).all():
            raise DataError(
                f"{self.source}: {_where_not_finite(name, array, self.first)}; missing and infinite values must be dealt with first"
            )
        return array

    def text(self, name: str) -> np.ndarray:
        """(n,) strings of one column."""
        array = self.array(name)
        if is_numeric(array):
            raise DataError(f"{self.source}: column {name!r} holds numbers, a string kernel needs text")
        if _missing(array).any():
            raise DataError(f"{self.source}: column {name!r} has no text in row {self._row(_missing(array))}")
        return array.astype(str)

    def _row(self, where: np.ndarray) -> int:
        """Number of the first row that is marked in (n,)."""
        return self.first + int(np.flatnonzero(where)[0])


@dataclass(frozen=True)
class Facts:
    """What one pass over a column has shown: its mean, deviation, smallest and largest values, (width,) each."""

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
            raise DataError(f"{self.source} has no column {name!r}; columns: {_short(self.names)}")
        return from_arrow(self.rows.read(0, self.n_rows, [name]), self.source).arrays[name]

    def holds_numbers(self, name: str) -> bool:
        return holds_numbers(self.rows.schema.field(name).type)

    def width(self, name: str) -> int:
        """Numbers in a row of a column."""
        kind = self.rows.schema.field(name).type
        return kind.list_size if pa.types.is_fixed_size_list(kind) else 1

    def loaded(self) -> Columns:
        return from_arrow(self.rows.read(0, self.n_rows), self.source)

    def batches(self, names: list[str], batch_rows: int | None = None, first: int = 0, last: int | None = None) -> Iterator[Columns]:
        """Some columns of rows first <= i < last, batch by batch."""
        for table in self.rows.stream(first, self.n_rows if last is None else last, names, batch_rows):
            yield from_arrow(table, self.source, first)
            first += table.num_rows

    def facts(self, names: list[str]) -> dict[str, Facts]:
        """What is known of columns of numbers after one pass over all rows, which is made once; bad values are named."""
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
    """Facts of a column out of (rows, mean, sum of squared differences from it, smallest, largest) of its batches."""
    counts, means, spreads, lows, highs = (np.array(values) for values in zip(*parts, strict=True))
    mean = counts @ means / counts.sum()
    squares = spreads.sum(axis=0) + counts @ np.square(means - mean)
    return Facts(mean, np.sqrt(squares / counts.sum()), lows.min(axis=0), highs.max(axis=0))


def is_numeric(array: Any) -> bool:
    """Whether a column holds numbers (or truth values)."""
    return sp.issparse(array) or array.dtype.kind in "fiub"


def _missing(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "O":
        return np.array([value is None or value != value or value == "" for value in array], bool)
    return np.isnan(array) if array.dtype.kind == "f" else np.zeros(len(array), bool)


def _whole(labels: np.ndarray) -> np.ndarray:
    """Labels that are whole numbers stored as floats become whole numbers; text becomes text."""
    if labels.dtype.kind == "f" and np.all(labels == np.rint(labels)) and np.abs(labels).max(initial=0) < 2**53:
        return labels.astype(np.int64)
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        return labels.astype(str)
    return labels


def _where_not_finite(name: str, array: Any, first: int) -> str:
    if sp.issparse(array):
        position = int(np.flatnonzero(~np.isfinite(array.data))[0])
        row, column, value = int(np.searchsorted(array.indptr, position, "right") - 1), int(array.indices[position]), array.data[position]
    else:
        row, column = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        value = array[row, column]
    place = f"column {name!r}" if array.shape[1] == 1 and not sp.issparse(array) else f"column {column} of {name!r}"
    return f"{place} has {'a missing value (NaN)' if np.isnan(value) else 'an infinite value'} in row {first + row}"


def _short(names: Any) -> str:
    names = [str(name) for name in names]
    return ", ".join(names) if len(names) <= 12 else ", ".join(names[:12]) + f", ... ({len(names)} in all)"


# -- reading ----------------------------------------------------------------------------------------------------------


def read_columns(path: Any, format: str | None = None) -> Columns:
    """Read a data file into memory; the format follows from the suffix unless it is given (csv, tsv, parquet, arrow, npz, libsvm).

    >>> columns = read_columns("train.csv")             # doctest: +SKIP
    >>> X, y = columns.numbers("age"), columns.labels("label")     # doctest: +SKIP
    """
    return open_columns(path, format).loaded()


def open_columns(path: Any, format: str | None = None) -> Columns:
    """The same, but columns of Parquet and Arrow files stay in the file (`SourceColumns`)."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_dir():
        raise DataError(f"{path} is a directory, not a data file")
    kind = format or _kind(path)
    try:
        columns = READERS[kind](path)
    except DataError:
        raise
    except Exception as error:  # readers of several libraries, each with errors of its own
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} cannot be read as {kind}: {first}") from None
    if columns.n_rows == 0:
        raise DataError(f"{path} has no rows")
    _check_repeated(columns.names, columns.source)
    lengths = {name: int(array.shape[0]) for name, array in columns.arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: arrays have different numbers of rows: {lengths}")
    return columns


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in (".gz", ".bz2") else suffixes[-1] if suffixes else ""
    if last not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise DataError(f"{path}: the format does not follow from the name; known endings: {known}; or say it with --format")
    return SUFFIXES[last]


def _read_csv(path: Path, delimiter: str = ",") -> Columns:
    from pyarrow import csv as arrow_csv

    # These words are missing values in columns of numbers; in columns of text they are words.
    options = arrow_csv.ConvertOptions(null_values=["", "NaN", "nan", "NA", "N/A", "null", "NULL", "#N/A"])
    parse = arrow_csv.ParseOptions(delimiter=delimiter)
    try:
        table = arrow_csv.read_csv(str(path), parse_options=parse, convert_options=options)
    except pa.ArrowInvalid:
        # The type of a column is taken from the first block, and a later one may hold what does not fit: look at all rows at once.
        whole = arrow_csv.ReadOptions(block_size=CSV_WHOLE)
        table = arrow_csv.read_csv(str(path), read_options=whole, parse_options=parse, convert_options=options)
    return from_arrow(table, str(path))


def _read_tsv(path: Path) -> Columns:
    return _read_csv(path, "\t")


def _open_parquet(path: Path) -> Columns:
    return SourceColumns(str(path), ParquetSource(path))


def _open_arrow(path: Path) -> Columns:
    return SourceColumns(str(path), ArrowSource(path))


def _read_npz(path: Path) -> Columns:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    views = {name[len("view_") :]: array for name, array in arrays.items() if name.startswith("view_")}
    plain = next((arrays[name] for name in ("X", "X_train") if name in arrays), None)
    features = views or ({} if plain is None else {"X": plain})
    if not features:
        raise DataError(f"{path} needs an array X or arrays view_<name>; it holds {_short(arrays)}")
    for name, array in features.items():
        if array.ndim not in (1, 2):
            raise DataError(f"{path}: {name} has shape {array.shape}; features have shape (n, d)")
    n = len(next(iter(features.values())))
    if "X" in features and "X" not in arrays and "y_train" in arrays:
        arrays[DEFAULT_TARGET] = arrays["y_train"]
    others = {name: array for name, array in arrays.items() if name not in features and array.shape == (n,)}
    return Columns(str(path), {**features, **others}, DEFAULT_TARGET if DEFAULT_TARGET in others else None, list(features))


def _read_libsvm(path: Path) -> Columns:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    return Columns(str(path), {"X": X, DEFAULT_TARGET: y}, DEFAULT_TARGET, ["X"])


READERS: Mapping[str, Callable[[Path], Columns]] = {
    "csv": _read_csv,
    "tsv": _read_tsv,
    "parquet": _open_parquet,
    "arrow": _open_arrow,
    "npz": _read_npz,
    "libsvm": _read_libsvm,
}
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
}


def from_arrow(table: pa.Table, source: str, first: int = 0) -> Columns:
    """Columns of a `pyarrow.Table`: numbers with missing values as NaN, text as objects. first : number of its first row, for errors."""
    names = [name for name in table.column_names if not INDEX_COLUMN.fullmatch(name)]
    _check_repeated(names, source)
    return Columns(source, {name: _array(table.column(name)) for name in names}, first=first)


def _check_repeated(names: list[str], source: str) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{source} has several columns of the name {repeated[0]!r}")


def holds_numbers(kind: pa.DataType) -> bool:
    """Whether a column of an Arrow type becomes numbers."""
    if pa.types.is_dictionary(kind) or pa.types.is_fixed_size_list(kind):
        return holds_numbers(kind.value_type)
    return any(is_kind(kind) for is_kind in NUMBERS)


NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)


def _array(column: Any) -> Any:
    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _vectors(column)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_dictionary(kind):
        return _array(column.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64()) if column.null_count or pa.types.is_decimal(kind) else column
    if holds_numbers(kind):
        return column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return np.array(column.to_pylist(), dtype=object)  # text, dates and whatever else has no place among numbers


def _vectors(column: Any) -> np.ndarray:
    """(n, width) of a column of lists; objects (which are no features) when their lengths differ. A missing vector is one of NaN."""
    from pyarrow import compute

    lengths = compute.unique(compute.drop_null(compute.list_value_length(column))).to_pylist()
    if len(lengths) != 1:
        return np.array([*map(str, column.to_pylist())], dtype=object)
    width = lengths[0]
    flat = [_array(column.chunk(i).flatten()) for i in range(column.num_chunks)]
    present = np.concatenate([chunk.is_valid().to_numpy(zero_copy_only=False) for chunk in column.chunks])
    values = np.concatenate(flat).reshape(-1, width)
    if present.all():
        return values
    out = np.full((len(present), width), np.nan)
    out[present] = values
    return out


# -- writing ----------------------------------------------------------------------------------------------------------


def write_columns(columns: Mapping[str, np.ndarray], path: str) -> None:
    """Write columns (n,) as CSV, Parquet or Arrow by the suffix of `path`; "-" is CSV on standard output."""
    kind = "csv" if path == "-" else SUFFIXES.get(Path(path).suffix.lower(), "")
    if kind == "csv":
        with contextlib.nullcontext(sys.stdout) if path == "-" else open(path, "w", newline="") as sink:
            writer = csv.writer(sink, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(array.tolist() for array in columns.values()), strict=True))
    elif kind in ("parquet", "arrow"):
        from pyarrow import feather, parquet

        table = pa.table({name: pa.array(array.tolist() if array.dtype.kind in "OU" else array) for name, array in columns.items()})
        if kind == "parquet":
            parquet.write_table(table, path)
        else:
            feather.write_feather(table, path, compression="uncompressed")
    else:
        raise DataError(f"cannot write {path}: predictions are written as .csv, .parquet or .arrow")
