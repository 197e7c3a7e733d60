"""Splice sites with weighted-degree kernels
=========================================

Acceptor sites of C. elegans with 20 degrees: one set of weights, weights by cluster, or gates.

Acceptor sites (the end of an intron, always an AG) are told from other places with an AG, by 20
weighted-degree kernels (degrees 1 to 20, multiplicatively normalised) on the letters around. Compared are the
uniform sum (UNIF), lp-norm MKL, localized MKL over hard clusters (HLMKL) and over soft ones (CLMKL), and
localized MKL with a gating model in the space of the uniform kernel (LMKL), by the mean and standard
deviation of the area under the ROC curve over random splits, beside the table of Lei, Binder, Dogan, Kloft:
Localized multiple kernel learning, a convex approach (ACML 2016). Parameters are chosen on validation
windows.

Run it::

    python examples/splice.py --data splice_celegans.parquet
    python examples/splice.py --data splice_celegans.parquet --quick                      two sizes, three
    splits
    python examples/splice.py --data splice_celegans.parquet --norms 1 8/7 4/3            all rows of the
    published table
    python examples/splice.py --data splice_celegans.parquet --large 20000 --engine ray   and one run with
    20,000 windows
    python examples/splice.py --demo                                                      made-up sequences,
                                                                                          seconds

The data are a table (Parquet) with columns `sequence` (AG at letters 197 and 198), `label` (1, -1) and `part`
(first: to train and validate with, last: to test). Written to --out: results.csv (continued by the next run
with the same --out), summary.csv (n, method, mean, std, p_value, splits, seconds, published, published_std),
auc.png, positions.png. p is the block norm; that of the published table is the norm of the weights: its 1,
1.33 and 2 are 1, 8/7 and 4/3 here.
"""

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import machine, stamp
from resumable import Results, name_of, norm, same_settings
from scipy.stats import ttest_rel
from sklearn.exceptions import ConvergenceWarning
from splice_data import SITE, WHAT_DIFFERS, Windows, published

from raymkl import (
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    RayParams,
    diagnostics,
    kernels,
)
from raymkl.metrics import macro_auc
from raymkl.search import MKLSearchCV

ENVIRONMENT = "RAYMKL_SPLICE"
SIZES = (50, 100, 200, 400, 800)
CLUSTERS = 3
# The method that others are tested against; in the published table it is the one with weights of norm 1.33.
COMPARED = "CLMKL, p=4/3"
NO_DATA = f"""Pass the windows with --data FILE.parquet (or the variable {ENVIRONMENT}): a table with columns
sequence, label (1, -1) and part (first, last), made from the files easysvm/C_elegans_acc_*.fasta.bz2 of
shogun-data.
Without data, --demo runs the same study on made-up sequences with motifs."""


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data",
        metavar="FILE.parquet",
        default=os.environ.get(ENVIRONMENT),
        help=f"default: variable {ENVIRONMENT}",
    )
    parse.add_argument("--demo", action="store_true", help="made-up sequences instead of data")
    parse.add_argument(
        "--quick", action="store_true", help="n = 50 and 200, three splits, unless given otherwise"
    )
    parse.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="N",
        help=f"training windows (default: {' '.join(map(str, SIZES))})",
    )
    parse.add_argument("--splits", type=int, help="random splits (default: 10)")
    parse.add_argument(
        "--around",
        type=int,
        metavar="LETTERS",
        help="letters kept on both sides of AG (default: all that there are)",
    )
    parse.add_argument(
        "--norms",
        type=norm,
        nargs="+",
        default=[4 / 3],
        help="block norms of the localized models, and of MKL beside 1 and 4/3 (default: 4/3)",
    )
    parse.add_argument(
        "--large",
        type=int,
        metavar="N",
        help="one more run with that many windows, as many sites as there are among them",
    )
    parse.add_argument(
        "--engine",
        choices=["local", "ray", "auto"],
        default="local",
        help="of the large run; all others are local",
    )
    parse.add_argument("--shards", type=int, help="shards of the large run")
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("splice"),
        help="results go here (default: %(default)s)",
    )
    return parse.parse_args()


# -- methods ---------------------------------------------------------------------------------------


def methods(degrees: int, norms: list[float], seed: int, **place) -> dict:
    """Estimator and grid of every method, by its name with the block norm p."""
    common = {
        "kernels": [kernels.WeightedDegree(degree=d) for d in range(1, degrees + 1)],
        "normalize": "multiplicative",
        **place,
    }
    fine, coarse = {"C": [10.0 ** (e / 2) for e in range(-2, 5)]}, {"C": [0.1, 1.0, 10.0]}
    clustered = {**common, "n_clusters": CLUSTERS, "random_state": seed}
    found = {"UNIF": (MKLClassifier(p=2.0, **common), fine)}
    for p in sorted({1.0, 4 / 3, *norms} - {2.0}):  # with p = 2 it is the uniform sum
        found[f"MKL, p={name_of(p)}"] = (MKLClassifier(p=p, **common), fine)
    for p in norms:
        name = f"p={name_of(p)}"
        found[f"HLMKL, {name}"] = (ConvexLocalizedMKLClassifier(p=p, evenness="hard", **clustered), coarse)
        found[f"CLMKL, {name}"] = (
            ConvexLocalizedMKLClassifier(p=p, **clustered),
            {**coarse, "evenness": [0.4, 0.6, 0.8]},
        )
    gated = LocalizedMKLClassifier(
        gating="kernel", gating_kernel="uniform", n_init=1, max_iter=30, random_state=seed, **common
    )
    return {**found, "LMKL": (gated, coarse)}


