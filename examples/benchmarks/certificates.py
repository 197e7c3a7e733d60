"""Is the reported duality gap the true one? Models over many settings, their certificates recomputed in
float64.

A model reports how far it is at most from the optimum. Here that is computed again from its public arrays and
the kernels' own formulas (`recomputed.py`), and compared. Settings differ in one thing at a time from 41
Gaussian widths, p = 4/3, C = 1, tol = 1e-3: norms, C, tol, other kernels, losses, several classes,
normalisations, rows far from the origin, precisions; some combinations that are hard for float32 come on top.
A row per setting: reported and true gap, their difference in units of tol, seconds of the fit, and whether it
holds:

    |reported - true| <= tol / 10 + 1e-7,    and a model that calls itself converged has a true gap of at most tol (and that slack)

Where there are several classes the row is that of the class whose gap is off most. The last line counts what
does not hold.

    python examples/benchmarks/certificates.py
    python examples/benchmarks/certificates.py --data letter.npz spambase.npz --rows 2000
    python examples/benchmarks/certificates.py --only 'norms|strings'
    python examples/benchmarks/certificates.py --quick
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from charts import plot
from common import Table, parser, timed
from data_sets import DataSet, bundled, described, gaussian_widths, generated, read_data_set
from recomputed import true_certificates
from sklearn.exceptions import ConvergenceWarning

from raymkl import MKLClassifier, MKLOneClass, MKLRegressor, kernels
from raymkl.datasets import make_motif_sequences

NORMS = (1.0, 8 / 7, 4 / 3, 2.0, 3.0, 10.0, np.inf)
# (p, C, tol): many and large dual variables, weights that add up to much, and tolerances near what float32
# can tell.
HARD = ((4 / 3, 100.0, 1e-4), (8 / 7, 10.0, 1e-5), (2.0, 1.0, 1e-6), (5.0, 10.0, 1e-4), (10.0, 1.0, 1e-4))
BOTH_KINDS = (4 / 3, 3.0)  # below p = 2 weights compete, above it the weak kernels get the large weights
# Left to itself ("auto") a small problem uses float64, where a certificate is easily true.
NARROW = {"dtype": "float32"}
EPSILON = 0.05
COLUMNS = {
    "data": "<14",
    "rows": "d",
    "columns": "d",
    "setting": "<34",
    "p": ".3g",
    "C": "g",
    "tol": ".0e",
    "dtype": "<8",
    "reported": ".2e",
    "true": ".2e",
    "apart / tol": ".2g",
    "outside": ".0e",
    "seconds": ".2f",
    "converged": "<9",
    "holds": "<5",
}


@dataclass(frozen=True)
class Setting:
    """A problem and how to solve it.

    data, title : for the table. params : of the estimator, whose defaults hold otherwise.
    """

    data: str
    title: str
    X: Any
    y: np.ndarray
    bank: list
    params: dict
    estimator: type = MKLClassifier

    def model(self) -> MKLClassifier | MKLRegressor | MKLOneClass:
        own = {"epsilon": EPSILON, "delta": 0.2, "quantile": 0.8} if self.estimator is MKLRegressor else {}
        return self.estimator(**{"kernels": self.bank, "engine": "local"} | own | self.params)


# -- settings --------------------------------------------------------------------------------------


def grid() -> Iterator[tuple[str, dict]]:
    """Settings of one problem with Gaussian kernels: one thing changes at a time, then some combinations."""
    for p in NORMS:
        yield "norms", {"p": p}
    for C in (0.01, 0.1, 10.0, 100.0):
        yield "C", {"C": C}
    for tol in (1e-4, 1e-5, 1e-6):
        yield "tol", {"tol": tol}
    for p, C, tol in HARD:
        yield "hard for float32", NARROW | {"p": p, "C": C, "tol": tol}
    for p in BOTH_KINDS:
        yield "multiplicative", NARROW | {"p": p, "normalize": "multiplicative"}
        for dtype in ("float32", "float64"):
            yield dtype, {"p": p, "dtype": dtype}


def other_banks(columns: int) -> dict[str, list]:
    """Kernels beside Gaussian ones, by what is hard about them."""
    polynomials = [kernels.Polynomial(degree=degree, gamma=1 / columns, coef0=1.0) for degree in (1, 2, 3, 5)]
    return {
        "Laplacian": [kernels.Laplacian(gamma=2.0**k / columns) for k in range(-8, 3)],
        "polynomial": polynomials,
        "linear beside tiny multiples": [scale * kernels.Linear() for scale in (1.0, 1e-3, 1e-6)],
        "all kinds": [
            *gaussian_widths(columns, 11),
            *polynomials,
            kernels.Laplacian(gamma=1 / columns),
            1e-3 * kernels.Linear(),
        ],
    }


def histograms(X: np.ndarray) -> np.ndarray:
    """Rows of non-negative parts that add up to one, for kernels of histograms."""
    parts = X - X.min(axis=0)
    return parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-12)


def settings_of(data: DataSet) -> Iterator[Setting]:
    """All settings of a table of numbers with labels."""
    original = data.y
    data = data.standardised().halves()
    name, X, y, bank = data.name, data.X, data.y, gaussian_widths(data.columns)
    for title, params in grid():
        yield Setting(name, title, X, y, bank, params)
    yield Setting(name, "far from the origin", X + 300.0, y, bank, NARROW | {"p": 3.0})
    chi2 = [kernels.Chi2(gamma=2.0**k * data.columns / 4) for k in range(-6, 5)]
    for p in BOTH_KINDS:
        params = NARROW | {"p": p}
        for title, others in other_banks(data.columns).items():
            yield Setting(name, title, X, y, others, params)
        yield Setting(
            name,
            "polynomial, spherical",
            X,
            y,
            other_banks(data.columns)["polynomial"],
            params | {"normalize": "spherical"},
        )
        yield Setting(name, "chi2 of histograms", histograms(X), y, chi2, params)
        for title, labels, loss_params, estimator in losses(X, y):
            yield Setting(name, title, X, labels, bank, params | loss_params, estimator)
        if len(np.unique(original)) > 2:
            yield Setting(name, "several classes", X, original, bank, params)
            yield Setting(
                name, "several classes, shared weights", X, original, bank, params | {"shared_weights": True}
            )


def losses(X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray, dict, type]]:
    """Every loss but the usual one, and regression with its usual one: title, labels, parameters,
    estimator.
    """
    numbers = X[:, 0] * X[:, 1] + 0.1 * y
    yield "regression", numbers, {}, MKLRegressor
    for C in (0.1, 10.0):
        for loss in ("squared_hinge", "logistic", "squared"):
            yield loss, y, {"loss": loss, "C": C}, MKLClassifier
        for loss in ("squared", "squared_epsilon_insensitive", "huber", "quantile"):
            yield f"regression, {loss}", numbers, {"loss": loss, "C": C}, MKLRegressor
    for nu in (0.1, 0.5):
        yield f"one class, nu = {nu}", np.ones(len(X)), {"nu": nu}, MKLOneClass


def string_settings(n: int, seed: int) -> Iterator[Setting]:
    """Sequences with motifs, compared by weighted-degree and spectrum kernels."""
    sequences, y = make_motif_sequences(n, length=60, noise=0.2, random_state=seed)
    bank = [
        *(kernels.WeightedDegree(degree=degree) for degree in (1, 3, 5, 8, 12)),
        *(kernels.Spectrum(k=k) for k in (2, 3)),
    ]
    for p in (4 / 3, 4.0):
        for normalize in (None, "spherical"):
            title = "strings" if normalize is None else f"strings, {normalize}"
            yield Setting("generated", title, sequences, y, bank, NARROW | {"p": p, "normalize": normalize})


def thinned(settings: list[Setting]) -> list[Setting]:
    """The last setting of every title (of every data set), which is the hardest."""
    return list({(setting.data, setting.title): setting for setting in settings}.values())


# -- measuring -------------------------------------------------------------------------------------


def measure(setting: Setting, max_iter: int) -> dict:
    """One row of the table. max_iter : rounds at most."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a column of the table says so
        seconds, model = timed(
            lambda: setting.model().set_params(max_iter=max_iter).fit(setting.X, setting.y)
        )
    reported, truth = np.ravel(model.duality_gap_), true_certificates(model, setting.X, setting.y)
    worst = int(np.argmax([abs(told - true.gap) for told, true in zip(reported, truth, strict=True)]))
    return {
        "data": setting.data,
        "rows": len(setting.y),
        "columns": setting.X.shape[1] if isinstance(setting.X, np.ndarray) else None,
        "setting": setting.title,
        "p": float(model.p),
        "C": model.C,
        "tol": model.tol,
        "dtype": model.dtype,
        "reported": float(reported[worst]),
        "true": truth[worst].gap,
        "apart / tol": abs(reported[worst] - truth[worst].gap) / model.tol,
        "outside": max(true.outside for true in truth),
        "seconds": seconds,
        "converged": bool(np.all(model.converged_)),
        "holds": all(
            true.agrees_with(told, model.tol, model.converged_)
            for told, true in zip(reported, truth, strict=True)
        ),
    }


