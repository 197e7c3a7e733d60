"""Tables of numbers for the benchmarks: a user's .npz files, scikit-learn's bundled sets, and generated ones
of any width.

Not a program. A file holds X (n, columns) and y (n,), any labels; X_test and y_test may come with them. Files
that call them X_train and y_train, as those of MNIST do, are read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

WIDTHS = 41


@dataclass(frozen=True)
class DataSet:
    """name : for the output.

    X : (n, columns). y : (n,) labels. X_test, y_test : the same of rows to predict, or None.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray | None = None
    y_test: np.ndarray | None = None

    @property
    def columns(self) -> int:
        return self.X.shape[1]

    def sample(self, n: int | None, seed: int = 0) -> DataSet:
        """At most n training rows, in random order (sets are often sorted by class)."""
        rows = np.random.default_rng(seed).permutation(len(self.y))[:n]
        return replace(self, X=self.X[rows], y=self.y[rows])

    def standardised(self) -> DataSet:
        """Every column with mean 0 and deviation 1 on the training rows; columns that are constant there
        become 0.
        """
        mean, deviation = self.X.mean(axis=0), self.X.std(axis=0)
        deviation[deviation <= 1e-12 * np.abs(mean)] = np.inf
        X_test = None if self.X_test is None else (self.X_test - mean) / deviation
        return replace(self, X=(self.X - mean) / deviation, X_test=X_test)

    def halves(self) -> DataSet:
        """Two classes: the lower half of the labels (-1) against the upper half (1)."""
        known = np.unique(self.y)
        last = known[len(known) // 2 - 1]
        y_test = None if self.y_test is None else np.where(self.y_test <= last, -1, 1)
        return replace(self, y=np.where(self.y <= last, -1, 1), y_test=y_test)


# -- where they come from --------------------------------------------------------------------------


def arrays_of(path: str | Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file by name; exits with a message when it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError) as error:  # AttributeError: a plain .npy array has no names
        raise SystemExit(f"--data {path}: not an .npz file of plain arrays ({error})") from None


def is_digits(path: str | Path) -> bool:
    """Whether a file holds images of digits as MNIST's does, and not a table X, y."""
    names = set(arrays_of(path))
    return {"X_train", "y_train"} <= names and "X" not in names


def read_data_set(path: str | Path) -> DataSet:
    """The data set of a file; exits with a message that says what is wrong with it."""
    arrays = arrays_of(path)
    X, y = (arrays.get(name, arrays.get(f"{name}_train")) for name in ("X", "y"))
    if X is None or y is None:
        raise SystemExit(f"--data {path}: needs arrays X and y, holds {', '.join(arrays)}")
    X_test, y_test = (arrays.get(name) for name in ("X_test", "y_test"))
    if X_test is None or y_test is None:
        X_test = y_test = None
    for name, rows, labels in (("X", X, y), ("X_test", X_test, y_test)):
        if rows is None:
            continue
        if (
            rows.ndim != 2
            or rows.dtype.kind not in "fiub"
            or labels.shape != rows.shape[:1]
            or rows.shape[1] != X.shape[1]
        ):
            raise SystemExit(
                f"--data {path}: {name} must be numbers (n, columns) with n labels, got {rows.shape} and "
                f"{labels.shape}"
            )
        if not np.isfinite(rows).all():
            raise SystemExit(f"--data {path}: {name} has missing or infinite values")
    if len(np.unique(y)) < 2:
        raise SystemExit(f"--data {path}: y has one class, at least two are needed")
    return DataSet(
        Path(path).stem, X.astype(float), y, None if X_test is None else X_test.astype(float), y_test
    )


def bundled() -> Iterator[DataSet]:
    """What comes with scikit-learn: 30, 64 and 13 columns; two, ten and three classes."""
    from sklearn.datasets import load_breast_cancer, load_digits, load_wine

    for name, load in (("breast cancer", load_breast_cancer), ("digits", load_digits), ("wine", load_wine)):
        yield DataSet(name, *load(return_X_y=True))


def generated(columns: int, n: int, classes: int = 2, seed: int = 0) -> DataSet:
    """A table that no linear function separates: four clusters per class, half of the columns informative, 2
    % wrong labels.
    """
    from sklearn.datasets import make_classification

    informative = max(4, columns // 2)
    X, y = make_classification(
        2 * n,
        columns,
        n_informative=informative,
        n_redundant=(columns - informative) // 2,
        n_classes=classes,
        n_clusters_per_class=4 if classes == 2 else 2,
        flip_y=0.02,
        random_state=seed,
    )
    return DataSet(f"generated, {columns}", X[:n], y[:n], X[n:], y[n:])


# -- kernels ---------------------------------------------------------------------------------------


def gaussian_widths(columns: int, count: int = WIDTHS) -> list:
    """Gaussian kernels with gamma from 2^-6 to 2^4 over the number of columns, in equal steps of the
    exponent.
    """
    from raymkl import kernels

    return kernels.rbf(2.0 ** np.linspace(-6, 4, count) / columns)


def described(sets: Sequence[Any]) -> str:
    """Names of data sets for the head of a table."""
    return "; ".join(dict.fromkeys(each.name for each in sets))
