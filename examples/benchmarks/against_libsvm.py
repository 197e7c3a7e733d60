"""Many kernels against one: MKL over many Gaussian widths beside LIBSVM with a single Gaussian kernel.

Two tables, both with C = 1, p = 4/3 and a relative duality gap of 1e-3. Ratios are ours / LIBSVM (below 1:
ours is faster). Ours uses all cores, LIBSVM can use only one.

Over rows: odd against even digits, 50 widths gamma = 1/1.2^m, m = 0..49, against gamma = 1/64 with a cache of
4 GB. For every n: seconds to train, gap, support vectors, test accuracy, and seconds to predict the test
rows.

Over dimensions: data sets with few and with many columns, standardised, the lower half of their labels
against the upper half, 41 widths gamma = 2^-6/columns .. 2^4/columns against gamma = 1/columns. Where a pair
of rows costs little, the rest of a round counts, so the ratio is worse in few dimensions.

Without data both tables are made, of generated digits (or MNIST, variable RAYMKL_MNIST), of scikit-learn's
bundled sets and of generated ones with 4 to 784 columns. With files, those with X_train and y_train are taken
for MNIST and those with X and y for data sets (X_test and y_test may come with them).

    python examples/benchmarks/against_libsvm.py
    python examples/benchmarks/against_libsvm.py --data mnist.npz
    python examples/benchmarks/against_libsvm.py --data mnist.npz --sizes 60000 --engine ray --shards 2
    python examples/benchmarks/against_libsvm.py --data letter.npz phishing.npz spambase.npz
    python examples/benchmarks/against_libsvm.py --quick --only dimensions
"""

import contextlib
import os

from charts import bars, plot
from common import (
    ENVIRONMENT,
    TEST_ROWS,
    GeneratedDigits,
    Table,
    cpus_for,
    fifty_widths,
    libsvm,
    parser,
    ray_cluster,
    read_npz,
    timed,
    warm_up,
)
from data_sets import (
    WIDTHS,
    DataSet,
    bundled,
    described,
    gaussian_widths,
    generated,
    is_digits,
    read_data_set,
)

from raymkl import MKLClassifier, RayParams

# Of generated tables: the same number of rows in all dimensions, so that what differs is what a pair of rows
# costs.
GENERATED_COLUMNS, GENERATED_ROWS = (4, 8, 16, 32, 64, 128, 256, 784), 3000
# Up to this many rows the quickest of three fits counts, on both sides.
REPEATED_ROWS = 10_000

TRAINING = {"seconds": ".3f", "libsvm s": ".3f", "ratio": ".3f", "gap": ".1e"}
OVER_ROWS = {
    "n": "d",
    **TRAINING,
    "SVs": "d",
    "libsvm SVs": "d",
    "accuracy": ".4f",
    "libsvm acc": ".4f",
    "predict s": ".2f",
    "libsvm predict s": ".2f",
    "predict ratio": ".3f",
}
OVER_DIMENSIONS = {
    "data": "<16",
    "rows": "d",
    "columns": "d",
    **TRAINING,
    "rounds": "d",
    "SVs": "d",
    "libsvm SVs": "d",
    "accuracy": ".4f",
    "libsvm acc": ".4f",
}


def options():
    parse = parser(__doc__, any_data=True)
    parse.add_argument("--only", choices=["rows", "dimensions"], help="one of the two tables")
    parse.add_argument(
        "--sizes", type=int, nargs="+", help="over rows: training rows (default: 8000 20000; quick: 500 1000)"
    )
    parse.add_argument(
        "--rows", type=int, help="over dimensions: at most this many training rows of each data set"
    )
    parse.add_argument("--engine", choices=["local", "ray"], default="local")
    parse.add_argument(
        "--shards", type=int, help="shards the rows are split into (default: chosen by the engine)"
    )
    parse.add_argument("--no-libsvm", action="store_true", help="measure ours alone")
    args = parse.parse_args()
    args.sizes = args.sizes or ([500, 1000] if args.quick else [8000, 20000])
    args.rows = args.rows or (300 if args.quick else None)
    return args


