"""Clusters with a kernel machine each (clustering-induced kernel learning, CIK): the paper's tables and
figure, measured again.

    python examples/clustered.py                                                  svmguide1, mushrooms,
                                                                                  pendigits, phishing; five
                                                                                  repeats
    python examples/clustered.py --data svmguide1.npz mushrooms.npz --quick --repeats 2     few rows and
    iterations, a minute
    python examples/clustered.py --data susy.parquet --rows 100000                any set: a table with a
    column label (or y)

Files hold arrays X, y and perhaps X_test, y_test; sets without a file are looked for in . and data and
../shared/data, and without any the study runs on generated sets. Test rows are the official ones, or a random
fifth; columns have spread one on training rows; phishing is one-hot. Writes into --out:

    accuracy.csv   data, method, mean, std (of the accuracy, per cent), seconds (of a fit), clusters, p_value
                   (paired t-test against CIK), published, published_seconds (Tables 2 and 3)
    clusters.csv   data, method, nmi, rand, purity, davies_bouldin, dunn, clusters, and the same as published
                   (Tables 1 and 4)
    regions.png    figure 1: a line per cluster, and one machine beside it
    scales.png     learned scales where two columns of twelve are useful
    runs.csv, groups.csv, chosen_C.csv: every single run; the next run with the same --out skips what is there

| method | here |
|---|---|
| CIK | `ClusteredMKLClassifier` |
| DPM then machines | the same with label_weight=0: clusters first, then machines with the passes of CIK |
| random features | one machine with one width for all rows: n_clusters=1, learn_scales=False |
| SVC | scikit-learn's SVM with one Gaussian, gamma="scale" |
| BEMKL | `raymkl.baselines.BEMKL`: five Gaussians, a linear and a quadratic kernel; 1,500 training rows |
| UFO-MKL | `StochasticMKLClassifier` over the same kernels |
| BaNK | published figures alone |

C by cross-validation over powers of two (BEMKL has none), on training rows alone, 2,000 of them at most: once
for sets with an official test part, whose training rows are the same in all repeats, otherwise in every
repeat anew. A repeat changes the seed and, without an official part, the split.
"""

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from clustered_data import (
    DEFAULT_SETS,
    MEASURES,
    DataSet,
    found,
    generated,
    load,
    measures,
    section41,
)
from clustered_report import accuracy_table, clusters_table, findings, regions, scales
from resumable import Results, same_settings
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from raymkl import ClusteredMKLClassifier, DirichletProcessMixture, StochasticMKLClassifier, kernels
from raymkl.baselines import BEMKL

METHODS = ("CIK", "DPM then machines", "random features", "SVC", "BEMKL", "UFO-MKL")
# Rows that methods get at most whose cost grows faster than the number of rows.
BEMKL_ROWS, SVC_ROWS, UFO_ROWS = 1_500, 20_000, 20_000
# Passes of the machines in an iteration of CIK, the default of `ClusteredMKLClassifier`.
EPOCHS = 3
# NMI of a single drawing of ten Gaussians says little.
SYNTHETIC_REPEATS = 5


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument(
        "--data",
        metavar="FILE",
        nargs="+",
        help=f"sets, .npz or .parquet (default: {', '.join(DEFAULT_SETS)}, if found)",
    )
    parse.add_argument("--repeats", type=int, default=5, help="seeds or splits (default: %(default)s)")
    parse.add_argument(
        "--methods",
        nargs="+",
        choices=METHODS,
        default=METHODS,
        metavar="METHOD",
        help="some of the six methods",
    )
    parse.add_argument(
        "--rows", type=int, help="training rows of a set at most (default: all, 1000 with --quick)"
    )
    parse.add_argument(
        "--engine", choices=["local", "ray", "auto"], default="local", help="of CIK and its relatives"
    )
    parse.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parse.add_argument("--quick", action="store_true", help="few rows and iterations, C fixed")
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("clustered"),
        help="results go here (default: %(default)s)",
    )
    args = parse.parse_args()
    if args.repeats < 1 or (args.rows is not None and args.rows < 50):
        parse.error(f"--repeats must be 1 or more and --rows 50 or more, got {args.repeats} and {args.rows}")
    return args


@dataclass(frozen=True)
class Settings:
    """Sizes of a run, the full one or a quick one."""

    features: int = 384  # as in the paper
    iterations: int = 20
    final_epochs: int = 20
    bemkl_rows: int = BEMKL_ROWS
    bemkl_sweeps: int = 200
    ufo_epochs: int = 50
    test_rows: int | None = None
    synthetic_rows: int = 1_000
    C: tuple[float, ...] = tuple(2.0**e for e in range(-4, 9, 2))
    folds: int = 3
    tune_rows: int = 2_000


