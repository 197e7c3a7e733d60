"""Tables and pictures of the study of clusters with machines.

Not a program; see clustered.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from benchmarks.charts import plot
from benchmarks.common import Table
from clustered_data import MEASURES, PUBLISHED, PUBLISHED_CLUSTERS, DataSet, figure1, useless_columns
from scipy.stats import ttest_rel

from raymkl import ClusteredMKLClassifier
from raymkl.plot import ClustersDisplay, ScalesDisplay
from raymkl.plot.clusters import cluster_names

if TYPE_CHECKING:
    from clustered import Study

# -- tables ----------------------------------------------------------------------------------------


def mean(values: list) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def accuracy_table(study: Study, sets: list[DataSet], notes: list[str]) -> Table:
    """Tables 2 and 3."""
    styles = {
        "data": "<16",
        "method": "<18",
        "mean": ".2f",
        "std": ".2f",
        "seconds": ".2f",
        "clusters": ".1f",
        "p_value": ".3g",
    }
    table = Table(
        study.args.out / "accuracy.csv",
        "accuracy on test rows in per cent",
        {**styles, "published": ".2f", "published_seconds": "g"},
        [
            *notes,
            "p_value: paired t-test against CIK over the repeats, which share rows: it is smaller than it "
            "should be",
        ],
    )
    for data in sets:
        published = PUBLISHED.get(data.name, {})
        accuracy = {}
        for method in [*study.args.methods, *(["BaNK"] if published else [])]:
            own = [
                row
                for r in range(study.args.repeats)
                if (row := study.runs.find(data=data.name, method=method, repeat=r))
            ]
            accuracy[method] = values = [row["accuracy"] for row in own]
            figure, seconds = published.get(method, (None, None))
            p_value = None
            if method != "CIK" and len(values) > 1 and len(values) == len(accuracy.get("CIK", ())):
                differences = np.subtract(values, accuracy["CIK"])
                if np.ptp(differences) > 0:
                    p_value = float(ttest_rel(values, accuracy["CIK"]).pvalue)
                else:  # no spread, no test: equal methods are equal, and of others it says nothing
                    p_value = None if differences.any() else 1.0
            table.add(
                data=data.name,
                method=method,
                mean=mean(values),
                std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
                seconds=mean([row["seconds"] for row in own]),
                clusters=mean([row["clusters"] for row in own]),
                p_value=p_value,
                published=figure,
                published_seconds=seconds,
            )
    return table


def clusters_table(study: Study, sets: list[DataSet], notes: list[str]) -> Table:
    """Tables 1 and 4."""
    styles = dict.fromkeys(MEASURES, ".3f")
    table = Table(
        study.args.out / "clusters.csv",
        "measures of the clusters of training rows",
        {
            "data": "<16",
            "method": "<7",
            **styles,
            "clusters": ".1f",
            **{f"published_{name}": ".3f" for name in MEASURES},
        },
        [
            *notes,
            f"synthetic: section 4.1, {study.settings.synthetic_rows} rows, "
            f"{len(study.groups.where(data='synthetic', method='CIK'))} drawings",
            "synthetic: Gaussian k has class k mod 3 wherever it lies: neighbours mostly differ in class "
            "(the paper leaves that open)",
            "rand: plain Rand index; dunn: of 2,000 rows at most (the paper prints tenths); smaller "
            "Davies-Bouldin is better",
        ],
    )
    for name in ["synthetic", *(data.name for data in sets)]:
        for method in ("CIK", "DPM"):
            own = study.groups.where(data=name, method=method)
            if own:
                published = {
                    f"published_{key}": value
                    for key, value in PUBLISHED_CLUSTERS.get((name, method), {}).items()
                }
                table.add(
                    data=name,
                    method=method,
                    **{key: mean([row[key] for row in own]) for key in (*MEASURES, "clusters")},
                    **published,
                )
    return table


def findings(accuracy: Table, clusters: Table, sets: list[DataSet]) -> None:
    """What came out, in words."""
    figures = {(row["data"], row["method"]): row for row in accuracy.rows}
    print()
    for data in sets:
        ours = figures.get((data.name, "CIK"))
        if ours is None or ours["mean"] is None:
            continue
        others = {
            method: row["mean"]
            for (name, method), row in figures.items()
            if name == data.name and method != "CIK" and row["mean"]
        }
        told = ", ".join(
            f"{method} {value:.2f}" for method, value in sorted(others.items(), key=lambda pair: -pair[1])
        )
        published = "" if ours["published"] is None else f" (published {ours['published']:.2f})"
        print(f"{data.name}: CIK {ours['mean']:.2f}{published}; {told}")
    nmi = {row["method"]: row["nmi"] for row in clusters.rows if row["data"] == "synthetic"}
    print(
        f"synthetic: NMI {nmi['CIK']:.3f} with labels, {nmi['DPM']:.3f} without (published 0.84 and 0.57)",
        flush=True,
    )


# -- pictures --------------------------------------------------------------------------------------


def regions(path: Path, seed: int) -> None:
    """Figure 1: a machine per cluster with kernels so wide that its decision is nearly a line, and one such
    machine for all rows.

    Three clusters at most: with more of them the labels split clusters by class, and no machine has anything
    left to tell apart.
    """
    X, y, _ = figure1(600, seed)
    T, t, _ = figure1(4_000, seed + 100)
    common = {
        "C": 10.0,
        "n_features": 128,
        "max_iter": 10,
        "learn_scales": False,
        "scale": 0.25,
        "engine": "local",
        "random_state": seed,
    }
    titles = {
        "One machine with a wide kernel": {"n_clusters": 1},
        "One for each cluster, as wide": {"n_clusters": 3},
    }

    def draw(*panels: Any) -> None:
        for axes, (title, more) in zip(panels, titles.items(), strict=True):
            model = ClusteredMKLClassifier(**common, **more).fit(X, y)
            ClustersDisplay.from_estimator(model, X, y, ax=axes)
            axes.set_title(f"{title}: accuracy {model.score(T, t):.3f}")

    plot(path, draw, panels=2, width=7.0, height=5.0)


def scales(path: Path, seed: int) -> None:
    """Scales with two useful columns of twelve, and what learning them is worth."""
    X, y = useless_columns(800, seed)
    T, t = useless_columns(4_000, seed + 50)
    names = [*(f"useful {j}" for j in (1, 2)), *(f"useless {j}" for j in range(1, X.shape[1] - 1))]

    def draw(axes: Any) -> None:
        common = {
            "n_clusters": 4,
            "C": 10.0,
            "n_features": 128,
            "max_iter": 10,
            "final_epochs": 10,
            "engine": "local",
            "random_state": seed,
        }
        learned, fixed = (
            ClusteredMKLClassifier(learn_scales=learn, **common).fit(X, y) for learn in (True, False)
        )
        rows = [*cluster_names(learned.cluster_weights_), "at the start"]
        ScalesDisplay(np.vstack([learned.scales_, fixed.scales_[:1]]), names, rows).plot(axes)
        axes.set_title(
            f"Accuracy {learned.score(T, t):.3f} with learned scales, {fixed.score(T, t):.3f} with those of "
            "the start"
        )

    plot(path, draw, width=9.0, height=3.0)