def settings(args) -> dict:
    """Where ours runs."""
    place = RayParams(num_shards=args.shards, cpus_per_shard=cpus_for(args.shards) if args.shards else 1)
    return {"engine": args.engine, "ray_params": place}


def wanted(args) -> tuple[list, list[DataSet]]:
    """Sources of digits (a file or None: generated) and data sets to measure."""
    digits = [path for path in args.data or () if is_digits(path)]
    sets = [read_data_set(path) for path in args.data or () if path not in digits]
    if not args.data:
        columns, rows = (
            (GENERATED_COLUMNS[:5:2], args.rows)
            if args.quick
            else (GENERATED_COLUMNS, args.rows or GENERATED_ROWS)
        )
        digits, sets = (
            [os.environ.get(ENVIRONMENT)],
            [*bundled(), *(generated(d, rows, seed=args.seed) for d in columns)],
        )
    if len(digits) > 1:
        raise SystemExit(f"--data: one file of digits at a time, got {', '.join(digits)}")
    return [] if args.only == "dimensions" else digits, [] if args.only == "rows" else sets


def train(bank: list, gamma: float, X, y, place: dict, with_libsvm: bool, repeats: int = 1):
    """Both models (LIBSVM's may be None), and the columns that both tables have."""
    seconds, clf = timed(
        lambda: MKLClassifier(kernels=bank, C=1.0, p=4 / 3, tol=1e-3, **place).fit(X, y), repeats
    )
    row = {"seconds": seconds, "gap": clf.duality_gap_, "SVs": len(clf.support_)}
    if not with_libsvm:
        return clf, None, row
    theirs, svc = timed(lambda: libsvm(gamma=gamma).fit(X, y), repeats)
    return clf, svc, row | {"libsvm s": theirs, "ratio": seconds / theirs, "libsvm SVs": len(svc.support_)}


# -- over rows -------------------------------------------------------------------------------------


def measure_digits(X, y, X_test, y_test, place: dict, with_libsvm: bool) -> dict:
    """One row of the table over rows."""
    clf, svc, row = train(fifty_widths(), 1 / 64, X, y, place, with_libsvm)
    predict, accuracy = timed(lambda: clf.score(X_test, y_test))
    row |= {"n": len(y), "accuracy": accuracy, "predict s": predict}
    if svc is not None:
        their_predict, their_accuracy = timed(lambda: svc.score(X_test, y_test))
        row |= {
            "libsvm acc": their_accuracy,
            "libsvm predict s": their_predict,
            "predict ratio": predict / their_predict,
        }
    return row


def draw_rows(table: Table, train_axes, predict_axes) -> None:
    """Seconds of both, for every number of rows; LIBSVM may not have been measured."""
    names = [f"n = {n:,}" for n in table.column("n")]
    for axes, ours, theirs, title in (
        (train_axes, "seconds", "libsvm s", "seconds to train"),
        (predict_axes, "predict s", "libsvm predict s", "seconds to predict the test rows"),
    ):
        bars(
            axes,
            names,
            {"raymkl, 50 kernels": table.column(ours), "LIBSVM, one kernel": table.column(theirs)},
            title,
        )


def over_rows(source, args, place: dict, notes: list[str]) -> None:
    """The table over rows, from a file of digits or generated ones."""
    digits = read_npz(source) if source else GeneratedDigits()
    X_test, y_test = digits.test(500 if args.quick else TEST_ROWS)
    warm_up(*digits.subsample(300, args.seed))
    if args.engine == "ray":
        warm_up(*digits.subsample(500, args.seed), rows=500, **place)
    name = f"against_libsvm_{args.engine}"
    notes = [f"data: {digits.name}; {len(y_test)} test rows", *notes]
    table = Table(args.out / f"{name}.csv", "50-kernel MKL against one-kernel LIBSVM", OVER_ROWS, notes)
    for n in args.sizes:
        table.add(
            **measure_digits(*digits.subsample(n, args.seed), X_test, y_test, place, not args.no_libsvm)
        )
    plot(args.out / f"{name}.png", lambda *axes: draw_rows(table, *axes), panels=2)


