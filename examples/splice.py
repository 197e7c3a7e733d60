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
    python examples/splice.py --data splice_celegans.parquet --large 20000 --engine ray   and one run with
    20,000 windows
    python examples/splice.py --demo                                                      made-up sequences,
                                                                                          seconds

The data are a table (Parquet) with columns `sequence` (AG at letters 197 and 198), `label` (1, -1) and `part`
(first: to train and validate with, last: to test). Written to --out: results.csv (continued by the next run
with the same --out), summary.csv, auc.png, positions.png.
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
from resumable import Results, norm, same_settings
from scipy.stats import ttest_rel
from sklearn.exceptions import ConvergenceWarning

from raymkl import (
    ConvexLocalizedMKLClassifier,
    LocalizedMKLClassifier,
    MKLClassifier,
    RayParams,
    diagnostics,
    kernels,
)
from raymkl.datasets import make_motif_sequences
from raymkl.metrics import macro_auc
from raymkl.search import MKLSearchCV

ENVIRONMENT = "RAYMKL_SPLICE"
SITE = 197  # index of the A of AG
SIZES = (50, 100, 200, 400, 800)
VALIDATION, TEST = 500, 2_000  # windows, half of them sites
LARGE_TEST = 20_000
CLUSTERS = 3
COMPARED = "CLMKL, p=4/3"  # the method that others are tested against, as in the published table