def draw(table: Table, axes) -> None:
    """Reported against true gaps; those that hold lie on the line."""
    lowest = 1e-9  # of the picture: gaps below are round-off
    for holds, style, label in ((True, "o", "holds"), (False, "x", "does not hold")):
        points = [np.maximum(table.column(name, holds=holds), lowest) for name in ("true", "reported")]
        axes.plot(*points, style, label=f"{label} ({len(points[0])})", alpha=0.7)
    ends = (lowest, max(1e-2, *table.column("true"), *table.column("reported")))
    axes.plot(ends, ends, color="grey", linewidth=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="true gap",
        ylabel="reported gap",
        title="Reported against recomputed duality gap",
    )
    axes.grid(alpha=0.3)
    axes.legend()


def options():
    parse = parser(__doc__, any_data=True)
    parse.add_argument(
        "--rows", type=int, help="at most this many rows of each data set (default: 600; quick: 200)"
    )
    parse.add_argument(
        "--only", metavar="PATTERN", help="settings whose name contains this regular expression"
    )
    # A certificate must hold for a model that was stopped, too, and no setting should take minutes.
    parse.add_argument("--max-iter", type=int, default=50, help="rounds at most (default: %(default)s)")
    args = parse.parse_args()
    args.rows = args.rows or (200 if args.quick else 600)
    return args


