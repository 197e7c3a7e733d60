"""Promoter recognition with five views
====================================

Which views of a window matter, and how much is gained by learning their weights.

A window of 70 nucleotides around a possible transcription start site is looked at in five ways, as in
Sonnenburg, Zien, Raetsch (ARTS, Bioinformatics 22, 2006): the signal at the start (weighted-degree kernel
with shift), the promoter before it and the first exon after it (spectrum kernels), and the stacking energies
and twist angles of neighbouring base pairs (linear kernels). Kernels are spherically normalised. For growing
n, block norms p = 1, 4/3, 2 (the uniform sum), 4, inf and single kernels are compared by the area under the
ROC curve on the test windows; C is chosen on the development windows.

Run it::

    python examples/tss.py --data tss_promoters.parquet --n 2000            two minutes on two cores
    python examples/tss.py --data tss_promoters.parquet --sizes 1000 5000 20000 53276 --engine ray --shards 2
    python examples/tss.py --data tss_promoters.parquet --quick             1,000 windows, three norms
    python examples/tss.py --demo                                           made-up sequences with motifs,
                                                                            seconds

The data are a table (Parquet) with columns `sequence` (70 letters, start at index 33), `label` (1, -1),
`split` (train, dev, test) and perhaps `kind` (tata, non_tata, nonprom): the human core promoters of EPDnew as
in the GUE task prom_core_all. Sizes beyond the training windows take development windows in addition. Written
to --out: chosen_C.csv, results.csv (both are continued by the next run with the same --out, which skips what
is there), summary.csv (beside published figures), weights.csv, auc.png, weights.png, positions.png (where in
the window the decisions come from), and models. Large fits keep checkpoints there, too, and go on from them.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import machine, stamp
from resumable import Results, name_of, norm, same_settings
from tss_data import NAMES, PUBLISHED, WHAT_DIFFERS, bank, made_up, read, views
from tss_pictures import draw_auc, draw_positions, draw_weights

from raymkl import MKLClassifier, RayParams
from raymkl.metrics import macro_auc
from raymkl.search import MKLSearchCV

ENVIRONMENT = "RAYMKL_TSS"
NORMS = (1.0, 4 / 3, 2.0, 4.0, np.inf)
# Values of C that are tried, times a factor for p > 2: the larger p, the smaller the penalty of the same w,
# so C moves against it.
GRID = tuple(2.0**e for e in range(-5, 2))
# Fits with at least this many windows keep checkpoints and may run on Ray.
LARGE = 10_000
# Each single kernel is fitted up to this n, beyond it only the one that did best on the development windows.
ALL_SINGLES = 5_000
TUNING_TOL = 1e-2

NO_DATA = f"""Pass the windows with --data FILE.parquet (or the variable {ENVIRONMENT}): a table with columns
sequence (70 letters, start site at index 33), label (1, -1) and split (train, dev, test), such as the
GUE task prom_core_all.
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
        "--quick", action="store_true", help="1,000 windows and p = 1, 4/3, 2, unless given otherwise"
    )
    parse.add_argument("--n", type=int, help="one number of windows to train on")
    parse.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="N",
        help="several (default: 1000 2000 5000 10000 20000 and all)",
    )
    parse.add_argument(
        "--p", type=norm, nargs="+", help="block norms (default: 1 4/3 2 4 inf; quick: 1 4/3 2)"
    )
    parse.add_argument("--C", type=float, help="fixed weight of the loss, instead of choosing it")
    parse.add_argument(
        "--tune",
        type=int,
        default=5_000,
        metavar="N",
        help="windows to choose C with, at most (default: %(default)s)",
    )
    parse.add_argument(
        "--engine",
        choices=["local", "ray", "auto"],
        default="local",
        help=f"of fits with {LARGE} windows or more",
    )
    parse.add_argument(
        "--shards", type=int, help="shards the rows are split into (default: chosen by the engine)"
    )
    parse.add_argument(
        "--tol", type=float, default=1e-3, help="relative duality gap to reach (default: %(default)s)"
    )
    parse.add_argument("--seed", type=int, default=0, help="of the choice of windows (default: %(default)s)")
    parse.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("tss"), help="results go here (default: %(default)s)"
    )
    args = parse.parse_args()
    args.p = args.p or list(NORMS[:3] if args.quick else NORMS)
    return args