def learned(model, grid: dict, train: tuple, valid: tuple):
    """The model with the parameters that do best on the validation windows, fitted to the training windows;
    and those parameters.
    """
    n = len(train[1])
    split = [(np.arange(n), np.arange(n, n + len(valid[1])))]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # gates that have not settled; the table says how well they do
        search = MKLSearchCV(model, grid, cv=split, scoring="roc_auc", refit=False)
        search.fit(train[0] + valid[0], np.concatenate([train[1], valid[1]]))
        best = search.best_params_
        return model.set_params(**best).fit(*train), best


def run(args, windows: Windows, sizes: list[int], splits: int, results: Results) -> None:
    """All methods, sizes and splits that are not in the results yet."""
    for n in sizes:
        for split in range(splits):
            parts = None
            for name, (model, grid) in methods(
                windows.degrees, args.norms, args.seed, engine="local"
            ).items():
                if results.find(method=name, n=n, split=split) is not None:
                    continue
                parts = parts or windows.draw(split, n, args.seed)
                train, valid, test = parts
                started = time.perf_counter()
                model, best = learned(model, grid, train, valid)
                seconds = time.perf_counter() - started
                auc = macro_auc(test[1], model.decision_function(test[0]))
                results.add(
                    method=name,
                    n=n,
                    split=split,
                    auc=auc,
                    C=best["C"],
                    evenness=best.get("evenness"),
                    gap=model.duality_gap_,
                    seconds=seconds,
                )
            own = {row["method"]: row["auc"] for row in results.where(n=n, split=split)}
            print(
                f"n {n:4d} split {split:2d}  " + "  ".join(f"{name} {auc:.3f}" for name, auc in own.items()),
                flush=True,
            )


def run_large(args, windows: Windows, results: Results) -> int:
    """One run with many windows; C and evenness are those chosen most often at the largest size so far.

    Gates are left out. Returns how many windows there were.
    """
    place = {
        "engine": args.engine,
        "ray_params": RayParams(num_shards=args.shards),
        "verbose": 1,
    }
    train, test = windows.draw_large(args.large, args.seed)
    n = len(train[1])
    print(
        f"large run: {n} windows, {int((train[1] == 1).sum())} of them sites; tested on {len(test[1])}",
        flush=True,
    )
    usual = [row for row in results.rows.values() if row["n"] < n]
    largest = max(row["n"] for row in usual)
    for name, (model, _) in methods(windows.degrees, args.norms, args.seed, **place).items():
        row = results.find(method=name, n=n, split=-1)
        if name == "LMKL":
            continue
        if row is None:
            chosen = [
                (row["C"], row["evenness"]) for row in usual if row["n"] == largest and row["method"] == name
            ]
            C, evenness = Counter(chosen).most_common(1)[0][0]
            model.set_params(
                C=C, **({"evenness": evenness} if evenness is not None and name.startswith("CLMKL") else {})
            )
            started = time.perf_counter()
            model.fit(*train)
            seconds = time.perf_counter() - started
            auc = macro_auc(test[1], model.decision_function(test[0]))
            row = results.add(
                method=name,
                n=n,
                split=-1,
                auc=auc,
                C=C,
                evenness=evenness,
                gap=model.duality_gap_,
                seconds=seconds,
            )
        print(
            f"n {n}  {name:14s} AUC {row['auc']:.4f}  gap {row['gap']:.1e}  {row['seconds']:.1f} s",
            flush=True,
        )
    return n


# -- tables and pictures ---------------------------------------------------------------------------