def chosen(args) -> tuple[list[Setting], str]:
    """Settings to measure, and the names of the data."""
    if args.data:
        sets = [read_data_set(path) for path in args.data]
    else:
        made = generated(16, args.rows, classes=4, seed=args.seed)
        sets = [made] if args.quick else [*bundled(), made]
    settings = [setting for data in sets for setting in settings_of(data.sample(args.rows, args.seed))]
    if not args.data:
        settings += string_settings(min(args.rows, 400), args.seed)
    if args.quick:
        settings = thinned(settings)
    if args.only:
        settings = [setting for setting in settings if re.search(args.only, setting.title)]
    if not settings:
        raise SystemExit(f"--only {args.only}: no setting has such a name")
    return settings, described(sets) if args.data else f"{described(sets)}; generated sequences"


def main():
    args = options()
    settings, names = chosen(args)
    notes = [
        f"data: {names}; at most {args.rows} rows, columns standardised",
        f"{args.max_iter} rounds at most; outside: how far the dual point is from feasible",
    ]
    table = Table(args.out / "certificates.csv", "Reported against true duality gaps", COLUMNS, notes)
    for setting in settings:
        table.add(**measure(setting, args.max_iter))
    table.note(f"{table.column('holds').count(False)} of {len(table.rows)} certificates do not hold")
    plot(args.out / "certificates.png", lambda axes: draw(table, axes))


if __name__ == "__main__":
    main()
