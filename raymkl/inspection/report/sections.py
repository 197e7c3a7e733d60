"""Sections of the report that come from the model alone: summary, weights, convergence, support vectors,
settings, environment.

Each takes `Facts` and returns the HTML of its inside.
"""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ... import __version__
from ...engine.resources import usable_cpus
from .facts import Facts
from .markup import code, escape, figure, folded, number, pair, table
from .pictures import bars_of, curves, histogram, largest_weights, run_of, thin, weight_map

MOST_BARS = 30
MOST_TABLE_ROWS = 60
MOST_COLUMNS = 36
MOST_HEAT_ROWS = 60
MOST_SERIES = 8
AT_THE_END = ("seconds", "primal", "dual", "gap", "support_vectors")
READING = """<details><summary>How to read this</summary><ul>
<li><b>Weights.</b> The model adds up its kernels, each times its weight. With p = 1 few keep a weight, with
p = 2 all have the same;
weights depend on the scale of the kernels, so compare them between kernels that are normalised alike.</li>
<li><b>Contributions</b> are what a weight makes of an example: the part of the decision value that comes
from each kernel. A kernel with a
large weight and small contributions says the same about every example.</li>
<li><b>Duality gap.</b> The distance between the best solution found and a bound that no solution can pass,
relative to the former. It
certifies how close to the optimum the model is, whatever the data.</li>
<li><b>Support vectors</b> are the training rows that the model is made of. Dual variables at their bound
belong to rows inside the margin
or on its wrong side: many of them mean classes that overlap, or a small C.</li>
<li><b>Alignment</b> compares kernels with each other and with the labels. Nearly equal kernels share a
weight between them in ways that
mean little.</li></ul></details>"""
LIBRARIES = ("raymkl", "numpy", "scipy", "scikit-learn", "numba", "pyarrow", "ray", "cvxpy", "matplotlib")


def tile(value: Any, what: str, kind: str = "") -> str:
    """A number and what it is. kind : "good", "bad" or ""."""
    wide = " wide" if len(str(value)) > 11 else ""
    return f'<div class="tile{wide}"><b class="{kind}">{escape(value)}</b><span>{escape(what)}</span></div>'


def effective_number(weights: np.ndarray) -> float:
    """exp of the entropy of the shares: 1 when one kernel has all the weight, M when all have the same."""
    total = weights.sum()
    shares = weights[weights > 0] / total if total > 0 else np.empty(0)
    return float(np.exp(-np.sum(shares * np.log(shares)))) if len(shares) else 0.0


# -- summary ---------------------------------------------------------------------------------------


def summary(facts: Facts) -> str:
    model, gap = facts.model, float(np.max(facts.gaps))
    tol = getattr(model, "tol", None)
    used = int(
        np.count_nonzero(facts.weights.max(axis=0) > 1e-6 * max(facts.weights.max(initial=0.0), 1e-300))
    )
    tiles = [tile(facts.kind, "model")]
    if facts.classes:
        tiles.append(tile(number(len(facts.classes)), "classes"))
    tiles += [
        tile(number(facts.n_train), "training rows"),
        tile(f"{number(used)} of {number(facts.n_kernels)}", "kernels with weight"),
        tile(f"{number(facts.n_support)} ({facts.n_support / max(facts.n_train, 1):.0%})", facts.vectors),
    ]
    if getattr(model, "norm", None) is not None:
        tiles.append(tile(type(model.norm).__name__, "norm over kernels"))
    elif facts.p is not None:
        tiles.append(tile(number(facts.p), "block norm p"))
    if hasattr(model, "C"):
        tiles.append(tile(number(model.C), "C"))
    if np.isfinite(gap):
        tiles.append(
            tile(
                f"{gap:.2g}",
                "relative duality gap" if len(facts.gaps) == 1 else "largest relative duality gap",
            )
        )
    if hasattr(model, "converged_") and not facts.streamed:
        tiles.append(
            tile("yes" if facts.converged else "no", "converged", "good" if facts.converged else "bad")
        )
    if hasattr(model, "n_iter_"):
        tiles.append(tile(number(model.n_iter_), "epochs" if facts.stochastic else "rounds"))
    if facts.seconds is not None:
        tiles.append(tile(f"{facts.seconds:.3g} s", "training time"))
    words = ""
    if facts.streamed:
        words = (
            "<p>Rows came part by part (<code>partial_fit</code>) and were not kept, so that their loss is "
            "not known and there is no gap; "
            f"the optimum of the problem of all of them is at least {number(model.dual_objective_)}.</p>"
        )
    if np.isfinite(gap):
        words = "The optimum is not yet bracketed closely"
        if gap < 1:
            words = f"The objective is certified to be within {max(gap, 0.0) * 100:.2g} % of the optimum"
        if tol is not None and not facts.converged and hasattr(model, "converged_"):
            words += f"; that is short of tol = {tol:g}: raise max_iter or tol, or see the convergence below"
        words = f"<p>{escape(words)}.</p>"
    labels = ""
    if facts.classes:
        shown = ", ".join(map(str, facts.classes[:20])) + (
            f", … {len(facts.classes)} in all" if len(facts.classes) > 20 else ""
        )
        labels = f'<p class="soft">Classes: {escape(shown)}</p>'
    return f'<div class="tiles">{"".join(tiles)}</div>{words}{labels}{READING}'