# -- the study -------------------------------------------------------------------------------------


class Study:
    """Models (name, kernels, p) over growing parts of the windows, with what was found in files."""

    def __init__(self, args, parts: dict):
        self.args, self.parts = args, parts
        rng = np.random.default_rng(args.seed)
        train, dev, test = parts["train"], parts["dev"], parts["test"]
        order = np.concatenate(
            [rng.permutation(len(train["label"])), len(train["label"]) + rng.permutation(len(dev["label"]))]
        )
        self.n_train = len(train["label"])
        pool = [*train["sequence"], *dev["sequence"]]
        # Larger sizes contain the smaller ones, and development windows come last.
        self.sequences = [pool[i] for i in order]
        self.labels = np.concatenate([train["label"], dev["label"]])[order]
        known = set(pool)
        self.new = np.array([sequence not in known for sequence in test["sequence"]])
        self.test, self.y_test = views(test["sequence"]), test["label"]
        self.chosen = Results(
            args.out / "chosen_C.csv", ["model", "n"], ["C", "dev_auc", "at_edge", "seconds"]
        )
        self.results = Results(
            args.out / "results.csv",
            ["model", "n"],
            [
                "p",
                "C",
                "auc",
                "auc_new",
                "gap",
                "support_vectors",
                "rounds",
                "seconds",
                *(f"weight_{name}" for name in NAMES),
            ],
        )

    def models(self, n: int) -> list[tuple[str, list, float]]:
        """(name, kernels, p): the block norms, and single kernels."""
        mixed = [(f"p = {name_of(p)}" + (" (uniform sum)" if p == 2 else ""), bank(), p) for p in self.args.p]
        return mixed + (self.single() if n <= ALL_SINGLES else [self.best_single(n)])

    def single(self) -> list[tuple[str, list, float]]:
        return [(f"only {name}", [kernel], 2.0) for name, kernel in zip(NAMES, bank(), strict=True)]

    def best_single(self, n: int) -> tuple[str, list, float]:
        """The kernel that does best on the development windows by itself."""
        return max(self.single(), key=lambda model: self.choose_C(*model, n)["dev_auc"])

    def estimator(self, kernels_: list, p: float, tol: float, key: str, n: int, **more) -> MKLClassifier:
        folder = self.args.out / "checkpoints" / "".join(c if c.isalnum() else "_" for c in key)
        place = RayParams(num_shards=self.args.shards, checkpoint_dir=str(folder) if n >= LARGE else None)
        engine = self.args.engine if n >= LARGE else "local"  # small fits are over before actors have started
        return MKLClassifier(
            kernels=kernels_, p=p, normalize="spherical", tol=tol, engine=engine, ray_params=place, **more
        )

    def choose_C(self, name: str, kernels_: list, p: float, n: int) -> dict:
        """C that does best on development windows after training on n windows, or on as many as there are to
        tune with.
        """
        n = min(n, self.args.tune, self.n_train)
        if self.args.C is not None:
            return {"C": self.args.C, "dev_auc": 0.0}
        found = self.chosen.find(model=name, n=n)
        if found is None:
            dev = self.sequences[self.n_train : self.n_train + max(2_000, n)]
            rows = self.sequences[:n] + dev
            y = np.concatenate([self.labels[:n], self.labels[self.n_train : self.n_train + len(dev)]])
            model = self.estimator(kernels_, p, TUNING_TOL, f"C {name} {n}", n)
            grid = [C * min(1.0, len(kernels_) ** (1.5 * (2 / p - 1))) for C in GRID]
            split = [(np.arange(n), np.arange(n, len(y)))]
            started = time.perf_counter()
            search = MKLSearchCV(model, {"C": grid}, cv=split, scoring="roc_auc", refit=False).fit(
                views(rows), y
            )
            scores = search.cv_results_["mean_test_score"]
            best = int(np.argmax(scores))
            edge = {0: "lowest", len(grid) - 1: "highest"}.get(best, "no")
            seconds = round(time.perf_counter() - started, 2)
            found = self.chosen.add(
                model=name, n=n, C=grid[best], dev_auc=float(scores[best]), at_edge=edge, seconds=seconds
            )
        return found

    def run(self, n: int) -> None:
        """All models with n windows; those in the results already are only shown."""
        features = None
        for name, kernels_, p in self.models(n):
            row = self.results.find(model=name, n=n)
            if row is None:
                features = features or views(self.sequences[:n])
                row = self.fit(name, kernels_, p, n, features)
            weights = " ".join(
                "-" if row[f"weight_{v}"] is None else f"{row[f'weight_{v}']:.2g}" for v in NAMES
            )
            print(
                f"n {n:6d}  {name:20s} C {row['C']:7.4g}  AUC {row['auc']:.4f}  (new sequences "
                f"{row['auc_new']:.4f})  "
                f"gap {row['gap']:.1e}  SV {row['support_vectors']:6d}  {row['seconds']:7.1f} s  weights "
                f"{weights}",
                flush=True,
            )

    def fit(self, name: str, kernels_: list, p: float, n: int, features: dict) -> dict:
        C = self.choose_C(name, kernels_, p, n)["C"]
        started = time.perf_counter()
        clf = self.estimator(kernels_, p, self.args.tol, f"fit {name} {n}", n, C=C).fit(
            features, self.labels[:n]
        )
        seconds = time.perf_counter() - started
        f = clf.decision_function(self.test)
        weights = dict(zip((kernel.view for kernel in kernels_), clf.kernel_weights_, strict=True))
        if len(kernels_) > 1:
            clf.save(self.model_path(p, n))
        return self.results.add(
            model=name,
            n=n,
            p=p,
            C=C,
            auc=macro_auc(self.y_test, f),
            auc_new=macro_auc(self.y_test[self.new], f[self.new]),
            gap=clf.duality_gap_,
            support_vectors=len(clf.support_),
            rounds=clf.n_iter_,
            seconds=round(seconds, 2),
            **{f"weight_{view}": float(weight) for view, weight in weights.items()},
        )

    def model_path(self, p: float, n: int) -> Path:
        return self.args.out / f"model_p{name_of(p).replace('/', '-')}_n{n}.raymkl"