# AUC in per cent, means and standard deviations of 50 splits: table 1 of Lei, Binder, Dogan, Kloft, ACML
# 2016.
PUBLISHED_SIZES = (50, 100, 200, 400, 800)
PUBLISHED = {
    "UNIF": ((79.5, 2.8), (84.2, 2.2), (88.0, 1.7), (91.6, 1.5), (93.8, 2.3)),
    "MKL, p=1": ((80.2, 2.8), (85.2, 2.0), (89.2, 1.6), (92.5, 1.5), (94.2, 2.1)),
    "MKL, p=4/3": ((79.7, 2.9), (84.6, 2.1), (88.6, 1.7), (92.0, 1.5), (93.8, 2.1)),
    "MKL, p=2": ((79.6, 2.8), (84.3, 2.2), (88.3, 1.7), (91.8, 1.5), (93.8, 2.2)),
    "HLMKL, p=1": ((84.9, 2.0), (87.7, 1.8), (90.4, 1.6), (93.0, 1.3), (95.0, 2.0)),
    "HLMKL, p=4/3": ((85.4, 1.9), (88.5, 1.7), (90.1, 1.6), (92.7, 1.2), (94.4, 2.1)),
    "HLMKL, p=2": ((84.9, 2.0), (87.0, 1.7), (90.4, 1.4), (92.6, 1.4), (94.4, 2.2)),
    "CLMKL, p=1": ((90.9, 1.6), (91.3, 1.4), (93.3, 1.2), (94.3, 1.0), (95.2, 2.0)),
    "CLMKL, p=4/3": ((90.9, 1.5), (90.1, 1.3), (92.7, 1.2), (94.8, 1.1), (95.4, 1.9)),
    "CLMKL, p=2": ((90.5, 1.6), (92.3, 1.2), (93.0, 1.2), (94.4, 1.1), (95.6, 1.9)),
    "LMKL": ((79.8, 2.7), (84.2, 2.3), (88.4, 1.7), (91.9, 1.5), (94.3, 2.2)),
}
WHAT_DIFFERS = (
    "What differs: the published figures are from 1,000 windows with ready-made kernels (mkl-splice), split "
    "at random into training, "
    "validation and test; here windows (398 letters) come from one part of the genome and are tested on "
    "another, sites and decoys in "
    "equal numbers, with fewer splits and values to choose from. MKL with p = 2 (block norm) is the uniform "
    "sum here, hence one row."
)
NO_DATA = f"""Pass the windows with --data FILE.parquet (or the variable {ENVIRONMENT}): a table with the columns sequence,
label (1, -1) and part (first, last), made from the files easysvm/C_elegans_acc_*.fasta.bz2 of shogun-data.
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
        help="block norms of the localized models (default: 4/3)",
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


# -- data ------------------------------------------------------------------------------------------


class Windows:
    """Windows of two parts of a genome, by part and label.

    first, last : {1: sites, -1: decoys}, lists of strings of one length.
    """

    def __init__(self, first: dict, last: dict, degrees: int):
        self.first, self.last, self.degrees = first, last, degrees

    @classmethod
    def read(cls, path: str, around: int | None):
        """From a table; of every window `around` letters on both sides of AG, or all."""
        import pandas as pd

        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise SystemExit(f"--data {path}: {error}") from None
        missing = {"sequence", "label", "part"} - set(table.columns)
        if missing:
            raise SystemExit(
                f"--data {path} has no column {', '.join(sorted(missing))}; it has {', '.join(table.columns)}"
            )
        if around is not None:
            if not 10 <= around <= SITE:
                raise SystemExit(f"--around must be from 10 to {SITE}, got {around}")
            table["sequence"] = table["sequence"].str.slice(SITE - around, SITE + 2 + around)
        groups = {key: rows["sequence"].tolist() for key, rows in table.groupby(["part", "label"])}
        absent = [
            key for part in ("first", "last") for label in (1, -1) if (key := (part, label)) not in groups
        ]
        if absent:
            raise SystemExit(f"--data {path} has no rows with part, label = {absent[0]}")
        return cls(
            *({label: groups[part, label] for label in (1, -1)} for part in ("first", "last")), degrees=20
        )

    @classmethod
    def made_up(cls, seed: int):
        """Windows in which a worn motif stands near the middle."""
        parts = []
        for part in range(2):
            X, y = make_motif_sequences(400, 30, ["TTTTCAG"], jitter=0, noise=0.4, random_state=[seed, part])
            parts.append(
                {label: [x for x, own in zip(X, y, strict=True) if own == label] for label in (1, -1)}
            )
        return cls(*parts, degrees=8)

    def draw(self, split: int, n: int, seed: int) -> tuple:
        """(sequences, labels) to train with, to validate with and to test with, in equal parts; larger n
        contain smaller ones.
        """
        rng = np.random.default_rng([seed, split])
        first = {label: rng.permutation(len(self.first[label])) for label in (1, -1)}
        last = {label: rng.permutation(len(self.last[label])) for label in (1, -1)}
        held_out = min(VALIDATION, min(map(len, first.values())) // 2) // 2
        room = min(map(len, first.values())) - held_out
        if n > 2 * room:
            raise SystemExit(
                f"{n} windows were asked for; there are {2 * room} in equal numbers of sites and decoys"
            )
        train = self._taken(self.first, {label: order[: n // 2] for label, order in first.items()})
        valid = self._taken(
            self.first, {label: order[len(order) - held_out :] for label, order in first.items()}
        )
        return (
            train,
            valid,
            self._taken(self.last, {label: order[: TEST // 2] for label, order in last.items()}),
        )

    def draw_large(self, n: int, seed: int) -> tuple:
        """(sequences, labels) to train with, with as many sites as there are (half of n at most), and to test
        with.
        """
        rng = np.random.default_rng([seed, 1_000_003])
        parts = []
        for part, size in ((self.first, n), (self.last, LARGE_TEST)):
            sites = min(len(part[1]), size // 2)
            decoys = min(len(part[-1]), size - sites)
            parts.append(
                self._taken(
                    part,
                    {1: rng.permutation(len(part[1]))[:sites], -1: rng.permutation(len(part[-1]))[:decoys]},
                )
            )
        return tuple(parts)

    @staticmethod
    def _taken(part: dict, rows: dict) -> tuple[list[str], np.ndarray]:
        return [part[label][i] for label in (1, -1) for i in rows[label]], np.repeat(
            [1, -1], [len(rows[1]), len(rows[-1])]
        )


# -- methods ---------------------------------------------------------------------------------------


def methods(degrees: int, norms: list[float], seed: int, **place) -> dict:
    """Estimator and grid of every method, by the name it has in the published table."""
    common = {
        "kernels": [kernels.WeightedDegree(degree=d) for d in range(1, degrees + 1)],
        "normalize": "multiplicative",
        **place,
    }
    fine, coarse = {"C": [10.0 ** (e / 2) for e in range(-2, 5)]}, {"C": [0.1, 1.0, 10.0]}
    clustered = {**common, "n_clusters": CLUSTERS, "random_state": seed}
    found = {
        "UNIF": (MKLClassifier(p=2.0, **common), fine),
        "MKL, p=1": (MKLClassifier(p=1.0, **common), fine),
        "MKL, p=4/3": (MKLClassifier(p=4 / 3, **common), fine),
    }
    for p in norms:
        name = {1.0: "1", 4 / 3: "4/3", 2.0: "2"}.get(p, f"{p:.4g}")
        found[f"HLMKL, p={name}"] = (ConvexLocalizedMKLClassifier(p=p, evenness="hard", **clustered), coarse)
        found[f"CLMKL, p={name}"] = (
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


def run_large(args, windows: Windows, results: Results) -> None:
    """One run with many windows; C and evenness are those chosen most often at the largest size so far.

    Gates are left out.
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


