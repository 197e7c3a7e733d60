"""Seconds to train against the number of examples and of kernels
==============================================================

lp-norm MKL and two baselines, all to the same duality gap.

Digits, odd against even, Gaussian kernels. The methods are chunking (dual variables and weights move
together) and the wrapper (an SVM to full precision between two steps of the weights), with analytic weights
and with cutting planes; SimpleMKL and HessianMKL (an SVM of LIBSVM at every step, all kernel matrices in
memory); and one SVM of LIBSVM over the plain sum of the kernels, which learns no weights. Times are those of
whole fits from the examples on, kernel matrices included; every row has the relative duality gap that was
reached, computed the same way for all. A method that takes longer than --patience seconds is not tried on
anything larger. Writes into --out: runtime.csv (with how many times slower than analytic chunking a method
was, beside what was published), runtime_runs.csv, which the next run with the same --out continues, and
runtime.png.

Run it::

    python examples/runtime.py --data mnist.npz        50 widths and n = 250 ... 8,000; n = 1,000 and M = 10
                                                       ... 1,000
    python examples/runtime.py                         the same with generated digits
    python examples/runtime.py --quick

Kloft: lp-norm multiple kernel learning. Thesis, TU Berlin, 2011, section 3.4.
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import Table, fifty_widths, load_digits_for, parser, timed, two_to_the_minus, warm_up
from resumable import Results, same_settings
from sklearn.exceptions import ConvergenceWarning

from raymkl import MKLClassifier
from raymkl.baselines import HessianMKL, SimpleMKL

SUM = "SVM over the sum"
FASTEST = "chunking, analytic, p = 4/3"  # what others are compared with
# Times slower than that, as far as the thesis says it in words (more than 120; the rest is drawn).
PUBLISHED = {("SimpleMKL, p = 1", 8_000, 50): 120.0}


def ours(bank: list, X: np.ndarray, y: np.ndarray, tol: float, **settings) -> MKLClassifier:
    return MKLClassifier(kernels=bank, C=1.0, tol=tol, engine="local", **settings).fit(X, y)


def baseline(Solver: type, bank: list, X: np.ndarray, y: np.ndarray, tol: float) -> SimpleMKL | HessianMKL:
    return Solver(kernels=bank, C=1.0, tol=tol).fit(X, y)


def svm_over_sum(bank: list, X: np.ndarray, y: np.ndarray, tol: float) -> SimpleMKL:
    """LIBSVM over one matrix, the sum of all: what a baseline does that has a single kernel, with the
    certificate.
    """
    return SimpleMKL(kernels=[sum(bank)], C=1.0, tol=tol).fit(X, y)


METHODS: dict[str, Callable] = {
    FASTEST: partial(ours, p=4 / 3, theta_step="analytic"),
    "chunking, cutting planes, p = 4/3": partial(ours, p=4 / 3, theta_step="cutting_plane"),
    "chunking, multipliers, p = 1": partial(ours, p=1.0),
    "chunking, cutting planes, p = 1": partial(ours, p=1.0, theta_step="cutting_plane"),
    "wrapper, analytic, p = 4/3": partial(ours, p=4 / 3, theta_step="analytic", solver="wrapper"),
    "wrapper, cutting planes, p = 1": partial(ours, p=1.0, theta_step="cutting_plane", solver="wrapper"),
    "SimpleMKL, p = 1": partial(baseline, SimpleMKL),
    "HessianMKL, p = 1": partial(baseline, HessianMKL),
    SUM: svm_over_sum,
}


def options():
    parse = parser(__doc__)
    parse.set_defaults(out=Path("runtime"))
    parse.add_argument("--sizes", type=int, nargs="+", help="numbers of examples, with 50 kernels")
    parse.add_argument("--kernels", type=int, nargs="+", help="numbers of kernels")
    parse.add_argument("--n", type=int, help="examples when kernels vary (default: 1000; quick: 300)")
    parse.add_argument(
        "--methods",
        nargs="+",
        choices=list(METHODS),
        metavar="NAME",
        default=list(METHODS),
        help="some of them",
    )
    parse.add_argument("--tol", type=float, default=1e-3, help="relative duality gap (default: %(default)s)")
    parse.add_argument("--patience", type=float, help="seconds (default: 300; quick: 3)")
    args = parse.parse_args()
    sizes, counts, n, patience = (
        ([150, 300, 600], [5, 20, 50], 300, 3.0)
        if args.quick
        else ([250, 500, 1000, 2000, 4000, 8000], [10, 30, 100, 300, 1000], 1000, 300.0)
    )
    args.sizes, args.kernels = sorted(args.sizes or sizes), sorted(args.kernels or counts)
    args.n, args.patience = args.n or n, args.patience or patience
    return args


def measure(
    table: Table, done: Results, args, varied: str, problems: list[tuple[list, np.ndarray, np.ndarray]]
) -> None:
    """Rows of the table for problems (kernels, X, y) of growing size; those that are done are not run."""
    tired: set[str] = set()
    for bank, X, y in problems:
        size, fastest = {"varied": varied, "n": len(X), "kernels": len(bank)}, None
        for name in args.methods:
            if name in tired:
                continue
            row = done.find(method=name, **size)
            if row is None:
                try:
                    seconds, model = timed(
                        lambda name=name, bank=bank, X=X, y=y: METHODS[name](bank, X, y, args.tol)
                    )
                except ValueError as error:  # the matrices would not fit into memory
                    table.note(f"{name}, n = {len(X)}, {len(bank)} kernels: {error}")
                    tired.add(name)
                    continue
                row = done.add(method=name, **size, seconds=seconds, gap=float(model.duality_gap_))
            seconds = row["seconds"]
            fastest = seconds if name == FASTEST else fastest
            table.add(
                **{column: row[column] for column in ("method", "varied", "n", "kernels", "gap")},
                seconds=round(seconds, 4),
                times_slower=None if fastest is None else round(seconds / fastest, 2),
                published=PUBLISHED.get((name, len(X), len(bank))) if varied == "rows" else None,
            )
            if seconds > args.patience:
                table.note(
                    f"{name} took more than {args.patience:g} s and is not tried on more than {len(X)} rows "
                    f"and {len(bank)} kernels"
                )
                tired.add(name)


def draw(table: Table, args, by_rows, by_kernels) -> None:
    """Seconds against n, and against M, both axes logarithmic."""
    for axes, varied, fixed, title in (
        (by_rows, "n", {"varied": "rows"}, "50 kernels"),
        (by_kernels, "kernels", {"varied": "kernels"}, f"{args.n} examples"),
    ):
        for name in args.methods:
            rows = sorted(
                {
                    row[varied]: row["seconds"]
                    for row in table.rows
                    if row["method"] == name and fixed.items() <= row.items()
                }.items()
            )
            if rows:
                style = (
                    ":" if name == SUM else "--" if name.startswith(("Simple", "Hessian", "wrapper")) else "-"
                )
                axes.plot(*zip(*rows, strict=True), style, marker="o", label=name)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="examples" if varied == "n" else "kernels",
            ylabel="seconds",
            title=title,
        )
        axes.grid(alpha=0.3)
    by_rows.legend(fontsize=8)


def main():
    args = options()
    warnings.simplefilter("ignore", ConvergenceWarning)  # the gap stands in the table
    digits = load_digits_for(args)
    data = Path(args.data).name if args.data else "generated"
    same_settings(
        args.out, "runtime", {"data": data, "tol": args.tol, "seed": args.seed, "quick": args.quick}
    )
    done = Results(args.out / "runtime_runs.csv", ("method", "varied", "n", "kernels"), ("seconds", "gap"))
    table = Table(
        args.out / "runtime.csv",
        "seconds to train, kernels included, to a relative duality gap",
        {
            "method": "<34",
            "varied": "<7",
            "n": "d",
            "kernels": "d",
            "seconds": ".2f",
            "gap": ".1e",
            "times_slower": ".1f",
            "published": ".0f",
        },
        [
            f"data: {data}",
            f"times_slower: than {FASTEST}",
            f"C = 1, relative gap {args.tol:g} or below; baselines keep all matrices in memory",
        ],
    )
    X, y = digits.subsample(max(*args.sizes, args.n), args.seed)
    warm_up(X, y)
    for name in args.methods:  # what each method compiles or imports is in nobody's time
        METHODS[name](two_to_the_minus(5), X[:60], y[:60], args.tol)
    measure(table, done, args, "rows", [(fifty_widths(), X[:n], y[:n]) for n in args.sizes])
    measure(
        table, done, args, "kernels", [(two_to_the_minus(M), X[: args.n], y[: args.n]) for M in args.kernels]
    )
    plot(
        args.out / "runtime.png", lambda *panels: draw(table, args, *panels), panels=2, width=7.0, height=5.0
    )


if __name__ == "__main__":
    main()