# -- weights ---------------------------------------------------------------------------------------


def weights(facts: Facts) -> str:
    several = facts.row_names != [""]
    spread = [effective_number(row) for row in facts.weights]
    among = f"{min(spread):.1f}</b> to <b>{max(spread):.1f}" if several else f"{spread[0]:.1f}"
    words = (
        f"<p>The weights are spread as if over <b>{among}</b> equal kernels of {number(facts.n_kernels)}.</p>"
    )
    parts = [words, _weights_by_row(facts)] if several else [words]
    parts.append(_largest_weights(facts, several))
    if facts.n_kernels > MOST_BARS:
        parts.append(_all_weights(facts))
    return "".join([*parts, _weights_as_numbers(facts, several)])


def _weights_by_row(facts: Facts) -> str:
    """Weights per class, cluster or both."""
    cluster = "pattern" if hasattr(facts.model, "patterns_") else "cluster"
    what = cluster if facts.localized else "class"
    if np.ndim(facts.model.kernel_weights_) == 3:
        what = f"class and {cluster}"
    rows = facts.weights[:MOST_HEAT_ROWS]
    caption = f"Weight of each kernel, per {what}"
    if facts.n_kernels > MOST_COLUMNS:
        caption += f" ({MOST_COLUMNS} kernels with the largest weights)"
    if len(rows) < len(facts.weights):
        caption += f"; the first {len(rows)} of {len(facts.weights)}"
    drawn = weight_map(
        rows, facts.names, facts.row_names[: len(rows)], MOST_COLUMNS, f"kernel weights per {what}"
    )
    return figure(caption, drawn)


def _largest_weights(facts: Facts, several: bool) -> str:
    """The largest weights as bars; means where there are several rows of them."""
    what = "Mean weight over the rows above" if several else "Weight"
    shown = f"all {facts.n_kernels}"
    if facts.n_kernels > MOST_BARS:
        shown = f"the {MOST_BARS} largest of {number(facts.n_kernels)}"
    drawn = largest_weights(facts.weights.mean(axis=0), facts.names, MOST_BARS, "largest kernel weights")
    return figure(f"{what}: {shown}, largest first", drawn)


def _all_weights(facts: Facts) -> str:
    """All weights where bars are too many: by position, and what share the largest hold."""
    mean = facts.weights.mean(axis=0)
    ranked = np.sort(mean)[::-1]
    share = np.cumsum(ranked) / max(ranked.sum(), 1e-300)
    by_position = ("weight", np.arange(len(mean)), mean)
    by_rank = ("share", np.arange(1, len(mean) + 1), share)
    return pair(
        figure(
            "All weights, in the order of the list of kernels",
            curves([by_position], ("position in the list", "weight"), "kernel weights by position"),
        ),
        figure(
            "Share of the total weight that the largest kernels hold",
            curves([by_rank], ("kernels, largest first", "share"), "share of the largest kernel weights"),
        ),
    )


def _weights_as_numbers(facts: Facts, several: bool) -> str:
    listed = facts.order(MOST_TABLE_ROWS)
    if several and len(facts.row_names) <= 12:
        columns, values = facts.row_names, facts.weights
    else:
        columns, values = ["mean weight" if several else "weight"], facts.weights.mean(axis=0)[None]
    rows = [[int(m), code(facts.names[m]), *map(float, values[:, m])] for m in listed]
    title = "Weights as numbers" + (f" (the {len(listed)} largest)" if len(listed) < facts.n_kernels else "")
    return folded(title, table(["position", "kernel", *columns], rows))


# -- convergence -----------------------------------------------------------------------------------


def convergence(facts: Facts) -> str:
    if not facts.history:
        return '<p class="soft">The model holds no history of its training.</p>'
    runs = facts.runs()
    names = facts.heads if len(facts.heads) == len(runs) else [f"head {h}" for h in range(len(runs))]
    parts = [pair(_objectives(facts, len(runs)), _gaps(facts, runs, names))]
    if len(runs) > 1:
        rows = [
            [name, len(run), *(run[-1][key] for key in AT_THE_END)]
            for name, run in zip(names, runs, strict=True)
        ]
        heads = ["problem", "rounds", *(key.replace("_", " ") for key in AT_THE_END)]
        parts.append(folded("Each problem at its end", table(heads, rows)))
    cache = facts.history[-1]
    if cache.get("cache_capacity"):
        parts.append(
            '<p class="soft">Columns of kernel values in the cache at the end: '
            f"{number(cache.get('cached_columns', 0))} of "
            f"{number(cache['cache_capacity'])}.</p>"
        )
    return "".join(parts)