# -- tables and pictures ---------------------------------------------------------------------------


def summary(results: Results, sizes: list[int], splits: int, path: Path) -> list[dict]:
    """Means, standard deviations, paired t-tests against COMPARED, and the published figures."""
    path.unlink(missing_ok=True)
    table = Results(path, ["n", "method"], ["mean", "std", "p_value", "published_mean", "published_std"])
    names = list(dict.fromkeys(row["method"] for row in results.rows.values()))
    print(
        f"\nAUC in per cent over {splits} splits; * {COMPARED} is significantly better, o significantly "
        "worse (paired t-test, 5 %)"
    )
    for n in sizes:
        print(f"n = {n}")
        found = {name: [results.find(method=name, n=n, split=s) for s in range(splits)] for name in names}
        aucs = {
            name: [row["auc"] for row in rows] for name, rows in found.items() if None not in rows
        }  # others belong to other options
        for name, own in aucs.items():
            mean, std = 100 * np.mean(own), 100 * np.std(own, ddof=1) if splits > 1 else np.nan
            p_value, mark = None, " "
            if COMPARED in aucs and name != COMPARED and splits > 1:
                test = ttest_rel(aucs[COMPARED], own)
                p_value = float(test.pvalue)
                mark = "*" if p_value < 0.05 and test.statistic > 0 else "o" if p_value < 0.05 else " "
            was = (
                PUBLISHED[name][PUBLISHED_SIZES.index(n)]
                if name in PUBLISHED and n in PUBLISHED_SIZES
                else (None, None)
            )
            beside = "" if was[0] is None else f"published {was[0]:.1f} +- {was[1]:.1f}"
            label = "UNIF (= MKL, p=2)" if name == "UNIF" else name
            print(f"  {label:18s} {mean:5.1f} +- {std:3.1f} {mark}  {beside}")
            table.add(
                n=n,
                method=name,
                mean=round(mean, 3),
                std=round(std, 3),
                p_value=p_value,
                published_mean=was[0],
                published_std=was[1],
            )
    print(f"wrote {path}")
    return list(table.rows.values())


def draw_auc(rows: list[dict], axes) -> None:
    for name in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == name]
        line = axes.errorbar(
            [r["n"] for r in own],
            [r["mean"] for r in own],
            [r["std"] for r in own],
            marker="o",
            capsize=3,
            label=name,
        )
        told = [(r["n"], r["published_mean"]) for r in own if r["published_mean"] is not None]
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
    rows = summary(results, sizes, splits, args.out / "summary.csv")
    notes = ("made-up sequences",) if args.demo else ("published: on other, shorter windows",)
    stamp(args.out / "summary.csv", f"splice sites: AUC on test windows in per cent, {splits} splits", *notes)
    if not args.demo:
        print(WHAT_DIFFERS)
    plot(args.out / "auc.png", lambda axes: draw_auc(rows, axes), width=8.0)
    draw_positions(args, windows, sizes[-1], args.out / "positions.png")
    if args.large:
        run_large(args, windows, results)


if __name__ == "__main__":
    main()
