"""Fifty kernels against one: MKL with 50 Gaussian widths beside LIBSVM with a single Gaussian kernel.

Both learn odd against even digits with C = 1; ours chooses among gamma = 1/1.2^m, m = 0..49 (p = 4/3, relative duality gap 1e-3),
LIBSVM has gamma = 1/64 and a cache of 4 GB. For every n: seconds to train, ratio ours / LIBSVM (below 1: ours is faster), gap, support
vectors, test accuracy, and seconds to predict the test rows. Ours uses all cores, LIBSVM can use only one.

    python examples/benchmarks/against_libsvm.py --data mnist.npz
    python examples/benchmarks/against_libsvm.py --data mnist.npz --sizes 60000 --engine ray --shards 2
    python examples/benchmarks/against_libsvm.py --quick
"""

import contextlib

from charts import bars, plot
from common import TEST_ROWS, Table, cpus_for, fifty_widths, libsvm, load_digits_for, parser, ray_cluster, timed, warm_up

from raymkl import MKLClassifier, RayParams

COLUMNS = {
    "n": "d",
    "seconds": ".2f",
    "libsvm s": ".2f",
    "ratio": ".3f",
    "gap": ".1e",
    "SVs": "d",
    "libsvm SVs": "d",
    "accuracy": ".4f",
    "libsvm acc": ".4f",
    "predict s": ".2f",
    "libsvm predict s": ".2f",
    "predict ratio": ".3f",
}


def options():
    parse = parser(__doc__)
    parse.add_argument("--sizes", type=int, nargs="+", help="training rows (default: 8000 20000; quick: 500 1000)")
    parse.add_argument("--engine", choices=["local", "ray"], default="local")
    parse.add_argument("--shards", type=int, help="shards the rows are split into (default: chosen by the engine)")
    parse.add_argument("--no-libsvm", action="store_true", help="measure ours alone")
    args = parse.parse_args()
    args.sizes = args.sizes or ([500, 1000] if args.quick else [8000, 20000])
    return args


def settings(args) -> dict:
    """Where ours runs."""
    place = RayParams(num_shards=args.shards, cpus_per_shard=cpus_for(args.shards) if args.shards else 1)
    return {"engine": args.engine, "ray_params": place}


def measure(X, y, X_test, y_test, place: dict, with_libsvm: bool) -> dict:
    """One row of the table."""
    seconds, clf = timed(lambda: MKLClassifier(kernels=fifty_widths(), C=1.0, p=4 / 3, tol=1e-3, **place).fit(X, y))
    predict, accuracy = timed(lambda: clf.score(X_test, y_test))
    row = {"n": len(y), "seconds": seconds, "gap": clf.duality_gap_, "SVs": len(clf.support_), "accuracy": accuracy, "predict s": predict}
    if with_libsvm:
        theirs, svc = timed(lambda: libsvm().fit(X, y))
        their_predict, their_accuracy = timed(lambda: svc.score(X_test, y_test))
        row |= {"libsvm s": theirs, "ratio": seconds / theirs, "libsvm SVs": len(svc.support_), "libsvm acc": their_accuracy}
        row |= {"libsvm predict s": their_predict, "predict ratio": predict / their_predict}
    return row


def draw(table: Table, train_axes, predict_axes) -> None:
    """Seconds of both, for every number of rows; LIBSVM may not have been measured."""
    names = [f"n = {n:,}" for n in table.column("n")]
    for axes, ours, theirs, title in (
        (train_axes, "seconds", "libsvm s", "seconds to train"),
        (predict_axes, "predict s", "libsvm predict s", "seconds to predict the test rows"),
    ):
        bars(axes, names, {"raymkl, 50 kernels": table.column(ours), "LIBSVM, one kernel": table.column(theirs)}, title)


def main():
    args = options()
    digits = load_digits_for(args)
    X_test, y_test = digits.test(500 if args.quick else TEST_ROWS)
    place = settings(args)
    notes = [
        f"data: {digits.name}; {len(y_test)} test rows",
        f"engine: {args.engine}, shards: {args.shards or 'chosen by the engine'}; LIBSVM uses one core",
    ]
    with ray_cluster() if args.engine == "ray" else contextlib.nullcontext():
        warm_up(*digits.subsample(300, args.seed))
        if args.engine == "ray":
            warm_up(*digits.subsample(500, args.seed), rows=500, **place)
        table = Table(args.out / f"against_libsvm_{args.engine}.csv", "50-kernel MKL against one-kernel LIBSVM", COLUMNS, notes)
        for n in args.sizes:
            table.add(**measure(*digits.subsample(n, args.seed), X_test, y_test, place, not args.no_libsvm))
    plot(args.out / f"against_libsvm_{args.engine}.png", lambda *axes: draw(table, *axes), panels=2)


if __name__ == "__main__":
    main()
