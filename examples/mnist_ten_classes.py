"""Ten digits, one against the rest
================================

Ten problems over one set of kernel blocks.

Learns over Gaussian widths with weights of their own for every digit (or, with --shared, one set for all),
and shows time, certificate, accuracy and macro-averaged AUC. Writes into --out: classes.csv (one line per
digit), confusion.csv, weights.png (which widths which digit prefers) and the model itself, model.raymkl,
which `raymkl.load` reads.

Run it::

    python examples/mnist_ten_classes.py --data mnist.npz                arrays X_train, y_train, X_test,
                                                                         y_test (uint8)
    python examples/mnist_ten_classes.py --data mnist.npz --n 60000      all of MNIST (--memory 3 keeps it
    within 8 GB)
    python examples/mnist_ten_classes.py                                 without --data: scikit-learn's 1,797
                                                                         bundled digits
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import ARRAYS, ENVIRONMENT, MemoryWatch, machine, scaled, timed, warm_up

from raymkl import MKLClassifier, RayParams, kernels, metrics


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data",
        metavar="FILE.npz",
        default=os.environ.get(ENVIRONMENT),
        help=f"MNIST (default: variable {ENVIRONMENT})",
    )
    parse.add_argument("--n", type=int, default=6_000, help="training rows at most (default: %(default)s)")
    parse.add_argument("--kernels", type=int, default=20, help="Gaussian widths (default: %(default)s)")
    parse.add_argument("--shared", action="store_true", help="one set of weights for all digits")
    parse.add_argument("--compare", action="store_true", help="time a single digit against the rest as well")
    parse.add_argument("--engine", choices=["local", "ray", "auto"], default="local")
    parse.add_argument(
        "--shards", type=int, help="shards the rows are split into (default: chosen by the engine)"
    )
    parse.add_argument(
        "--memory",
        type=float,
        metavar="GIB",
        help="memory for the caches of each shard (default: a share of what is free)",
    )
    parse.add_argument("--p", type=float, default=4 / 3, help="block norm (default: 4/3)")
    parse.add_argument("--C", type=float, default=1.0, help="weight of the loss (default: %(default)s)")
    parse.add_argument(
        "--tol", type=float, default=1e-3, help="relative duality gap to reach (default: %(default)s)"
    )
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("mnist_ten_classes"),
        help="results go here (default: %(default)s)",
    )
    return parse.parse_args()


def load(path: str | None, n: int) -> tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Name of the data, X and y to train on (n rows at most), X and y to test on; pixels in 0..1."""
    if path is None:
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        rows = np.random.default_rng(0).permutation(len(X))
        train, test = rows[500 : 500 + n], rows[:500]
        return "scikit-learn's digits (8 x 8; not MNIST)", X[train] / 16, y[train], X[test] / 16, y[test]
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in ARRAYS if name not in file]
        if missing:
            raise SystemExit(f"{path} has no array {', '.join(missing)}; it holds {', '.join(file.files)}")
        X, y, X_test, y_test = (file[name] for name in ARRAYS)
    rows = np.random.default_rng(0).permutation(len(X))[:n]
    return f"MNIST ({path})", scaled(X[rows]), y[rows].astype(int), scaled(X_test), y_test.astype(int)


def write_classes(path: Path, clf: MKLClassifier, y_test: np.ndarray, f: np.ndarray) -> None:
    guess = clf.classes_[f.argmax(axis=1)]
    gaps = np.broadcast_to(clf.duality_gap_, len(clf.classes_))
    weights = np.broadcast_to(clf.kernel_weights_, (len(clf.classes_), len(clf.kernels_)))
    with path.open("w", newline="") as file:
        file.writelines(f"# {line}\n" for line in machine())
        writer = csv.writer(file)
        writer.writerow(["digit", "duality_gap", "support_vectors", "recall", "auc", "favourite_kernel"])
        for h, digit in enumerate(clf.classes_):
            own = y_test == digit
            auc = metrics.macro_auc(own, f[:, h])
            favourite = repr(clf.kernels_[weights[h].argmax()])
            support = np.count_nonzero(clf.dual_coef_[h])
            writer.writerow(
                [
                    digit,
                    f"{gaps[h]:.3g}",
                    support,
                    f"{np.mean(guess[own] == digit):.4f}",
                    f"{auc:.5f}",
                    favourite,
                ]
            )
    print(f"# wrote {path}")


def write_confusion(path: Path, classes: np.ndarray, y: np.ndarray, guess: np.ndarray) -> None:
    from sklearn.metrics import confusion_matrix

    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["true / predicted", *classes])
        writer.writerows(
            [label, *row]
            for label, row in zip(classes, confusion_matrix(y, guess, labels=classes), strict=True)
        )
    print(f"# wrote {path}")


def draw_weights(clf: MKLClassifier, axes) -> None:
    from raymkl.plot import KernelWeightsDisplay

    KernelWeightsDisplay.from_estimator(clf, ax=axes, sort=False)
    axes.set(title="Which Gaussian widths each digit prefers", ylabel="" if clf.shared_weights else "digit")


def main():
    args = options()
    name, X, y, X_test, y_test = load(args.data, args.n)
    steps = np.linspace(0, 3, args.kernels)
    bank = kernels.rbf((10.0**-steps * (1.0 if X.shape[1] > 100 else 2.0)).tolist())
    place = RayParams(
        num_shards=args.shards, memory_per_shard=None if args.memory is None else int(args.memory * 2**30)
    )
    settings = {
        "kernels": bank,
        "C": args.C,
        "p": args.p,
        "tol": args.tol,
        "engine": args.engine,
        "ray_params": place,
    }
    print(
        f"{name}: {len(y)} rows, {len(np.unique(y))} classes, {len(bank)} kernels, engine {args.engine}",
        *machine(),
        sep="\n",
    )
    warm_up(X, y)  # compiled code is loaded before anything is timed
    if args.compare:
        single, _ = timed(lambda: MKLClassifier(**settings).fit(X, np.where(y == 3, 1, -1)))
        print(f"one digit against the rest: {single:.1f} s")
    with MemoryWatch() as memory:
        seconds, clf = timed(
            lambda: MKLClassifier(**settings, shared_weights=args.shared, verbose=1).fit(X, y)
        )
    print(
        f"trained {len(clf.classes_)} classes in {seconds:.1f} s, {clf.n_iter_} rounds, peak memory "
        f"{memory.peak_mb / 1000:.1f} GB"
    )
    if args.compare:
        print(f"ten classes / one class = {seconds / single:.1f}")
    f = clf.decision_function(X_test)
    print(f"worst duality gap  {np.max(clf.duality_gap_):.2e}")
    print(f"support vectors    {len(clf.support_)} of {len(y)} rows, for any digit")
    print(f"test accuracy      {np.mean(clf.classes_[f.argmax(axis=1)] == y_test):.4f}")
    print(f"macro AUC          {metrics.macro_auc(y_test, f, classes=clf.classes_):.5f}")
    print(f"macro avg. prec.   {metrics.macro_average_precision(y_test, f, classes=clf.classes_):.5f}")
    args.out.mkdir(parents=True, exist_ok=True)
    write_classes(args.out / "classes.csv", clf, y_test, f)
    write_confusion(args.out / "confusion.csv", clf.classes_, y_test, clf.classes_[f.argmax(axis=1)])
    clf.save(args.out / "model.raymkl")
    print(f"# wrote {args.out / 'model.raymkl'}")
    plot(
        args.out / "weights.png",
        lambda axes: draw_weights(clf, axes),
        width=max(8.0, 0.55 * len(bank)),
        height=5.0,
    )


if __name__ == "__main__":
    main()
