"""Which view of a handwritten digit tells which digit it is?
==========================================================

Six views of the same digits (for the data set `mfeat`: profile correlations, Fourier coefficients,
Karhunen-Loeve coefficients, morphological features, pixel averages, Zernike moments), a few Gaussian widths
for each, and one model over all of them. Every digit has kernel weights of its own; summed over the widths of
a view they say how much the digit leans on it. Writes into --out: views.png (a heat map, digits by views),
views.csv, and accuracy.csv (each view alone, all views together).

Run it::

    python examples/multiview_digits.py --data mfeat.npz      arrays y and view_<name> (n, d) for every view
    python examples/multiview_digits.py                       without --data: six views computed from
                                                              scikit-learn's bundled digits
"""

import argparse
import csv
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import machine, timed
from sklearn.model_selection import train_test_split

from raymkl import MKLClassifier, kernels


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data", metavar="FILE.npz", help="multi-view data (default: views made from scikit-learn's digits)"
    )
    parse.add_argument("--n", type=int, default=1_000, help="training rows at most (default: %(default)s)")
    parse.add_argument(
        "--p", type=float, default=1.1, help="block norm; near 1 selects few kernels (default: %(default)s)"
    )
    parse.add_argument("--C", type=float, default=10.0, help="weight of the loss (default: %(default)s)")
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("multiview_digits"),
        help="results go here (default: %(default)s)",
    )
    return parse.parse_args()


def generated_views() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Six views of scikit-learn's 8 x 8 digits, of different worth for different digits."""
    from sklearn.datasets import load_digits

    flat, y = load_digits(return_X_y=True)
    images = flat.reshape(-1, 8, 8) / 16
    spectrum = np.abs(np.fft.fft2(images))
    quarters = images.reshape(-1, 2, 4, 2, 4).mean(axis=(2, 4)).reshape(len(y), 4)
    rows, columns = np.mgrid[0:8, 0:8] - 3.5
    mass = images.sum(axis=(1, 2))
    moments = np.stack(
        [
            (images * rows**a * columns**b).sum(axis=(1, 2)) / mass
            for a in range(4)
            for b in range(4 - a)
            if a + b
        ],
        axis=1,
    )
    return {
        "pixels": flat / 16,
        "profiles": np.concatenate([images.sum(axis=1), images.sum(axis=2)], axis=1),
        "fourier": spectrum[:, :5, :5].reshape(len(y), -1),
        "moments": moments,
        "quarters": quarters,
        "edges": np.concatenate([np.abs(np.diff(images, axis=k)).sum(axis=3 - k) for k in (1, 2)], axis=1),
    }, y


def load(path: str | None) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    if path is None:
        return "views of scikit-learn's digits (generated)", *generated_views()
    with np.load(path, allow_pickle=False) as file:
        views = {
            name.removeprefix("view_"): file[name].astype(float)
            for name in file.files
            if name.startswith("view_")
        }
        if not views or "y" not in file:
            raise SystemExit(f"{path} needs arrays y and view_<name>; it holds {', '.join(file.files)}")
        return path, views, file["y"]


def bank_of(views: dict[str, np.ndarray]) -> list:
    """Three widths around the typical distance in every view (columns are standardised, so that distances are
    about 2 d).
    """
    return [
        kernels.RBF(gamma=factor / (2 * X.shape[1]), view=name)
        for name, X in views.items()
        for factor in (0.3, 1.0, 3.0)
    ]


def standardised(views: dict, train: np.ndarray, test: np.ndarray) -> tuple[dict, dict]:
    """Columns with mean 0 and variance 1 on the training rows."""
    parts: tuple[dict, dict] = ({}, {})
    for name, X in views.items():
        mean, scale = X[train].mean(axis=0), X[train].std(axis=0)
        scale = np.where(scale > 1e-12, scale, 1.0)
        for part, rows in zip(parts, (train, test), strict=True):
            part[name] = (X[rows] - mean) / scale
    return parts


def shares_of(clf: MKLClassifier, names: list[str]) -> np.ndarray:
    """(n_classes, n_views) share of every view in the kernel weights of every class."""
    of_view = np.array([[kernel.view == name for name in names] for kernel in clf.kernels_], float)
    shares = clf.kernel_weights_ @ of_view
    return shares / shares.sum(axis=1, keepdims=True)


def draw(shares: np.ndarray, digits: np.ndarray, names: list[str], axes) -> None:
    image = axes.imshow(shares, cmap="viridis", vmin=0, aspect="auto")
    axes.figure.colorbar(image, ax=axes, label="share of the kernel weights")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(digits)), [str(digit) for digit in digits])
    for (i, j), share in np.ndenumerate(shares):
        axes.text(
            j,
            i,
            f"{share:.2f}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if share < 0.55 * shares.max() else "black",
        )
    axes.set(xlabel="view", ylabel="digit", title="Which view matters for which digit")


def main():
    args = options()
    name, views, y = load(args.data)
    rows = np.arange(len(y))
    train, test = train_test_split(rows, train_size=min(args.n, len(y) // 2), stratify=y, random_state=0)
    X, X_test = standardised(views, train, test)
    print(
        f"{name}: {len(train)} rows to train, {len(test)} to test; "
        f"{', '.join(f'{k} ({v.shape[1]})' for k, v in views.items())}"
    )
    print(*machine(), sep="\n")
    settings = {"C": args.C, "p": args.p, "engine": "local", "normalize": "multiplicative"}
    accuracy = {}
    for view in views:
        alone = MKLClassifier(
            kernels=[kernel for kernel in bank_of(views) if kernel.view == view], **settings
        ).fit(X, y[train])
        accuracy[view] = alone.score(X_test, y[test])
        print(f"{view:>12} alone   test accuracy {accuracy[view]:.4f}")
    seconds, clf = timed(lambda: MKLClassifier(kernels=bank_of(views), **settings).fit(X, y[train]))
    accuracy["all views"] = clf.score(X_test, y[test])
    print(
        f"   all views       test accuracy {accuracy['all views']:.4f}   ({seconds:.1f} s, worst gap "
        f"{clf.duality_gap_.max():.1e})"
    )
    shares = shares_of(clf, list(views))
    for digit, row in zip(clf.classes_, shares, strict=True):
        order = np.argsort(-row)[:2]
        print(f"digit {digit}: " + ", ".join(f"{list(views)[j]} {row[j]:.2f}" for j in order))
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "views.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["digit", *views])
        writer.writerows(
            [digit, *(f"{share:.4f}" for share in row)]
            for digit, row in zip(clf.classes_, shares, strict=True)
        )
    with (args.out / "accuracy.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["kernels", "test_accuracy"], *((k, f"{v:.4f}") for k, v in accuracy.items())]
        )
    print(f"# wrote {args.out / 'views.csv'} and accuracy.csv")
    plot(
        args.out / "views.png",
        lambda axes: draw(shares, clf.classes_, list(views), axes),
        width=7.5,
        height=5.5,
    )


if __name__ == "__main__":
    main()