# -- over dimensions -------------------------------------------------------------------------------


def measure_set(data: DataSet, place: dict, with_libsvm: bool) -> dict:
    """One row of the table over dimensions."""
    repeats = 3 if len(data.y) <= REPEATED_ROWS else 1
    clf, svc, row = train(
        gaussian_widths(data.columns), 1 / data.columns, data.X, data.y, place, with_libsvm, repeats
    )
    row |= {"data": data.name, "rows": len(data.y), "columns": data.columns, "rounds": clf.n_iter_}
    if data.X_test is not None:
        row["accuracy"] = clf.score(data.X_test, data.y_test)
        if svc is not None:
            row["libsvm acc"] = svc.score(data.X_test, data.y_test)
    return row


def draw_dimensions(table: Table, second_axes, ratio_axes) -> None:
    """Seconds of both for every data set, and the ratio over the number of columns."""
    names = [f"{row['data']} ({row['rows']:,} x {row['columns']})" for row in table.rows]
    series = {
        f"raymkl, {WIDTHS} kernels": table.column("seconds"),
        "LIBSVM, one kernel": table.column("libsvm s"),
    }
    bars(second_axes, names, series, "seconds to train", ".3g")
    for row in table.rows:
        if row["ratio"] is not None:
            ratio_axes.plot(
                row["columns"], row["ratio"], "s" if row["data"].startswith("generated") else "o", color="C0"
            )
            ratio_axes.annotate(
                row["data"], (row["columns"], row["ratio"]), (5, 3), textcoords="offset points", fontsize=7
            )
    ratio_axes.axhline(1.0, color="grey", linewidth=1)
    ratio_axes.set(xscale="log", yscale="log", xlabel="columns", title="seconds, raymkl / LIBSVM")
    ratio_axes.set_xticks(
        widths := sorted(set(table.column("columns"))),
        [str(columns) for columns in widths],
        rotation=90,
        fontsize=7,
    )
    ratio_axes.set_xticks([], minor=True)
    ratio_axes.margins(x=0.15)  # room for the names
    ratio_axes.grid(alpha=0.3, which="both")


def over_dimensions(sets: list[DataSet], args, place: dict, notes: list[str]) -> None:
    """The table over dimensions, a row per data set, from few columns to many."""
    name = f"against_libsvm_dimensions_{args.engine}"
    notes = [
        f"data: {described(sets)}; columns standardised, lower half of the labels against the upper half",
        *notes,
    ]
    table = Table(
        args.out / f"{name}.csv", f"{WIDTHS}-kernel MKL against one-kernel LIBSVM", OVER_DIMENSIONS, notes
    )
    for data in sorted(sets, key=lambda data: (data.columns, data.name)):
        data = data.sample(args.rows, args.seed).standardised().halves()
        warm_up(data.X, data.y, kernels=gaussian_widths(data.columns), **place)
        table.add(**measure_set(data, place, not args.no_libsvm))
    plot(
        args.out / f"{name}.png",
        lambda *axes: draw_dimensions(table, *axes),
        panels=2,
        height=max(4.4, 0.5 * len(sets)),
    )


def main():
    args = options()
    digits, sets = wanted(args)
    place = settings(args)
    notes = [f"engine: {args.engine}, shards: {args.shards or 'chosen by the engine'}; LIBSVM uses one core"]
    with ray_cluster() if args.engine == "ray" else contextlib.nullcontext():
        for source in digits:
            over_rows(source, args, place, notes)
        if sets:
            over_dimensions(sets, args, place, notes)


if __name__ == "__main__":
    main()