def _objectives(facts: Facts, n_runs: int) -> str:
    """Primal and dual objective of all problems together."""
    seconds, primal = facts.together("primal", np.sum)
    dual = facts.together("dual", np.sum)[1]
    # The start, with all dual variables zero, says nothing; the first rounds can be many times as large as
    # all others.
    started = np.flatnonzero(dual > 0)
    first = int(started[0]) if len(started) else 0
    wide = len(started) > 0 and dual[first:].min() > 0 and primal[first:].max() > 20 * dual[-1]
    rows = [
        {"head": 0, "seconds": when, "primal": above, "dual": below}
        for when, above, below in zip(seconds[first:], primal[first:], dual[first:], strict=True)
    ]
    what = "" if n_runs == 1 else f", summed over {n_runs} problems"
    return figure(
        f"Primal and dual objective{what}; the optimum lies between the two lines",
        run_of(thin(rows), [""], "objectives", "primal and dual objective over time", None, log=wide),
    )


def _gaps(facts: Facts, runs: list[list[dict]], names: list[str]) -> str:
    """The gap of every problem; of many problems the largest and the median one."""
    if len(runs) <= MOST_SERIES:
        rows = [{**row, "head": head} for head, run in enumerate(runs) for row in thin(run)]
    else:
        names = ["largest", "median"]
        rows = [
            {"head": head, "seconds": when, "gap": gap}
            for head, how in enumerate((np.max, np.median))
            for when, gap in thin(list(zip(*facts.together("gap", how), strict=True)))
        ]
    tol = getattr(facts.model, "tol", None)
    return figure("Relative duality gap", run_of(rows, names, "gap", "relative duality gap over time", tol))


# -- support vectors -------------------------------------------------------------------------------


def support(facts: Facts) -> str:
    if facts.landmarks:
        return (
            f"<p>The model is a sum over <b>{number(facts.n_support)}</b> landmarks, the same for all "
            "kernels: rows out of the "
            f"{number(facts.n_train)} that it was trained on. Every kernel has coefficients of its own for "
            "them; there are no dual "
            "variables of single rows. Its certificate is that of the kernels as the landmarks see them.</p>"
        )
    coefficients = np.atleast_2d(facts.model.dual_coef_)
    if coefficients.shape[1] == 0:
        return "<p>The model has no support vectors: its decision is the same for every example.</p>"
    positive, negative = (coefficients > 0).sum(axis=1), (coefficients < 0).sum(axis=1)
    if len(facts.classes) == 2 and len(coefficients) == 1:
        names, sides = (
            [str(label) for label in facts.classes],
            [("support vectors", np.array([negative[0], positive[0]]))],
        )
    elif facts.classes:
        shown = np.argsort(-(positive + negative), kind="stable")[:MOST_BARS]
        shown = np.sort(shown)
        names, sides = (
            [facts.heads[h] for h in shown],
            [("of the class", positive[shown]), ("of the others", negative[shown])],
        )
    else:
        names = [name or "all rows" for name in facts.heads]
        sides = [("dual variable above zero", positive), ("below zero", negative)]
    size = np.abs(coefficients[coefficients != 0])
    at_bound = float(np.mean(size >= size.max() * (1 - 1e-9))) if len(size) else 0.0
    left = figure(
        f"Rows with a dual variable other than zero: {number(facts.n_support)} of {number(facts.n_train)} "
        "training rows",
        bars_of(names, sides, "support vectors"),
    )
    right = figure(
        f"Size of the dual variables, relative to the largest; {at_bound:.0%} are as large as the largest "
        "(at the bound: margin errors)",
        histogram(
            size / max(size.max(initial=0.0), 1e-300),
            ("|dual variable| / largest", "rows"),
            "sizes of the dual variables",
        ),
    )
    return pair(left, right)


# -- settings and environment ----------------------------------------------------------------------


def settings(facts: Facts) -> str:
    params = facts.model.get_params(deep=False)
    rows = []
    for name, value in params.items():
        if name == "kernels" and not isinstance(value, str):
            text = (
                "default bank"
                if value is None
                else f"{facts.n_kernels} kernels (listed with their weights above)"
            )
        else:
            text = repr(value)
        rows.append([code(name), code(text[:400])])
    return table(["parameter", "value"], rows)


def environment(facts: Facts) -> str:
    last = facts.history[-1] if facts.history else {}
    training = [["engine", facts.engine]]
    if facts.shards:
        training.append(
            ["shards", f"{number(facts.shards)} with at most {number(last['rows_per_shard'])} rows"]
        )
    if last.get("expected_peak_bytes"):
        training.append(
            ["memory planned per shard", f"at most {last['expected_peak_bytes'] / 2**20:,.0f} MiB"]
        )
    here = [
        ["Python", sys.version.split()[0]],
        [
            "machine",
            f"{platform.system()} {platform.release()}, {platform.machine()}, {usable_cpus()} usable CPUs",
        ],
    ]
    for name in LIBRARIES:
        try:
            here.append([name, __version__ if name == "raymkl" else version(name)])
        except PackageNotFoundError:
            here.append([name, "not installed"])
    return pair(
        f"<div><h3>Training</h3>{table(['what', 'value'], training)}</div>",
        f"<div><h3>Where this report was made</h3>{table(['what', 'version'], here)}</div>",
    )
