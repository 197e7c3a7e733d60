"""Kernels that count here and not there
=====================================

Localized models on a toy problem that can be drawn, and against plain MKL on real data.

First GAUSS4, two Gaussians per class in the plane. One linear kernel, or a fixed mixture with a quadratic
one, cannot follow the best possible boundary; kernels with regions of their own can. The picture gauss4.png
shows, for each model, where it decides for which class (line; dashed: the best possible one) and which kernel
or cluster counts where (colours). Then the comparison: the sum of all kernels (UNIF), lp-norm MKL, localized
MKL over hard (HLMKL) and soft clusters (CLMKL), and localized MKL with a gating model (LMKL). Training rows
are drawn anew for every split; C, and the evenness of soft clusters, are chosen by cross-validation within
them. Writes into --out: gauss4.png and comparison.csv, with mean and standard deviation of the test accuracy
over the splits and a paired t-test against the best model without localities.

Run it::

    python examples/localized.py                                      breast cancer (bundled with
                                                                      scikit-learn) and two moons
    python examples/localized.py --data banana.npz --splits 10        arrays X and y with two classes
    python examples/localized.py --data moons --bank gaussian         kernels that are rich enough by
    themselves
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import Table, timed
from scipy.stats import ttest_rel
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from raymkl import ConvexLocalizedMKLClassifier, LocalizedMKLClassifier, MKLClassifier, kernels
from raymkl.search import MKLSearchCV

MEANS = np.array([[-3.0, 1.0], [1.0, 1.0], [-1.0, -2.2], [3.0, -2.2]])  # the first two belong to class +1
VARIANCES = np.array([[0.8, 2.0], [0.8, 2.0], [0.8, 4.0], [0.8, 4.0]])
COLOURS = np.array([[0.99, 0.75, 0.44], [0.55, 0.78, 0.91], [0.66, 0.87, 0.60]])
LINEAR, QUADRATIC = kernels.Linear(), kernels.Polynomial(degree=2, coef0=1.0)
CHOICES_OF_C = [1.0, 10.0]
CHOICES_OF_EVENNESS = [0.4, 0.6, 0.8]


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data",
        metavar="FILE.npz",
        nargs="+",
        default=["breast-cancer", "moons"],
        help='files with arrays X (n, d) and y (n,), or "breast-cancer", "moons" (default: both)',
    )
    parse.add_argument(
        "--bank",
        choices=["simple", "gaussian"],
        default="simple",
        help="linear and quadratic, or three Gaussians as well",
    )
    parse.add_argument(
        "--splits",
        type=int,
        default=5,
        help="random splits into training and test rows (default: %(default)s)",
    )
    parse.add_argument(
        "--rows", type=int, default=250, help="training rows of a split (default: %(default)s)"
    )
    parse.add_argument("--p", type=float, default=4 / 3, help="block norm of HLMKL and CLMKL (default: 4/3)")
    parse.add_argument("--clusters", type=int, default=3, help="of HLMKL and CLMKL (default: %(default)s)")
    parse.add_argument(
        "--toy-rows", type=int, default=600, help="training rows of GAUSS4 (default: %(default)s)"
    )
    parse.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("localized"),
        help="results go here (default: %(default)s)",
    )
    args = parse.parse_args()
    if args.splits < 2:
        parse.error(f"--splits must be 2 or more for a paired test, got {args.splits}")
    return args


# -- the toy problem -------------------------------------------------------------------------------


def gauss4(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """n points (n, 2) and labels of four equally likely Gaussians, two per class."""
    rng = np.random.default_rng(seed)
    part = rng.integers(0, 4, n)
    return MEANS[part] + rng.normal(size=(n, 2)) * np.sqrt(VARIANCES[part]), np.where(part < 2, 1, -1)


def best_decision(points: np.ndarray) -> np.ndarray:
    """Difference of the classes' densities, up to a factor: its sign is the best decision that there is."""
    exponents = -0.5 * ((points[:, None] - MEANS) ** 2 / VARIANCES).sum(axis=2)
    densities = np.exp(exponents) / np.sqrt(VARIANCES.prod(axis=1))
    return densities[:, :2].sum(axis=1) - densities[:, 2:].sum(axis=1)