FULL = Settings()
QUICK = Settings(
    features=128,
    iterations=5,
    final_epochs=8,
    bemkl_rows=300,
    bemkl_sweeps=50,
    ufo_epochs=10,
    test_rows=2_000,
)
# What --quick takes in place of a search.
FIXED_C = {"CIK": 10.0, "DPM then machines": 10.0, "random features": 10.0, "SVC": 10.0, "UFO-MKL": 1.0}


def bank(d: int) -> list:
    """Kernels of BEMKL and UFO-MKL for d columns of spread one; the paper does not name its own."""
    return [
        *kernels.rbf([2.0**e / d for e in range(-4, 5, 2)]),
        kernels.Linear(),
        kernels.Polynomial(degree=2, coef0=1.0),
    ]


class Study:
    """Runs of methods on sets, kept in files.

    Parameters
    ----------
    args : of the command line. settings : sizes.
    """

    def __init__(self, args, settings: Settings):
        self.args, self.settings = args, settings
        self.rows = args.rows or (1_000 if args.quick else None)
        key = ["data", "method", "repeat"]
        self.runs = Results(args.out / "runs.csv", key, ["accuracy", "seconds", "clusters", "C", "rows"])
        self.groups = Results(args.out / "groups.csv", key, [*MEASURES, "clusters"])
        self.chosen = Results(args.out / "chosen_C.csv", key, ["C", "accuracy", "seconds"])

    # -- one run -----------------------------------------------------------------------------------

    def model(self, method: str, d: int, seed: int, C: float | None, tuning: bool = False) -> Any:
        """An estimator that is not fitted. tuning : with fewer iterations, to compare values of C."""
        s = self.settings
        if method == "SVC":
            return SVC(C=C, gamma="scale", cache_size=500)
        if method == "BEMKL":
            return BEMKL(bank(d), normalize="spherical", max_iter=s.bemkl_sweeps)
        if method == "UFO-MKL":
            epochs = min(s.ufo_epochs, 20) if tuning else s.ufo_epochs
            return StochasticMKLClassifier(
                bank(d),
                C=C,
                beta=1e-3,
                normalize="spherical",
                max_iter=epochs,
                engine="local",
                random_state=seed,
            )
        iterations = 5 if tuning else s.iterations
        # Machines that come after the clusters are trained once and not in every iteration: they get the
        # passes of all iterations then, so that the two differ by what labels say about clusters and not by
        # the length of their training.
        after = {"label_weight": 0.0, "epochs": EPOCHS * iterations}
        more = {"DPM then machines": after, "random features": {"n_clusters": 1, "learn_scales": False}}.get(
            method, {}
        )
        return ClusteredMKLClassifier(
            C=C,
            n_features=128 if tuning else s.features,
            max_iter=iterations,
            final_epochs=8 if tuning else s.final_epochs,
            engine="local" if tuning else self.args.engine,
            random_state=seed,
            **more,
        )

    def choose_C(self, data: DataSet, method: str, repeat: int, X: np.ndarray, y: np.ndarray) -> float | None:
        """The C of a method by cross-validation on training rows."""
        if method == "BEMKL":
            return None
        if self.args.quick:
            return FIXED_C[method]
        repeat = 0 if data.official else repeat
        row = self.chosen.find(data=data.name, method=method, repeat=repeat)
        if row is None:
            s, started = self.settings, time.perf_counter()
            X, y = X[: s.tune_rows], y[: s.tune_rows]  # rows come in random order
            folds = StratifiedKFold(s.folds, shuffle=True, random_state=self.args.seed + repeat)
            scores = [
                np.mean(
                    cross_val_score(
                        self.model(method, X.shape[1], self.args.seed, C, tuning=True), X, y, cv=folds
                    )
                )
                for C in s.C
            ]
            best = int(np.argmax(scores))  # of equals the smallest, the smoothest machine
            seconds = round(time.perf_counter() - started, 2)
            row = self.chosen.add(
                data=data.name,
                method=method,
                repeat=repeat,
                C=s.C[best],
                accuracy=100 * scores[best],
                seconds=seconds,
            )
        return row["C"]

    def run(self, data: DataSet) -> None:
        """All methods and repeats on a set; those in the files already are only shown."""
        for repeat in range(self.args.repeats):
            seed = self.args.seed + repeat
            rows = data.split(seed, self.rows, self.settings.test_rows)
            for method in self.args.methods:
                row = self.runs.find(data=data.name, method=method, repeat=repeat)
                if row is None:
                    row = self.fit(data, method, repeat, *rows)
                C = "" if row["C"] is None else f"C {row['C']:g}"
                print(
                    f"{data.name:16s} {method:18s} {repeat}  {row['accuracy']:6.2f} %  {row['seconds']:7.2f} "
                    f"s  {C}",
                    flush=True,
                )
            if self.groups.find(data=data.name, method="DPM", repeat=repeat) is None:
                mixture = DirichletProcessMixture(engine=self.args.engine, random_state=seed).fit(rows[0])
                self.groups.add(
                    data=data.name, method="DPM", repeat=repeat, **measures(rows[0], mixture.labels_)
                )

    def fit(
        self,
        data: DataSet,
        method: str,
        repeat: int,
        X: np.ndarray,
        y: np.ndarray,
        T: np.ndarray,
        t: np.ndarray,
    ) -> dict:
        C = self.choose_C(data, method, repeat, X, y)
        most = {"BEMKL": self.settings.bemkl_rows, "SVC": SVC_ROWS, "UFO-MKL": UFO_ROWS}.get(method)
        X, y = X[:most], y[:most]
        model = self.model(method, X.shape[1], self.args.seed + repeat, C)
        started = time.perf_counter()
        model.fit(X, y)
        seconds = round(time.perf_counter() - started, 3)
        if method == "CIK":
            self.groups.add(data=data.name, method="CIK", repeat=repeat, **measures(X, model.labels_))
        accuracy = 100 * float(np.mean(model.predict(T) == t))
        clusters = getattr(model, "n_clusters_", None)
        return self.runs.add(
            data=data.name,
            method=method,
            repeat=repeat,
            accuracy=accuracy,
            seconds=seconds,
            clusters=clusters,
            C=C,
            rows=len(y),
        )

    def synthetic(self) -> None:
        """Section 4.1: clusters with and without labels, where the true ones are known."""
        for repeat in range(max(self.args.repeats, SYNTHETIC_REPEATS)):
            seed = self.args.seed + repeat
            X, y, z = section41(self.settings.synthetic_rows, seed)
            common = {"engine": "local", "random_state": seed}
            for method, model in (
                ("CIK", ClusteredMKLClassifier(n_features=64, max_iter=10, final_epochs=0, **common)),
                ("DPM", DirichletProcessMixture(**common)),
            ):
                if self.groups.find(data="synthetic", method=method, repeat=repeat) is None:
                    model.fit(X, y)  # the mixture does not look at y
                    self.groups.add(
                        data="synthetic", method=method, repeat=repeat, **measures(X, model.labels_, z)
                    )


