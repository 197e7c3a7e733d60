"""Cost against the number of kernels: the same rows, 10 to 1,000 (or 10,000) Gaussian widths.

The widths are gamma = 1/2^t with t from 0 to 20 in M equal steps, so more kernels means a finer grid over the
same range. Two problems are solved for every M: p = 4/3, and the sparse p = 1 with cutting planes. The ratio
is to the run with 50 kernels of the same problem.

    python examples/benchmarks/against_kernels.py --data mnist.npz           n = 4,000 and M = 10, 50, 200,
                                                                             1000
    python examples/benchmarks/against_kernels.py --data mnist.npz --large   n = 1,000 and M = 10 ... 10000
    python examples/benchmarks/against_kernels.py --quick
"""

from charts import plot
from common import Table, load_digits_for, parser, timed, two_to_the_minus, warm_up

from raymkl import MKLClassifier

BASE = 50
PROBLEMS = {"p = 4/3": {"p": 4 / 3}, "p = 1, cutting planes": {"p": 1.0, "theta_step": "cutting_plane"}}
COLUMNS = {
    "problem": "<22",
    "n": "d",
    "kernels": "d",
    "seconds": ".2f",
    "ratio": ".2f",
    "gap": ".1e",
    "rounds": "d",
    "SVs": "d",
    "used": "d",
}


def options():
    parse = parser(__doc__)
    parse.add_argument("--large", action="store_true", help="up to 10,000 kernels, fewer rows")
    parse.add_argument("--n", type=int, help="training rows (default: 4000; large: 1000; quick: 500)")
    parse.add_argument("--kernels", type=int, nargs="+", help="numbers of kernels")
    parse.add_argument("--no-sparse", action="store_true", help="leave out p = 1")
    parse.add_argument(
        "--repeats", type=int, default=1, help="fits per row, the quickest counts (default: %(default)s)"
    )
    args = parse.parse_args()
    n, kernels = (
        (500, [10, 50, 200])
        if args.quick
        else (1000, [10, 50, 200, 1000, 3000, 10_000])
        if args.large
        else (4000, [10, 50, 200, 1000])
    )
    args.n, args.kernels = args.n or n, args.kernels or kernels
    return args


def measure(table: Table, name: str, X, y, counts: list[int], repeats: int) -> None:
    """The rows of one problem; the run that others are compared with comes first."""
    base = None
    for M in sorted(counts, key=lambda M: (M != BASE, M)):
        clf = MKLClassifier(
            kernels=two_to_the_minus(M), C=1.0, tol=1e-3, engine="local", dtype="float32", **PROBLEMS[name]
        )
        seconds, clf = timed(lambda clf=clf: clf.fit(X, y), repeats)
        base = seconds if M == BASE else base
        table.add(
            problem=name,
            n=len(y),
            kernels=M,
            seconds=seconds,
            ratio=seconds / base if base else None,
            gap=clf.duality_gap_,
            rounds=clf.n_iter_,
            SVs=len(clf.support_),
            used=int((clf.kernel_weights_ > 1e-4 * clf.kernel_weights_.max()).sum()),
        )


def draw(table: Table, axes) -> None:
    for name in dict.fromkeys(table.column("problem")):
        points = sorted(
            zip(table.column("kernels", problem=name), table.column("seconds", problem=name), strict=True)
        )
        axes.plot(*zip(*points, strict=True), "o-", label=name)
    axes.set(
        xscale="log",
        xlabel="number of kernels",
        ylabel="seconds to train",
        title=f"Cost against kernels, n = {table.rows[0]['n']:,}",
    )
    counts = sorted(set(table.column("kernels")))
    axes.set_xticks(counts, [f"{M:,}" for M in counts])
    axes.set_xticks([], minor=True)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def main():
    args = options()
    digits = load_digits_for(args)
    X, y = digits.subsample(args.n, args.seed)
    warm_up(X, y)
    warm_up(X, y, **PROBLEMS["p = 1, cutting planes"])
    name = "against_kernels_large" if args.large else "against_kernels"
    notes = [f"data: {digits.name}", f"ratio: to {BASE} kernels; used: weights above 1e-4 of the largest"]
    table = Table(args.out / f"{name}.csv", "Cost against the number of kernels", COLUMNS, notes)
    for problem in list(PROBLEMS)[: 1 if args.no_sparse else None]:
        measure(table, problem, X, y, args.kernels, args.repeats)
    plot(args.out / f"{name}.png", lambda axes: draw(table, axes))


if __name__ == "__main__":
    main()
