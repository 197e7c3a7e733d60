"""Beside MKLpy: EasyMKL and AverageMKL on the same ready-made kernel matrices.

The three optimise different things, so this compares cost and accuracy, not objectives: raymkl solves lp-norm
MKL to a duality gap of 1e-3 (p = 1 and p = 4/3), EasyMKL maximises the margin of a regularised average and
then trains an SVM, AverageMKL trains an SVM on the plain mean. All get the same Gaussian kernel matrices in
float64, and all SVMs have C = 1. The seconds are those of `fit` alone; the last row is raymkl computing the
same kernels by itself.

    pip install MKLpy
    python examples/benchmarks/against_mklpy.py --data mnist.npz
    python examples/benchmarks/against_mklpy.py --quick

Without MKLpy, one line says how to get it and the program ends with exit code 0.
"""

import sys

import numpy as np
from charts import bars, plot
from common import Table, load_digits_for, parser, timed, two_to_the_minus, warm_up

from raymkl import MKLClassifier

COLUMNS = {
    "method": "<28",
    "n": "d",
    "kernels": "d",
    "seconds": ".2f",
    "ratio": ".2f",
    "predict s": ".2f",
    "accuracy": ".4f",
    "largest weight": ".3f",
}


def options():
    parse = parser(__doc__)
    parse.add_argument("--n", type=int, help="training rows (default: 1000; quick: 300)")
    parse.add_argument("--kernels", type=int, default=10, help="number of kernels (default: %(default)s)")
    parse.add_argument("--test", type=int, default=1000, help="test rows (default: %(default)s)")
    args = parse.parse_args()
    args.n = args.n or (300 if args.quick else 1000)
    return args


def contenders(matrices, test_matrices, y) -> dict:
    """name -> (fit, predict from the fitted model, weights of the fitted model)."""
    import torch
    from MKLpy.algorithms import AverageMKL, EasyMKL
    from sklearn.svm import SVC

    # MKLpy multiplies with torch's operators and takes nothing else.
    train, test = (
        [torch.from_numpy(np.ascontiguousarray(K)) for K in stack.transpose(2, 0, 1)]
        for stack in (matrices, test_matrices)
    )
    labels = torch.from_numpy(y)
    runs = {}
    for p, name in ((4 / 3, "raymkl, p = 4/3"), (1.0, "raymkl, p = 1")):
        model = MKLClassifier(kernels="precomputed", C=1.0, p=p, tol=1e-3, engine="local")
        runs[name] = (
            lambda m=model: m.fit(matrices, y),
            lambda m: m.predict(test_matrices),
            lambda m: m.kernel_weights_,
        )
    for name, kind in (("MKLpy EasyMKL", EasyMKL), ("MKLpy AverageMKL", AverageMKL)):
        runs[name] = (
            lambda kind=kind: kind(learner=SVC(C=1.0)).fit(train, labels),
            lambda m: np.asarray(m.predict(test)),
            lambda m: m.solution.weights.numpy(),
        )
    return runs


def draw(table: Table, time_axes, accuracy_axes) -> None:
    names, size = table.column("method"), f"{table.rows[0]['kernels']} kernels, n = {table.rows[0]['n']:,}"
    bars(
        time_axes,
        names,
        {"fit": table.column("seconds"), "predict": table.column("predict s")},
        f"seconds, {size}",
    )
    bars(accuracy_axes, names, {"accuracy": table.column("accuracy")}, "accuracy on test rows", ".4f")


def main():
    args = options()
    try:
        import MKLpy.algorithms  # noqa: F401
    except ImportError as error:
        print(
            f"MKLpy cannot be imported ({error}); to compare with it: pip install MKLpy (it needs torch and "
            "cvxopt)"
        )
        sys.exit(0)
    digits = load_digits_for(args)
    X, y = digits.subsample(args.n, args.seed)
    X_test, y_test = digits.test(args.test)
    bank = two_to_the_minus(args.kernels)
    warm_up(X, y)
    matrices, test_matrices = (np.stack([kernel(A, X) for kernel in bank], axis=-1) for A in (X, X_test))
    runs = contenders(matrices, test_matrices, y)
    direct = MKLClassifier(kernels=bank, C=1.0, p=4 / 3, tol=1e-3, engine="local")
    runs["raymkl, p = 4/3, from rows"] = (
        lambda: direct.fit(X, y),
        lambda m: m.predict(X_test),
        lambda m: m.kernel_weights_,
    )
    MKLClassifier(kernels="precomputed", dtype="float32").fit(matrices[:200, :200], y[:200])
    table = Table(
        args.out / "against_mklpy.csv",
        "Beside MKLpy",
        COLUMNS,
        [f"data: {digits.name}", "ratio: to raymkl with p = 4/3"],
    )
    base = None
    for name, (fit, predict, weights) in runs.items():
        seconds, model = timed(fit)
        base = base or seconds
        predict_seconds, labels = timed(lambda predict=predict, model=model: predict(model))
        row = {"seconds": seconds, "ratio": seconds / base, "accuracy": float(np.mean(labels == y_test))}
        share = weights(model) / weights(model).sum()
        table.add(
            method=name,
            n=args.n,
            kernels=args.kernels,
            **row,
            **{"predict s": predict_seconds, "largest weight": float(share.max())},
        )
    plot(args.out / "against_mklpy.png", lambda *axes: draw(table, *axes), panels=2)


if __name__ == "__main__":
    main()
