"""A mixed bank of kernels against the same kernels as ready-made matrices.

A hundred kernels (Gaussian, polynomial, linear, Laplacian, chi-squared, histogram intersection) over three
views of the image (whole, upper half, lower half) fall into a dozen families, of which each costs about as
much as one kernel. The same hundred kernels as a stack of shape (n, n, 100) need memory and time for every
single one. The table shows seconds, memory (peak above the start) and gap of both, and how far their decision
values on test rows are apart, in standard deviations.

    python examples/benchmarks/families.py --data mnist.npz
    python examples/benchmarks/families.py --quick
"""

import numpy as np
from charts import bars, plot
from common import MemoryWatch, Table, apart, load_digits_for, parser, timed
from scipy.spatial.distance import pdist

from raymkl import MKLClassifier, kernels

COLUMNS = {
    "how": "<24",
    "n": "d",
    "kernels": "d",
    "make s": ".2f",
    "fit s": ".2f",
    "predict s": ".2f",
    "ratio": ".2f",
    "memory MB": ".0f",
    "gap": ".1e",
    "SVs": "d",
    "accuracy": ".4f",
    "apart": ".1e",
}


def options():
    parse = parser(__doc__)
    parse.add_argument("--n", type=int, help="training rows (default: 2000; quick: 400)")
    parse.add_argument("--test", type=int, default=500, help="test rows (default: %(default)s)")
    args = parse.parse_args()
    args.n = args.n or (400 if args.quick else 2000)
    return args


def views_of(X: np.ndarray) -> dict[str, np.ndarray]:
    """The whole image, its upper and its lower half (pixels come row by row)."""
    half = X.shape[1] // 2
    return {"whole": X, "upper": X[:, :half], "lower": X[:, half:]}


def bank_for(
    views: dict[str, np.ndarray], rbf: int = 15, polynomial: int = 5, laplacian: int = 6, chi2: int = 5
) -> list:
    """Per view the given numbers of kernels, a linear and an intersection kernel; one more Gaussian makes it
    a hundred.
    """
    bank = []
    for view, X in views.items():
        sample = X[:300]
        squared, absolute = np.median(pdist(sample, "sqeuclidean")), np.median(pdist(sample, "cityblock"))
        inner = float(np.mean(np.einsum("ij,ij->i", sample, sample)))
        count = rbf + (view == "whole")
        bank += kernels.rbf(2.0 ** np.linspace(-6, 4, count) / squared, view=view)
        bank += [
            kernels.Polynomial(degree=2 + k // 2, gamma=1 / inner, coef0=float(k % 2), view=view)
            for k in range(polynomial)
        ]
        bank += [
            kernels.Laplacian(gamma=float(scale / absolute), view=view)
            for scale in 2.0 ** np.linspace(-3, 2, laplacian)
        ]
        # The chi-squared distance is at most the sum of absolute differences, and of its size for images that
        # are mostly black or white.
        bank += [
            kernels.Chi2(gamma=float(scale / absolute), view=view)
            for scale in 2.0 ** np.linspace(-3, 2, chi2)
        ]
        bank += [kernels.Linear(view=view), kernels.HistogramIntersection(view=view)]
    return bank


def stack_of(bank: list, rows: dict, columns: dict) -> np.ndarray:
    """(rows, columns, kernels) values, float32."""
    shape = (len(rows["whole"]), len(columns["whole"]), len(bank))
    stack = np.empty(shape, np.float32)
    for m, kernel in enumerate(bank):
        stack[:, :, m] = kernel(rows, columns)
    return stack


def model(bank) -> MKLClassifier:
    return MKLClassifier(
        kernels=bank, C=1.0, p=4 / 3, tol=1e-3, normalize="multiplicative", engine="local", dtype="float32"
    )


def from_rows(bank: list, train: dict, y, test: dict) -> tuple[dict, MKLClassifier, np.ndarray]:
    """Kernels computed from the rows while training."""
    with MemoryWatch() as memory:
        fit, clf = timed(lambda: model(bank).fit(train, y))
        predict, values = timed(lambda: clf.decision_function(test))
    return {"fit s": fit, "predict s": predict, "memory MB": memory.rise_mb}, clf, values


def from_stack(bank: list, train: dict, y, test: dict) -> tuple[dict, MKLClassifier, np.ndarray]:
    """All kernel matrices first; predicting needs the columns of the support vectors only."""
    with MemoryWatch() as memory:
        make, stack = timed(lambda: stack_of(bank, train, train))
        fit, clf = timed(lambda: model("precomputed").fit(stack, y))
        support = {view: X[clf.support_] for view, X in train.items()}
        predict, values = timed(lambda: clf.decision_function(stack_of(bank, test, support)))
    return {"make s": make, "fit s": fit, "predict s": predict, "memory MB": memory.rise_mb}, clf, values


def draw(table: Table, time_axes, memory_axes) -> None:
    names = table.column("how")
    seconds = {
        "make the matrices": table.column("make s"),
        "fit": table.column("fit s"),
        "predict": table.column("predict s"),
    }
    bars(
        time_axes, names, seconds, f"seconds, {table.rows[0]['kernels']} kernels, n = {table.rows[0]['n']:,}"
    )
    bars(memory_axes, names, {"MB": table.column("memory MB")}, "memory above the start, MB", ",.0f")


def main():
    args = options()
    digits = load_digits_for(args)
    X, y = digits.subsample(args.n, args.seed)
    X_test, y_test = digits.test(args.test)
    train, test = views_of(X), views_of(X_test)
    counts = {"rbf": 4, "polynomial": 2, "laplacian": 2, "chi2": 2} if args.quick else {}
    bank = bank_for(train, **counts)
    few = {view: rows[:200] for view, rows in train.items()}
    for run in (from_rows, from_stack):  # warm up
        run(bank[::2], few, y[:200], few)
    notes = [
        f"data: {digits.name}; {len(y_test)} test rows",
        "ratio: make + fit, to the bank; memory: peak above the start; apart: of decision values, in "
        "standard deviations",
    ]
    table = Table(
        args.out / "families.csv", f"A mixed bank of {len(bank)} kernels over 3 views", COLUMNS, notes
    )
    base = reference = None
    for how, run in (("bank, from rows", from_rows), ("ready-made stack", from_stack)):
        row, clf, values = run(bank, train, y, test)
        total = row.get("make s", 0.0) + row["fit s"]
        base, reference = base or total, values if reference is None else reference
        row |= {
            "gap": clf.duality_gap_,
            "SVs": len(clf.support_),
            "accuracy": float(np.mean(np.where(values > 0, 1, -1) == y_test)),
        }
        table.add(
            how=how, n=args.n, kernels=len(bank), ratio=total / base, apart=apart(values, reference), **row
        )
    plot(args.out / "families.png", lambda *axes: draw(table, *axes), panels=2)


if __name__ == "__main__":
    main()
