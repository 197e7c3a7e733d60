"""Which norm p for how many relevant kernels?
===========================================

Two Gaussians whose means differ in some of 50 features, one linear kernel per feature.

The classes lie at +mu and -mu with unit covariance; mu has length 1.75 and is spread evenly over 1, 4, 9, 18,
28 or all 50 features, so that the best possible error is 0.040 everywhere, and what changes is how sparse the
best hypothesis is. For every p, a model learns from 50 examples of each of several data sets (kernels
normalised to variance 1), C is chosen on 1,000 other examples, and the error is that on 1,000 more. Writes
into --out: sparsity_toy.csv, with the mean error over the data sets, their standard deviation, the standard
error of the mean, and what was published; sparsity_toy_runs.csv, every single error, which the next run with
the same --out continues; and sparsity_toy.png: the errors, and the p that did best beside the p that the
generalisation bound asks for when it is told the best hypothesis.

Run it::

    python examples/sparsity_toy.py                 30 data sets, 13 norms, 9 values of C
    python examples/sparsity_toy.py --sets 250      as many as in the thesis that the study is from
    python examples/sparsity_toy.py --quick         4 data sets, 6 norms, 4 values of C

Kloft: lp-norm multiple kernel learning. Thesis, TU Berlin, 2011, section 5.2.
"""

import argparse
import multiprocessing
import os
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import Table, cores
from resumable import Results, name_of, same_settings
from scipy.stats import norm as normal
from sklearn.exceptions import ConvergenceWarning

from raymkl import MKLClassifier, diagnostics, kernels

FEATURES, DISTANCE, ROWS, MORE_ROWS = 50, 1.75, 50, 1_000
RELEVANT = (1, 4, 9, 18, 28, 50)
NORMS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 4 / 3, 1.5, 1.75, 2.0, 3.0, 4.0, np.inf)
QUICK_NORMS = (1.0, 1.1, 4 / 3, 2.0, 4.0, np.inf)
CHOICES_OF_C = 10.0 ** np.arange(-4.0, 0.1, 0.5)
QUICK_CHOICES_OF_C = 10.0 ** np.array([-4.0, -3.0, -1.0, -0.5])
# Errors that the thesis says in words, by relevant features and p; the others are only drawn there.
PUBLISHED = {(1, 1.0): 0.04, (1, np.inf): 0.43}
BANK = [kernels.Linear(view=[feature]) for feature in range(FEATURES)]


def options():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--quick", action="store_true", help="few data sets, norms and values of C")
    parse.add_argument(
        "--sets", type=int, help="data sets for each number of relevant features (default: 30; quick: 4)"
    )
    parse.add_argument(
        "--jobs", type=int, default=cores(), help="processes (default: one per core, %(default)s)"
    )
    parse.add_argument("--seed", type=int, default=0, help="of the data (default: %(default)s)")
    parse.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("sparsity_toy"),
        help="results go here (default: %(default)s)",
    )
    args = parse.parse_args()
    args.sets = (4 if args.quick else 30) if args.sets is None else args.sets
    if args.sets < 2:
        parse.error(f"--sets must be 2 or more for a standard deviation, got {args.sets}")
    if args.jobs < 1:
        parse.error(f"--jobs must be 1 or more, got {args.jobs}")
    return args


def hypothesis(relevant: int) -> np.ndarray:
    """mu, (50,): the direction of the best decision."""
    mu = np.zeros(FEATURES)
    mu[:relevant] = DISTANCE / np.sqrt(relevant)
    return mu


