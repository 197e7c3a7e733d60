"""Files of columns: which format a name means, a reader for each, and writing."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..sources import ArrowSource, ParquetSource
from .arrow import from_arrow
from .columns import Columns, DataError, check_repeated, short
from .source_columns import SourceColumns

DEFAULT_TARGET = "y"
CSV_WHOLE = 2**30


def read_columns(path: Any, format: str | None = None) -> Columns:
    """Read a data file into memory; the format follows from the suffix unless it is given (csv, tsv, parquet,
    arrow, npz, libsvm).

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
    check_repeated(columns.names, columns.source)
    lengths = {name: int(array.shape[0]) for name, array in columns.arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: arrays have different numbers of rows: {lengths}")
    return columns


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = (
        suffixes[-2]
        if len(suffixes) > 1 and suffixes[-1] in (".gz", ".bz2")
        else suffixes[-1]
        if suffixes
        else ""
    )
    if last not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise DataError(
            f"{path}: the format does not follow from the name; known endings: {known}; or say it with "
            "--format"
        )
    return SUFFIXES[last]


def _read_csv(path: Path, delimiter: str = ",") -> Columns:
    from pyarrow import csv as arrow_csv

    # These words are missing values in columns of numbers; in columns of text they are words.
    options = arrow_csv.ConvertOptions(null_values=["", "NaN", "nan", "NA", "N/A", "null", "NULL", "#N/A"])
    parse = arrow_csv.ParseOptions(delimiter=delimiter)
    try:
        table = arrow_csv.read_csv(str(path), parse_options=parse, convert_options=options)
    except pa.ArrowInvalid:
        # The type of a column is taken from the first block, and a later one may hold what does not fit: look
        # at all rows at once.
        whole = arrow_csv.ReadOptions(block_size=CSV_WHOLE)
        table = arrow_csv.read_csv(
            str(path), read_options=whole, parse_options=parse, convert_options=options
        )
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
        raise DataError(f"{path} needs an array X or arrays view_<name>; it holds {short(arrays)}")
    for name, array in features.items():
        if array.ndim not in (1, 2):
            raise DataError(f"{path}: {name} has shape {array.shape}; features have shape (n, d)")
    n = len(next(iter(features.values())))
    if "X" in features and "X" not in arrays and "y_train" in arrays:
        arrays[DEFAULT_TARGET] = arrays["y_train"]
    others = {name: array for name, array in arrays.items() if name not in features and array.shape == (n,)}
    return Columns(
        str(path),
        {**features, **others},
        DEFAULT_TARGET if DEFAULT_TARGET in others else None,
        list(features),
    )


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

        table = pa.table(
            {
                name: pa.array(array.tolist() if array.dtype.kind in "OU" else array)
                for name, array in columns.items()
            }
        )
        if kind == "parquet":
            parquet.write_table(table, path)
        else:
            feather.write_feather(table, path, compression="uncompressed")
    else:
        raise DataError(f"cannot write {path}: predictions are written as .csv, .parquet or .arrow")