def toy_models(seed: int) -> dict:
    """Models by title; all have C and normalisation in common."""
    common = {"C": 10.0, "normalize": "multiplicative", "engine": "local"}
    gated = {**common, "tol": 1e-2, "n_init": 5, "random_state": seed}
    return {
        "MKL: linear + quadratic": MKLClassifier(kernels=[LINEAR, QUADRATIC], **common),
        "CLMKL: linear + quadratic": ConvexLocalizedMKLClassifier(
            kernels=[LINEAR, QUADRATIC], random_state=seed, **common
        ),
        "LMKL: linear + quadratic": LocalizedMKLClassifier(kernels=[LINEAR, QUADRATIC], **gated),
        "LMKL: linear, three times": LocalizedMKLClassifier(kernels=[LINEAR] * 3, **gated),
    }


def gates_of(model, points: np.ndarray) -> np.ndarray:
    """(n, k) how much each kernel or cluster counts at each point; rows sum to one."""
    if isinstance(model, LocalizedMKLClassifier):
        return model.gates(points)
    if isinstance(model, ConvexLocalizedMKLClassifier):
        return model.membership(points)
    return np.tile(model.kernel_weights_ / model.kernel_weights_.sum(), (len(points), 1))


def draw(models: dict, accuracies: dict, X: np.ndarray, y: np.ndarray, *panels) -> None:
    across, up = np.meshgrid(np.linspace(-6, 6, 241), np.linspace(-8, 5, 241))
    points = np.column_stack([across.ravel(), up.ravel()])
    for axes, (title, model) in zip(panels, models.items(), strict=True):
        gates = gates_of(model, points)
        axes.imshow(
            (gates @ COLOURS[: gates.shape[1]]).reshape(*across.shape, 3),
            origin="lower",
            extent=(-6, 6, -8, 5),
            aspect="auto",
        )
        for label, marker in ((1, "+"), (-1, "_")):
            axes.scatter(*X[y == label].T, s=14, c="black", marker=marker, linewidths=0.6, alpha=0.6)
        best, learned = (
            values.reshape(across.shape)
            for values in (best_decision(points), model.decision_function(points))
        )
        axes.contour(across, up, best, levels=[0.0], colors="black", linestyles="dashed", linewidths=1)
        axes.contour(across, up, learned, levels=[0.0], colors="firebrick", linewidths=2)
        axes.set(title=f"{title}\naccuracy {accuracies[title]:.3f}", xlim=(-6, 6), ylim=(-8, 5))
        names = [
            f"kernel {m + 1}: {'linear' if kernel == LINEAR else 'quadratic'}"
            for m, kernel in enumerate(model.kernels_)
        ]
        if isinstance(model, ConvexLocalizedMKLClassifier):
            names = [f"cluster {j + 1}" for j in range(gates.shape[1])]
        for name, colour in zip(names, COLOURS, strict=False):
            axes.scatter(
                [], [], s=80, color=[colour], marker="s", edgecolors="grey", linewidths=0.5, label=name
            )
        axes.legend(loc="lower left", fontsize=8, framealpha=0.9)


def toy(args) -> None:
    X, y = gauss4(args.toy_rows, args.seed)
    X_test, y_test = gauss4(5_000, args.seed + 1)
    print(f"# GAUSS4: {args.toy_rows} training rows, 5000 test rows")
    many, labels = gauss4(200_000, args.seed + 2)
    print(f"{'best possible':<28} accuracy {np.mean((best_decision(many) > 0) == (labels > 0)):.3f}")
    models, accuracies = toy_models(args.seed), {}
    for title, model in models.items():
        seconds, _ = timed(lambda model=model: model.fit(X, y))
        accuracies[title] = model.score(X_test, y_test)
        print(
            f"{title:<28} accuracy {accuracies[title]:.3f}  {len(model.support_):4d} support vectors  "
            f"{seconds:.1f} s",
            flush=True,
        )
    plot(
        args.out / "gauss4.png",
        lambda *panels: draw(models, accuracies, X, y, *panels),
        panels=len(models),
        width=4.6,
        height=4.6,
    )


# -- the comparison --------------------------------------------------------------------------------


