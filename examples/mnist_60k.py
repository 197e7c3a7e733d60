"""Sixty thousand digits, fifty kernels: odd against even on all of MNIST, with a certificate.

Learns over 50 Gaussian widths (gamma = 1/1.2^m) and shows progress while it does, then the time, duality gap,
support vectors, test accuracy and the ten largest weights. Writes into --out: history.csv, history.png (gap,
objectives and support vectors over time), weights.png and the model itself, model.raymkl, which `raymkl.load`
reads.

    python examples/mnist_60k.py --data mnist.npz                       arrays X_train, y_train, X_test,
                                                                        y_test (uint8)
    python examples/mnist_60k.py --engine ray --shards 2                without --data: downloaded from OpenML
    by scikit-learn
    python examples/mnist_60k.py --data mnist.npz --n 5000 --p 1.1
"""

import argparse
import contextlib
import csv
import os
import sys
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import (
    ENVIRONMENT,
    Digits,
    cpus_for,
    fifty_widths,
    machine,
    ray_cluster,
    read_npz,
    timed,
    warm_up,
)

from raymkl import MKLClassifier, RayParams

NO_DATA = f"""MNIST is not here and could not be downloaded ({{reason}}).
Get it on a machine with a network and pass the file with --data (or the variable {ENVIRONMENT}):

    import numpy as np
    from sklearn.datasets import fetch_openml
    X, y = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True)
    X, y = X.astype("uint8"), y.astype("uint8")
    np.savez_compressed("mnist.npz", X_train=X[:60000], y_train=y[:60000], X_test=X[60000:], y_test=y[60000:])
"""


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data",
        metavar="FILE.npz",
        default=os.environ.get(ENVIRONMENT),
        help=f"MNIST (default: variable {ENVIRONMENT})",
    )
    parse.add_argument("--n", type=int, default=60_000, help="training rows (default: %(default)s)")
    parse.add_argument("--engine", choices=["local", "ray", "auto"], default="local")
    parse.add_argument(
        "--shards", type=int, help="shards the rows are split into (default: chosen by the engine)"
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
        default=Path("mnist_60k"),
        help="results go here (default: %(default)s)",
    )
    return parse.parse_args()


def load_mnist(path: str | None) -> Digits:
    """MNIST from a file or from OpenML; ends the program with exit code 2 when neither works."""
    if path:
        return read_npz(path)
    try:
        from sklearn.datasets import fetch_openml

        print("downloading mnist_784 from OpenML", file=sys.stderr)
        X, y = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True, n_retries=1)
    except (
        Exception
    ) as error:  # no network, no pandas, a broken cache: whatever it is, the way out is the same
        print(NO_DATA.format(reason=f"{type(error).__name__}: {error}"), file=sys.stderr)
        sys.exit(2)
    X, y = X.astype(np.uint8), y.astype(np.uint8)
    return Digits("MNIST (OpenML mnist_784)", X[:60_000], y[:60_000], X[60_000:], y[60_000:])


def write_history(path: Path, history: list[dict]) -> None:
    with path.open("w", newline="") as file:
        file.writelines(f"# {line}\n" for line in machine())
        writer = csv.DictWriter(file, fieldnames=list(history[0]))
        writer.writeheader()
        writer.writerows(history)


def draw_history(history: list[dict], tol: float, gap, objectives, support) -> None:
    seconds = [row["seconds"] for row in history]
    gap.plot(seconds, [row["gap"] for row in history], "o-", markersize=3)
    gap.axhline(tol, color="grey", linestyle="--", label=f"tol = {tol:g}")
    gap.set(yscale="log", xlabel="seconds", ylabel="relative duality gap", title="Certificate")
    gap.legend()
    objectives.plot(seconds, [row["primal"] for row in history], "o-", markersize=3, label="primal")
    objectives.plot(seconds, [row["dual"] for row in history], "o-", markersize=3, label="dual")
    # The first rounds are far away and would hide how the two meet.
    final = history[-1]["dual"]
    objectives.set(ylim=(0.0, 3.0 * final), xlabel="seconds", ylabel="objective", title="Primal and dual")
    objectives.legend()
    support.plot(seconds, [row["support_vectors"] for row in history], "o-", markersize=3)
    support.set(xlabel="seconds", ylabel="support vectors", title="Support vectors", ylim=(0, None))
    for axes in (gap, objectives, support):
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)


def draw_weights(clf: MKLClassifier, axes) -> None:
    widths = [1 / np.sqrt(2 * kernel.gamma) for kernel in clf.kernels_]
    positions = np.arange(len(widths))
    axes.bar(positions, clf.kernel_weights_)
    axes.set_xticks(positions[::7], [f"{width:.2g}" for width in widths[::7]])
    axes.set(
        xlabel="width of the Gaussian, 1 / sqrt(2 gamma)",
        ylabel="weight of the kernel",
        title=f"Learned weights, p = {clf.p:.4g}",
    )
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="y")


def report(clf: MKLClassifier, seconds: float, accuracy: float) -> None:
    print(f"trained in {seconds:.1f} s, {clf.n_iter_} rounds")
    print(
        f"duality gap      {clf.duality_gap_:.2e}   (primal {clf.primal_objective_:.6g}, dual "
        f"{clf.dual_objective_:.6g})"
    )
    print(f"support vectors  {len(clf.support_)}")
    print(f"test accuracy    {accuracy:.4f}")
    print("largest weights")
    for m in np.argsort(-clf.kernel_weights_)[:10]:
        print(f"  {clf.kernel_weights_[m]:.4f}  {clf.kernels_[m]!r}")


def main():
    args = options()
    digits = load_mnist(args.data)
    X, y = digits.subsample(args.n)
    place = RayParams(num_shards=args.shards, cpus_per_shard=cpus_for(args.shards) if args.shards else 1)
    clf = MKLClassifier(
        kernels=fifty_widths(),
        C=args.C,
        p=args.p,
        tol=args.tol,
        engine=args.engine,
        ray_params=place,
        verbose=1,
    )
    print(
        f"{digits.name}: {len(y)} rows, {len(clf.kernels)} kernels, engine {args.engine}",
        *machine(),
        sep="\n",
    )
    warm_up(X, y)
    with ray_cluster() if args.engine == "ray" else contextlib.nullcontext():
        seconds, clf = timed(lambda: clf.fit(X, y))
    report(clf, seconds, clf.score(*digits.test()))
    args.out.mkdir(parents=True, exist_ok=True)
    write_history(args.out / "history.csv", clf.history_)
    clf.save(args.out / "model.raymkl")
    print(f"wrote {args.out / 'history.csv'} and {args.out / 'model.raymkl'}")
    plot(
        args.out / "history.png",
        lambda *axes: draw_history(clf.history_, args.tol, *axes),
        panels=3,
        width=5.0,
    )
    plot(args.out / "weights.png", lambda axes: draw_weights(clf, axes), width=8.0)


if __name__ == "__main__":
    main()