# -- the whole study ------------------------------------------------------------------------------


def notes_of(study: Study, sets: list[DataSet]) -> list[str]:
    """Lines about rows, seeds and settings for the head of the tables."""
    args, s = study.args, study.settings
    if args.quick:
        choice = "C fixed: " + ", ".join(f"{method} {C:g}" for method, C in FIXED_C.items())
    else:
        choice = (
            f"C by {s.folds}-fold cross-validation, {s.C[0]:g} to {s.C[-1]:g}, on {s.tune_rows} "
            "training rows at most"
        )
    sizes = (
        f"{data.name} {data.X.shape[0]} x {data.X.shape[1]}{' and a test part' if data.official else ''}"
        for data in sets
    )
    return [
        f"sets: {', '.join(sizes)}; test rows: the official part or a "
        f"fifth{', 2000 at most' if args.quick else ''}",
        f"{args.repeats} repeats, seeds {args.seed} to {args.seed + args.repeats - 1}; training rows at "
        f"most: {study.rows or 'all'}",
        f"CIK: {s.features} frequencies, {s.iterations} iterations at most; {choice}",
        f"BEMKL: {s.bemkl_rows} training rows at most, drawn by seed, {s.bemkl_sweeps} sweeps; SVC and "
        f"UFO-MKL: {SVC_ROWS} rows at most",
    ]


def sets_of(args) -> list[DataSet]:
    """The sets that were asked for, those that are found, or generated ones."""
    paths = args.data or [path for name in DEFAULT_SETS if (path := found(name))]
    if not paths:
        print(
            f"no data found ({', '.join(DEFAULT_SETS)}; pass --data FILE.npz ...): generated sets, for which "
            "there are no published figures"
        )
        return generated(args.seed)
    sets = [load(path) for path in paths]
    if len({data.name for data in sets}) < len(sets):
        raise SystemExit("--data names the same set twice")
    return sets


def main() -> None:
    args = options()
    warnings.simplefilter(
        "ignore", ConvergenceWarning
    )  # a study of accuracies: a last digit of a bound or gap is not waited for
    sets, settings = sets_of(args), QUICK if args.quick else FULL
    same_settings(args.out, "clustered", {"seed": args.seed, "quick": args.quick, "rows": args.rows})
    study = Study(args, settings)
    study.synthetic()
    for data in sets:
        study.run(data)
    accuracy = accuracy_table(study, sets, notes := notes_of(study, sets))
    clusters = clusters_table(study, sets, notes)
    regions(args.out / "regions.png", args.seed)
    scales(args.out / "scales.png", args.seed)
    findings(accuracy, clusters, sets)


if __name__ == "__main__":
    main()