def load(name: str, seed: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Name, X (n, d) and y (n,) of a file or of a set that needs none."""
    if name == "breast-cancer":
        from sklearn.datasets import load_breast_cancer

        return name, *load_breast_cancer(return_X_y=True)
    if name == "moons":
        from sklearn.datasets import make_moons

        return name, *make_moons(3_000, noise=0.3, random_state=seed)
    try:
        with np.load(name, allow_pickle=False) as file:
            missing = [array for array in ("X", "y") if array not in file]
            if missing:
                raise SystemExit(
                    f"--data {name}: there is no array {', '.join(missing)}; it holds {', '.join(file.files)}"
                )
            X, y = file["X"].astype(float), file["y"]
    except (OSError, ValueError) as error:
        raise SystemExit(f"--data {name}: {error}") from None
    if len(np.unique(y)) != 2:
        raise SystemExit(f"--data {name}: y has {len(np.unique(y))} classes; the comparison is about two")
    return Path(name).stem, X, y


def candidates(args, d: int) -> dict:
    """Models by name, each with what is chosen by cross-validation. d : features; distances grow with it."""
    bank = [LINEAR, QUADRATIC]
    if args.bank == "gaussian":
        bank += kernels.rbf([0.2 / d, 2.0 / d, 20.0 / d])
    common = {"kernels": bank, "normalize": "multiplicative", "engine": "local"}
    local = {**common, "p": args.p, "n_clusters": args.clusters, "n_init": 5, "random_state": args.seed}
    found = {"UNIF (p = 2)": (MKLClassifier(p=2.0, **common), {})}
    for name, p in (("1", 1.0), ("8/7", 8 / 7), ("4/3", 4 / 3)):
        found[f"MKL, p = {name}"] = (MKLClassifier(p=p, **common), {})
    found["HLMKL"] = (ConvexLocalizedMKLClassifier(evenness="hard", **local), {})
    found["CLMKL"] = (
        ConvexLocalizedMKLClassifier(**local),
        {"evenness": [e for e in CHOICES_OF_EVENNESS if e * args.clusters > 1]},
    )
    found["LMKL"] = (LocalizedMKLClassifier(tol=1e-2, n_init=3, random_state=args.seed, **common), {})
    return found


def compare(args, table: Table, name: str, X: np.ndarray, y: np.ndarray) -> None:
    """Rows of the table for one set: every model on every split."""
    models = candidates(args, X.shape[1])
    accuracy, seconds = {model: [] for model in models}, dict.fromkeys(models, 0.0)
    for split in range(args.splits):
        size = min(args.rows, 2 * len(y) // 3)
        train, test, y_train, y_test = train_test_split(
            X, y, train_size=size, random_state=args.seed + split, stratify=y
        )
        scaler = StandardScaler().fit(train)
        train, test = scaler.transform(train), scaler.transform(test)
        for model, (estimator, grid) in models.items():
            started = time.perf_counter()
            found = MKLSearchCV(estimator, {"C": CHOICES_OF_C, **grid}, cv=3).fit(train, y_train)
            seconds[model] += time.perf_counter() - started
            accuracy[model].append(found.score(test, y_test))
    plain = [model for model in models if model.startswith(("UNIF", "MKL"))]
    best = max(plain, key=lambda model: np.mean(accuracy[model]))
    for model in models:
        difference = np.subtract(accuracy[model], accuracy[best])
        # A test of differences that are all the same has no answer.
        tested = model != best and np.ptp(difference) > 0
        table.add(
            data=name,
            model=model,
            accuracy=float(np.mean(accuracy[model])),
            deviation=float(np.std(accuracy[model], ddof=1)),
            gain=float(difference.mean()),
            p_value=float(ttest_rel(accuracy[model], accuracy[best]).pvalue) if tested else None,
            seconds=seconds[model] / args.splits,
        )
    table.note(
        f"{name}: gain and p-value (paired t-test over {args.splits} splits) are against {best}, the best "
        "without localities"
    )


def main():
    args = options()
    warnings.simplefilter(
        "ignore", ConvergenceWarning
    )  # the search cares for accuracies, gates may stop short of their last digits
    sets = [load(name, args.seed) for name in args.data]
    toy(args)
    table = Table(
        args.out / "comparison.csv",
        "localized models against plain MKL: test accuracy",
        {
            "data": "<14",
            "model": "<14",
            "accuracy": ".4f",
            "deviation": ".4f",
            "gain": "+.4f",
            "p_value": ".3g",
            "seconds": ".1f",
        },
        [
            f"{args.bank} kernels, {args.splits} splits, {args.rows} training rows at most, C chosen from "
            f"{CHOICES_OF_C}",
            "splits draw from the same rows, which makes p-values smaller than they should be",
        ],
    )
    for name, X, y in sets:
        compare(args, table, name, X, y)


if __name__ == "__main__":
    main()
