"""What the study of clusters with machines looks at and is measured by: data sets, generated sets, published
figures, measures of clusters.

Not a program; see clustered.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.metrics import davies_bouldin_score, normalized_mutual_info_score, pairwise_distances, rand_score

DEFAULT_SETS = ("svmguide1", "mushrooms", "pendigits", "phishing")
# Where sets are looked for that are named without a place.
FOLDERS = (
    Path("."),
    Path("data"),
    Path("..") / "shared" / "data",
    Path(__file__).resolve().parents[2] / "shared" / "data",
)
# What is measured of clusters; the first three need the true ones.
MEASURES = ("nmi", "rand", "purity", "davies_bouldin", "dunn")
# Rows that a Dunn index is computed of: all pairs of them are looked at.
DUNN_ROWS = 2_000

# Mean accuracies in per cent (Table 2 of the paper) and seconds of training (Table 3); what it has no figure
# for is left out.
PUBLISHED = {
    "svmguide1": {"CIK": (96.14, 291), "BaNK": (96.85, 377), "BEMKL": (95.66, 128), "UFO-MKL": (96.72, 2.3)},
    "mushrooms": {"CIK": (99.94, 611), "BaNK": (100.0, 856), "BEMKL": (100.0, 756), "UFO-MKL": (100.0, 38)},
    "pendigits": {"CIK": (97.54, 1576), "BEMKL": (97.14, 3615), "UFO-MKL": (96.37, 16)},
    "phishing": {"CIK": (99.97, 650), "BaNK": (96.67, 832), "BEMKL": (96.52, 2001), "UFO-MKL": (94.71, 94)},
    "cod-rna": {"CIK": (94.28, 2908), "BaNK": (96.54, 5965), "UFO-MKL": (95.92, 902)},
    "susy": {"CIK": (78.96, 4379), "BaNK": (80.17, 7719), "UFO-MKL": (74.41, 4089)},
}
# NMI, Rand index, purity (Table 1), and Davies-Bouldin and Dunn indices (Table 4, where Dunn's is printed in
# tenths).
PUBLISHED_CLUSTERS = {
    ("synthetic", "CIK"): {"nmi": 0.84, "rand": 0.93, "purity": 0.56},
    ("synthetic", "DPM"): {"nmi": 0.57, "rand": 0.62, "purity": 0.28},
    ("svmguide1", "CIK"): {"davies_bouldin": 1.19, "dunn": 0.003},
    ("svmguide1", "DPM"): {"davies_bouldin": 1.57, "dunn": 0.002},
    ("mushrooms", "CIK"): {"davies_bouldin": 3.67, "dunn": 0.238},
    ("mushrooms", "DPM"): {"davies_bouldin": 3.00, "dunn": 0.243},
    ("pendigits", "CIK"): {"davies_bouldin": 2.27, "dunn": 0.036},
    ("pendigits", "DPM"): {"davies_bouldin": 2.56, "dunn": 0.033},
    ("phishing", "CIK"): {"davies_bouldin": 4.09, "dunn": 0.193},
    ("phishing", "DPM"): {"davies_bouldin": 3.13, "dunn": 0.193},
}


# -- data sets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataSet:
    """name : for the tables. X, y : (n, d) and (n,). X_test, y_test : the official test part, or None."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray | None = None
    y_test: np.ndarray | None = None

    @property
    def official(self) -> bool:
        return self.X_test is not None

    def split(
        self, seed: int, most: int | None, most_test: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """X, y, X_test, y_test: the official test part or a random fifth, at most so many rows of each,
        columns of training spread one.
        """
        order = np.random.default_rng(seed).permutation(len(self.y))
        if self.X_test is not None and self.y_test is not None:
            T, t = self.X_test, self.y_test
        else:
            cut = len(order) * 4 // 5
            T, t, order = self.X[order[cut:]], self.y[order[cut:]], order[:cut]
        if most_test is not None and len(t) > most_test:
            some = np.random.default_rng(seed + 1).permutation(len(t))[
                :most_test
            ]  # official test parts may be sorted by class
            T, t = T[some], t[some]
        X, y = self.X[order[:most]], self.y[order[:most]]
        mean, spread = X.mean(axis=0), X.std(axis=0)
        spread[spread == 0] = 1.0
        return (X - mean) / spread, y, (T - mean) / spread, t


def found(name: str) -> Path | None:
    """The file of a set that is named without a place, or None."""
    return next((folder / f"{name}.npz" for folder in FOLDERS if (folder / f"{name}.npz").is_file()), None)


def load(path: str | Path) -> DataSet:
    """A set from an .npz file (X, y, perhaps X_test, y_test) or a Parquet table (a column label or y, all
    others numbers).
    """
    path = Path(path)
    name = (
        path.stem.lower().replace("_", "-") if path.stem.lower().replace("_", "-") in PUBLISHED else path.stem
    )
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                arrays = {key: file[key] for key in ("X", "y", "X_test", "y_test") if key in file}
        else:
            import pandas as pd

            table = pd.read_parquet(path)
            label = next(column for column in ("label", "y", *table.columns[:1]) if column in table)
            arrays = {"X": table.drop(columns=label).to_numpy(np.float64), "y": table[label].to_numpy()}
        X, y = np.asarray(arrays["X"], np.float64), arrays["y"]
    except (OSError, KeyError, ValueError) as error:
        raise SystemExit(f"--data {path} is not a data set with X and y: {error}") from None
    if X.ndim != 2 or y.shape != (len(X),):
        raise SystemExit(f"--data {path}: X must be (n, d) and y (n,); they are {X.shape} and {y.shape}")
    T, t = (
        (np.asarray(arrays["X_test"], np.float64), arrays["y_test"])
        if {"X_test", "y_test"} <= set(arrays)
        else (None, None)
    )
    if (
        name == "phishing" and np.isin(X, (-1, 0, 1)).all()
    ):  # categories in numbers; one column per value, as in LIBSVM's copy
        X, T = (
            None if rows is None else np.hstack([rows == value for value in (-1, 0, 1)]).astype(float)
            for rows in (X, T)
        )
    return DataSet(name, X, y, T, t)


def generated(seed: int) -> list[DataSet]:
    """Sets that need no files: a rule for each of three clusters, and two useful columns of twelve."""
    return [
        DataSet("three rules", *figure1(2_000, seed)[:2]),
        DataSet("useless columns", *useless_columns(2_000, seed)),
    ]


# -- generated rows --------------------------------------------------------------------------------


def figure1(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clusters in the plane with a linear rule each, in three directions: X (n, 2), classes (n,),
    clusters (n,).
    """
    rng = np.random.default_rng(seed)
    ways = np.array([[1.0, 0.0], [0.0, 1.0], [-np.sqrt(0.5), -np.sqrt(0.5)]])
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [3.0, 5.2]])
    z, E = rng.integers(3, size=n), rng.normal(size=(n, 2))
    y = np.einsum("ni,ni->n", E, ways[z]) > 0
    return centres[z] + E + np.where(y, 0.15, -0.15)[:, None] * ways[z], y.astype(int), z


def section41(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten Gaussians around three centres, in three classes: X (n, 2), classes (n,), Gaussians (n,).

    The paper does not say which Gaussians share a class. Here Gaussian k has class k mod 3 wherever it lies,
    so that those around the same centre, which lie over each other, mostly differ in class and labels tell
    them apart.
    """
    rng = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(3) / 3
    centres = 6.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    means = centres[rng.permutation(np.arange(10) % 3)] + 1.6 * rng.normal(size=(10, 2))
    A, z = 0.5 * np.eye(2) + 0.5 * rng.normal(size=(10, 2, 2)), rng.integers(10, size=n)
    return means[z] + np.einsum("nij,nj->ni", A[z], rng.normal(size=(n, 2))), z % 3, z


def useless_columns(n: int, seed: int, d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """The first two columns decide, the others are noise: X (n, d), classes (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] ** 2 - 0.8 + 0.1 * rng.normal(size=n) > 0).astype(int)


# -- measures of clusters --------------------------------------------------------------------------


def purity(true: np.ndarray, clusters: np.ndarray) -> float:
    """Part of the rows that are of the most frequent true group of their cluster. true, clusters : (n,)."""
    _, rows = np.unique(clusters, return_inverse=True)
    _, columns = np.unique(true, return_inverse=True)
    counts = np.zeros((rows.max() + 1, columns.max() + 1), int)
    np.add.at(counts, (rows, columns), 1)
    return float(counts.max(axis=1).sum() / len(rows))


def dunn(X: np.ndarray, clusters: np.ndarray, seed: int = 0) -> float | None:
    """Smallest distance of two rows of different clusters over the largest of two of the same; None for one
    cluster.

    X : (n, d); clusters : (n,). Beyond DUNN_ROWS rows, so many of them drawn at random: the index of fewer
    rows is larger.
    """
    some = np.random.default_rng(seed).permutation(len(X))[:DUNN_ROWS]
    distances, own = pairwise_distances(X[some]), clusters[some]
    same = own[:, None] == own[None, :]
    widest = distances[same].max()
    return None if same.all() or widest == 0 else float(distances[~same].min() / widest)


def measures(X: np.ndarray, clusters: np.ndarray, true: np.ndarray | None = None) -> dict:
    """Measures of clusters (n,) of the rows X (n, d): by their shape, and by the true ones (n,) where these
    are known.
    """
    n_clusters = len(np.unique(clusters))
    several = 1 < n_clusters < len(X)
    row = {
        "davies_bouldin": float(davies_bouldin_score(X, clusters)) if several else None,
        "dunn": dunn(X, clusters) if several else None,
        "clusters": n_clusters,
    }
    if true is not None:
        row |= {
            "nmi": float(normalized_mutual_info_score(true, clusters)),
            "rand": float(rand_score(true, clusters)),
            "purity": purity(true, clusters),
        }
    return row