def summary(results: Results, sizes: list[int], splits: int, large: int | None, path: Path) -> list[dict]:
    """Means, standard deviations, paired t-tests against COMPARED, and the published figures; the large run
    has one row per method, without a spread.
    """
    path.unlink(missing_ok=True)
    columns = ["mean", "std", "p_value", "splits", "seconds", "published", "published_std"]
    table = Results(path, ["n", "method"], columns)
    names = list(dict.fromkeys(row["method"] for row in results.rows.values()))
    print(
        f"\nAUC in per cent over {splits} splits; * {COMPARED} is significantly better, o significantly "
        "worse (paired t-test, 5 %)"
    )
    for n, numbers in [(n, range(splits)) for n in sizes] + ([(large, [-1])] if large else []):
        print(f"n = {n}")
        found = {name: [results.find(method=name, n=n, split=split) for split in numbers] for name in names}
        # Methods that were not run for every split belong to other options.
        found = {name: rows for name, rows in found.items() if None not in rows}
        aucs = {name: [100 * row["auc"] for row in rows] for name, rows in found.items()}
        for name, own in aucs.items():
            p_value, mark = None, " "
            if COMPARED in aucs and name != COMPARED and len(own) > 1:
                test = ttest_rel(aucs[COMPARED], own)
                p_value = float(test.pvalue)
                mark = "*" if p_value < 0.05 and test.statistic > 0 else "o" if p_value < 0.05 else " "
            row = table.add(
                n=n,
                method=name,
                mean=round(float(np.mean(own)), 3),
                std=round(float(np.std(own, ddof=1)), 3) if len(own) > 1 else None,
                p_value=p_value,
                splits=len(own),
                seconds=round(float(np.mean([row["seconds"] for row in found[name]])), 2),
                **dict(zip(("published", "published_std"), published(name, n), strict=True)),
            )
            spread = "" if row["std"] is None else f"+- {row['std']:3.1f}"
            was = "" if row["published"] is None else f"published {row['published']:.1f}"
            print(f"  {name:14s} {row['mean']:5.1f} {spread:6s} {mark}  {was}")
    print(f"wrote {path}")
    return list(table.rows.values())


def draw_auc(rows: list[dict], axes) -> None:
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        line = axes.errorbar(
            [r["n"] for r in own],
            [r["mean"] for r in own],
            [r["std"] or 0.0 for r in own],
            marker="o",
            capsize=3,
            label=name,
        )
        told = [(r["n"], r["published"]) for r in own if r["published"] is not None]
        axes.plot([n for n, _ in told], [mean for _, mean in told], ":", color=line.lines[0].get_color())
    axes.set(
        xscale="log",
        xlabel="training windows",
        ylabel="AUC on test windows, per cent",
        title="Dotted: published, on other windows",
    )
    axes.grid(alpha=0.3)
    axes.legend()


def draw_positions(args, windows: Windows, n: int, path: Path) -> None:
    """Which places and piece lengths tell sites from decoys, for MKL with p = 4/3."""
    model, grid = methods(windows.degrees, [], args.seed, engine="local")["MKL, p=4/3"]
    train, valid, (sequences, labels) = windows.draw(0, n, args.seed)
    model, _ = learned(model, grid, train, valid)
    means = {}
    for label in (1, -1):
        own = [sequence for sequence, its in zip(sequences, labels, strict=True) if its == label]
        means[label] = diagnostics.positional_importance(model, own, average=True, spread=True).total()
    picture = means[1] - means[-1]
    first = 0 if args.demo else -(args.around or SITE)
    place = (first - 0.5, first + picture.shape[1] - 0.5, len(picture) + 0.5, 0.5)

    def draw(axes):
        from matplotlib.colors import SymLogNorm

        limit = np.abs(picture).max()
        colours = SymLogNorm(limit / 30, vmin=-limit, vmax=limit)
        image = axes.imshow(picture, aspect="auto", cmap="RdBu_r", norm=colours, extent=place)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.set(
            xlabel="position" if args.demo else "position relative to the A of AG",
            ylabel="letters of the piece",
            title=f"Contribution to the decision: sites less decoys, n = {n}",
        )
        axes.figure.colorbar(image, ax=axes)

    plot(path, draw, width=9.0)


def main():
    args = options()
    if not args.demo and not args.data:
        print(NO_DATA, file=sys.stderr)
        sys.exit(2)
    if args.demo:
        print("made-up sequences with motifs: the figures say nothing about splice sites")
    windows = Windows.made_up(args.seed) if args.demo else Windows.read(args.data, args.around)
    sizes = sorted(args.sizes or ((40, 80) if args.demo else (50, 200) if args.quick else SIZES))
    splits = args.splits or (2 if args.demo else 3 if args.quick else 10)
    same_settings(
        args.out,
        "splice",
        {
            "data": "demo" if args.demo else os.path.basename(args.data),
            "around": args.around,
            "seed": args.seed,
        },
    )
    results = Results(
        args.out / "results.csv", ["method", "n", "split"], ["auc", "C", "evenness", "gap", "seconds"]
    )
    print(*machine(), sep="\n")
    run(args, windows, sizes, splits, results)
    large = run_large(args, windows, results) if args.large else None
    rows = summary(results, sizes, splits, large, args.out / "summary.csv")
    notes = [
        "p: the block norm; p_value: paired t-test against " + COMPARED,
        "seconds: choice of parameters and fit" + (f", at n = {large} the fit alone" if large else ""),
        "made-up sequences" if args.demo else "published: on other windows, 50 splits",
    ]
    stamp(args.out / "summary.csv", f"splice sites: AUC on test windows in per cent, {splits} splits", *notes)
    if not args.demo:
        print(WHAT_DIFFERS)
    plot(
        args.out / "auc.png",
        lambda axes: draw_auc([row for row in rows if row["n"] in sizes], axes),
        width=8.0,
    )
    draw_positions(args, windows, sizes[-1], args.out / "positions.png")


if __name__ == "__main__":
    main()
