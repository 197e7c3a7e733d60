"""Cost against the number of rows: time and memory of 50-kernel MKL and of one-kernel LIBSVM, and how they
grow.

The exponent is the slope of log(seconds) over log(n), by least squares over the upper half of the sizes.
Memory is the peak of this process and its children while training, above what was there before (data and
libraries); it is sampled ten times a second at most, so that of fits shorter than a second is a lower bound.

    python examples/benchmarks/against_n.py --data mnist.npz            n = 1,000 ... 16,000
    python examples/benchmarks/against_n.py --data mnist.npz --full     up to 60,000
    python examples/benchmarks/against_n.py --quick
"""

from charts import plot
from common import MemoryWatch, Table, exponent, fifty_widths, libsvm, load_digits_for, parser, timed, warm_up

from raymkl import MKLClassifier

OURS, THEIRS = "raymkl, 50 kernels", "LIBSVM, 1 kernel"
SIZES = [1000, 2000, 4000, 8000, 16_000]
COLUMNS = {
    "method": "<18",
    "n": "d",
    "seconds": ".2f",
    "ratio": ".3f",
    "memory MB": ".0f",
    "peak MB": ".0f",
    "gap": ".1e",
    "SVs": "d",
}


def options():
    parse = parser(__doc__)
    parse.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        help="training rows (default: 1000 2000 ... 16000; quick: 250 500 1000)",
    )
    parse.add_argument("--full", action="store_true", help="go on to 30,000 and 60,000 rows")
    parse.add_argument("--no-libsvm", action="store_true", help="measure ours alone")
    parse.add_argument(
        "--libsvm-cache", type=float, default=4000, metavar="MB", help="LIBSVM's cache (default: %(default)s)"
    )
    args = parse.parse_args()
    args.sizes = sorted(
        args.sizes or ([250, 500, 1000] if args.quick else [*SIZES, 30_000, 60_000] if args.full else SIZES)
    )
    return args


def measure(model, X, y) -> tuple[dict, object]:
    """Seconds, memory and support vectors of a fit."""
    with MemoryWatch() as memory:
        seconds, model = timed(lambda: model.fit(X, y))
    row = {
        "n": len(y),
        "seconds": seconds,
        "memory MB": memory.rise_mb,
        "peak MB": memory.peak_mb,
        "SVs": len(model.support_),
    }
    return row, model


def draw(table: Table, slopes: dict, time_axes, memory_axes) -> None:
    for method, slope in slopes.items():
        n = table.column("n", method=method)
        time_axes.plot(n, table.column("seconds", method=method), "o-", label=f"{method}: n^{slope:.2f}")
        memory_axes.plot(
            n,
            [max(megabytes, 1.0) for megabytes in table.column("memory MB", method=method)],
            "o-",
            label=method,
        )
    time_axes.set(
        xscale="log", yscale="log", xlabel="training rows n", ylabel="seconds to train", title="Time"
    )
    memory_axes.set(
        xscale="log",
        yscale="log",
        xlabel="training rows n",
        ylabel="peak memory above start, MB",
        title="Memory",
    )
    sizes = sorted(set(table.column("n")))
    for axes in (time_axes, memory_axes):
        axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3, which="both")
        axes.legend()


def main():
    args = options()
    digits = load_digits_for(args)
    warm_up(*digits.subsample(300, args.seed))
    notes = [f"data: {digits.name}", "ratio: ours / LIBSVM at the same n; LIBSVM uses one core, ours all"]
    table = Table(args.out / "against_n.csv", "Cost against the number of rows", COLUMNS, notes)
    for n in args.sizes:
        X, y = digits.subsample(n, args.seed)
        ours, clf = measure(
            MKLClassifier(kernels=fifty_widths(), C=1.0, p=4 / 3, tol=1e-3, engine="local"), X, y
        )
        table.add(method=OURS, gap=clf.duality_gap_, **ours)
        del clf
        if not args.no_libsvm:
            theirs, _ = measure(libsvm(args.libsvm_cache), X, y)
            table.add(method=THEIRS, ratio=ours["seconds"] / theirs["seconds"], **theirs)
    methods = dict.fromkeys(table.column("method"))
    slopes = {
        method: exponent(table.column("n", method=method), table.column("seconds", method=method))
        for method in methods
    }
    for method, slope in slopes.items():
        table.note(f"{method}: seconds grow like n^{slope:.2f} over the upper half of the sizes")
    plot(args.out / "against_n.png", lambda *axes: draw(table, slopes, *axes), panels=2, width=5.6)


if __name__ == "__main__":
    main()