# -- tables and pictures ---------------------------------------------------------------------------


def report(study: Study, sizes: list[int]) -> None:
    """Best single kernel beside the sums, and the single kernels beside the published figures."""
    for n in sizes:
        mixed = max(
            (row for row in study.results.where(n=n) if not row["model"].startswith("only")),
            key=lambda row: row["auc"],
        )
        single = study.results.find(model=study.best_single(n)[0], n=n)
        print(
            f"n = {n}: best of the norms {mixed['model']} {mixed['auc']:.4f}, best single kernel "
            f"{single['model'][5:]} {single['auc']:.4f}"
        )
    if not study.args.demo:
        n = min(sizes, key=lambda size: abs(size - 2000))
        ours = {name: row["auc"] for name in NAMES if (row := study.results.find(model=f"only {name}", n=n))}
        told = {name: PUBLISHED[2_000, f"only {name}"] / 100 for name in ours}
        print(
            f"single kernels, n = {n}: "
            + ", ".join(f"{name} {auc:.2f} (published {told[name]:.2f})" for name, auc in ours.items())
        )
        print(WHAT_DIFFERS)
    edges = [
        f"{row['model']}, n = {row['n']} ({row['at_edge']})"
        for row in study.chosen.rows.values()
        if row["at_edge"] != "no"
    ]
    if edges:
        print(f"the best C was at the edge of the grid for: {'; '.join(edges)}")


def standard_error(auc: float, positive: int, negative: int) -> float:
    """Of an area under the ROC curve, by the numbers of both classes (Hanley, McNeil, 1982)."""
    above, below = auc / (2 - auc) - auc**2, 2 * auc**2 / (1 + auc) - auc**2
    variance = auc * (1 - auc) + (positive - 1) * above + (negative - 1) * below
    return float(np.sqrt(variance / (positive * negative)))