def draw(n: int, relevant: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """n examples (n, 50) of both classes in turn, and their labels."""
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    return rng.normal(size=(n, FEATURES)) + np.outer(y, hypothesis(relevant)), y


def errors(relevant: int, seed: int, norms: tuple, choices: np.ndarray) -> list[float]:
    """Test error of every norm on one data set, each with its best C."""
    warnings.simplefilter(
        "ignore", ConvergenceWarning
    )  # a last digit of a gap does not show in errors of a thousand rows
    rng = np.random.default_rng([seed, relevant])
    (X, y), validation, test = (draw(n, relevant, rng) for n in (ROWS, MORE_ROWS, MORE_ROWS))
    found = []
    for p in norms:
        best = max(models(X, y, p, choices), key=lambda model: model.score(*validation))
        found.append(1 - best.score(*test))
    return found


def models(X: np.ndarray, y: np.ndarray, p: float, choices: np.ndarray) -> Iterator[MKLClassifier]:
    """Fitted models for growing C, as long as C makes a difference: with no dual variable at its bound, all
    larger ones give the same.
    """
    for C in sorted(choices):
        model = MKLClassifier(
            kernels=BANK, C=C, p=p, normalize="multiplicative", tol=1e-3, engine="local"
        ).fit(X, y)
        yield model
        if np.abs(model.dual_coef_).max() < 0.999 * C:
            return


def measure(args, done: Results, norms: tuple, choices: np.ndarray) -> None:
    """Errors of all data sets that are not there yet, a data set of every kind before the next one."""
    tasks = [
        (relevant, number)
        for number in range(args.sets)
        for relevant in RELEVANT
        if any(done.find(relevant=relevant, set=number, p=p) is None for p in norms)
    ]
    if not tasks:
        return
    relevant, numbers = zip(*tasks, strict=True)
    call = (relevant, [args.seed + number for number in numbers], repeat(norms), repeat(choices))
    if args.jobs == 1:
        _keep(done, tasks, norms, map(errors, *call))
        return
    # One thread per process: the matrices are small, and threads of several processes would only wait for
    # each other.
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    with ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        _keep(done, tasks, norms, pool.map(errors, *call))


def _keep(done: Results, tasks: list[tuple[int, int]], norms: tuple, found: Iterable[list[float]]) -> None:
    for (relevant, number), errors_of_set in zip(tasks, found, strict=True):
        for p, error in zip(norms, errors_of_set, strict=True):
            if done.find(relevant=relevant, set=number, p=p) is None:
                done.add(relevant=relevant, set=number, p=p, error=error)


def draw_errors(table: Table, norms: tuple, axes) -> None:
    """Error against the number of relevant features, a line per norm."""
    for p in [p for p in norms if p in QUICK_NORMS]:
        mean, standard_error = (table.column(name, p=p) for name in ("error", "standard_error"))
        axes.errorbar(
            range(len(RELEVANT)),
            mean,
            standard_error,
            marker="o",
            capsize=3,
            label=f"p = {name_of(p)}",
        )
    axes.axhline(table.rows[0]["bayes"], color="black", linestyle=":", label="best possible")
    axes.set_xticks(range(len(RELEVANT)), [str(relevant) for relevant in RELEVANT])
    axes.set(xlabel="relevant features of 50", ylabel="test error", title="Error, mean and standard error")
    axes.legend(fontsize=8)


def draw_norms(table: Table, axes) -> None:
    """The best p of the experiment beside that of the bound, as 1/p so that infinity has a place."""
    bounds = [diagnostics.bound_factor(hypothesis(relevant)) for relevant in RELEVANT]
    place = np.arange(len(RELEVANT))
    near = np.array([1 / bound.near_best for bound in bounds])
    axes.fill_between(place, near[:, 0], near[:, 1], alpha=0.25, label="bound within 1 % of its minimum")
    axes.plot(place, [1 / bound.best_p for bound in bounds], marker="s", label="minimum of the bound")
    best = []
    for relevant in RELEVANT:
        mean, p = table.column("error", relevant=relevant), table.column("p", relevant=relevant)
        best.append(1 / p[int(np.argmin(mean))])
    axes.plot(place, best, marker="o", linestyle="--", color="black", label="best in the experiment")
    ticks = (1.0, 1.2, 4 / 3, 2.0, 4.0, np.inf)
    axes.set_yticks([1 / p for p in ticks], [f"{p:.3g}" for p in ticks])
    axes.invert_yaxis()
    axes.set_xticks(place, [str(relevant) for relevant in RELEVANT])
    axes.set(xlabel="relevant features of 50", ylabel="p", title="Which p")
    axes.legend(fontsize=8)


def main():
    args = options()
    norms, choices = (QUICK_NORMS, QUICK_CHOICES_OF_C) if args.quick else (NORMS, CHOICES_OF_C)
    same_settings(args.out, "sparsity_toy", {"seed": args.seed, "quick": args.quick})
    done = Results(args.out / "sparsity_toy_runs.csv", ("relevant", "set", "p"), ("error",))
    measure(args, done, norms, choices)
    table = Table(
        args.out / "sparsity_toy.csv",
        "test error of lp-norm MKL with one linear kernel per feature",
        {
            "relevant": "d",
            "p": ".4g",
            "error": ".4f",
            "std": ".4f",
            "bayes": ".4f",
            "sets": "d",
            "standard_error": ".4f",
            "published": ".2f",
        },
        [
            f"data: two Gaussians in {FEATURES} dimensions at distance {2 * DISTANCE}, {ROWS} training rows, "
            f"seed {args.seed}",
            f"C from {len(choices)} values on {MORE_ROWS} validation rows; std is over {args.sets} data "
            "sets, standard_error that of the mean",
        ],
    )
    bayes = float(normal.cdf(-DISTANCE))
    for relevant in RELEVANT:
        for p in norms:
            own = [done.find(relevant=relevant, set=number, p=p)["error"] for number in range(args.sets)]
            std = float(np.std(own, ddof=1))
            table.add(
                relevant=relevant,
                p=p,
                error=round(float(np.mean(own)), 6),
                std=round(std, 6),
                bayes=round(bayes, 6),
                sets=args.sets,
                standard_error=round(std / np.sqrt(args.sets), 6),
                published=PUBLISHED.get((relevant, p)),
            )
        bound = diagnostics.bound_factor(hypothesis(relevant))
        low, high = bound.near_best
        table.note(
            f"{relevant} relevant: the bound is least at p = {bound.best_p:.3g}, within 1 % for p from "
            f"{low:.3g} to {high:.3g}"
        )
    picture = args.out / "sparsity_toy.png"
    plot(
        picture,
        lambda left, right: (draw_errors(table, norms, left), draw_norms(table, right)),
        panels=2,
    )


if __name__ == "__main__":
    main()