def summary(study: Study, sizes: list[int], path: Path) -> None:
    """A row per n and model, beside the published figures."""
    path.unlink(missing_ok=True)
    columns = ["auc", "standard_error", "auc_new", "C", "gap", "seconds", "published"]
    table = Results(path, ["n", "method"], columns)
    counts = int((study.y_test > 0).sum()), int((study.y_test <= 0).sum())
    for n in sizes:
        for row in study.results.where(n=n):
            mixed = "UNIF, p=2" if row["p"] == 2 else f"MKL, p={name_of(row['p'])}"
            method = row["model"] if row["model"].startswith("only") else mixed
            table.add(
                n=n,
                method=method,
                auc=round(100 * row["auc"], 3),
                standard_error=round(100 * standard_error(row["auc"], *counts), 3),
                auc_new=round(100 * row["auc_new"], 3),
                published=None if study.args.demo else PUBLISHED.get((n, method)),
                **{name: row[name] for name in ("C", "gap", "seconds")},
            )
    stamp(
        path,
        f"promoters, five views: AUC on {len(study.y_test)} test windows in per cent, seconds of the fit",
        f"auc_new: without {int((~study.new).sum())} test windows that also are in training or development",
        "standard_error: of the test windows, as if models had different ones; one choice of training "
        f"windows by n, seed {study.args.seed}",
        f"engine {study.args.engine} from {LARGE} windows on, local below; relative gap {study.args.tol:g}",
        "made-up sequences" if study.args.demo else "published: on other, longer windows",
    )
    print(f"wrote {path}")


def weights_table(study: Study, path: Path) -> list[dict]:
    """Weights of the five kernels, scaled to sum to one, for every norm and n."""
    path.unlink(missing_ok=True)
    table = Results(path, ["model", "n"], NAMES)
    for row in study.results.rows.values():
        if not row["model"].startswith("only"):
            raw = np.array([row[f"weight_{name}"] for name in NAMES], float)
            table.add(
                model=row["model"],
                n=row["n"],
                **dict(zip(NAMES, np.round(raw / raw.sum(), 6).tolist(), strict=True)),
            )
    print(f"wrote {path}")
    return list(table.rows.values())


def main():
    args = options()
    if not args.demo and not args.data:
        print(NO_DATA, file=sys.stderr)
        sys.exit(2)
    if args.demo:
        print("made-up sequences with motifs: the figures say nothing about promoters")
    parts = made_up(args.seed) if args.demo else read(args.data)
    data = "demo" if args.demo else os.path.basename(args.data)
    same_settings(
        args.out, "tss", {"data": data, "seed": args.seed, "tol": args.tol, "C": args.C, "tune": args.tune}
    )
    study = Study(args, parts)
    total = len(study.labels)
    sizes = (
        [args.n]
        if args.n
        else args.sizes
        or ([150, 400] if args.demo else [1000] if args.quick else [1000, 2000, 5000, 10_000, 20_000, total])
    )
    sizes = sorted({min(n, total) for n in sizes})
    print(
        f"{study.n_train} training, {total - study.n_train} development, {len(study.y_test)} test windows",
        end=" ",
    )
    print(f"({int((~study.new).sum())} of them also in training or development)", *machine(), sep="\n")
    for n in sizes:
        study.run(n)
    report(study, sizes)
    summary(study, sizes, args.out / "summary.csv")
    table = weights_table(study, args.out / "weights.csv")
    single = {n: study.results.find(model=study.best_single(n)[0], n=n)["auc"] for n in sizes}
    plot(
        args.out / "auc.png",
        lambda axes: draw_auc(
            [row for row in study.results.rows.values() if row["n"] in sizes], single, axes
        ),
        width=7.0,
    )
    plot(args.out / "weights.png", lambda axes: draw_weights(table, axes), width=8.0)
    draw_positions(
        parts["test"],
        args.out / "positions.png",
        study.model_path(min(args.p, key=lambda p: abs(p - 4 / 3)), sizes[-1]),
    )


if __name__ == "__main__":
    main()
