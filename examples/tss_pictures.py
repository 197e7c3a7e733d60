"""Pictures of the study of promoters.

Not a program; see tss.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.charts import plot
from tss_data import NAMES, START, views

import raymkl
from raymkl import diagnostics


def draw_auc(rows: list[dict], single: dict[int, float], axes) -> None:
    """single : AUC of the best single kernel by n."""
    names = list(dict.fromkeys(row["model"] for row in rows if not row["model"].startswith("only")))
    for name in names:
        own = sorted((row["n"], row["auc"], row["auc_new"]) for row in rows if row["model"] == name)
        (line,) = axes.plot([n for n, _, _ in own], [auc for _, auc, _ in own], "o-", label=name)
        axes.plot([n for n, _, _ in own], [auc for _, _, auc in own], ":", color=line.get_color())
    axes.plot(sorted(single), [single[n] for n in sorted(single)], "ks--", label="best single kernel")
    axes.set(
        xscale="log",
        xlabel="training windows",
        ylabel="AUC on test windows",
        title="Dotted: without test windows seen in training",
    )
    axes.grid(alpha=0.3)
    axes.legend()


def draw_weights(table: list[dict], axes) -> None:
    n = max(row["n"] for row in table)
    own = [row for row in table if row["n"] == n]
    left = np.zeros(len(own))
    for name in NAMES:
        share = np.array([row[name] for row in own])
        axes.barh(np.arange(len(own)), share, left=left, label=name)
        left += share
    axes.set_yticks(np.arange(len(own)), [row["model"] for row in own])
    axes.invert_yaxis()
    axes.set(
        xlabel="share of the weights",
        title=f"Weights of the views, n = {n} (for p > 2 they make up for kernels of little use)",
    )
    axes.legend(ncols=len(NAMES), loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)


def draw_positions(test: dict, path: Path, model_file: Path, most: int = 3_000) -> None:
    """Where in the window the signal kernel finds what speaks for a promoter: by piece length, and by
    letter.
    """
    clf = raymkl.load(model_file)
    rows = np.random.default_rng(0).permutation(len(test["label"]))[:most]
    sequences, kinds = [test["sequence"][i] for i in rows], test["kind"][rows]
    values = diagnostics.positional_importance(clf, views(sequences), only=0, spread=True).total()
    background = values[kinds == "nonprom"].mean(axis=0)
    named = [
        ("TATA promoters", kinds == "tata"),
        ("other promoters", (kinds != "tata") & (kinds != "nonprom")),
    ]
    named = [(title, values[mask].mean(axis=0) - background) for title, mask in named if mask.any()]
    letters = np.array([list(sequence.upper()) for sequence in sequences])
    by_letter = np.zeros((4, values.shape[2]))
    for line, letter in enumerate("ACGT"):
        for position in range(values.shape[2]):
            has = letters[:, position] == letter
            by_letter[line, position] = values[has, :, position].sum(axis=1).mean() if has.any() else 0.0
    by_letter -= by_letter.mean(axis=0)
    places = np.arange(values.shape[2]) - START

    def draw(whole):
        from matplotlib.colors import Normalize, SymLogNorm

        pictures = [*named, ("letters, against the mean of the four", by_letter)]
        whole.axis("off")
        for line, (title, picture) in enumerate(pictures):
            ax = whole.figure.add_subplot(len(pictures), 1, line + 1)
            limit = np.abs(picture).max()
            # Nearly logarithmic colours by length: long pieces count little each, and the TATA box is made of
            # them.
            colours = (
                Normalize(-limit, limit)
                if picture is by_letter
                else SymLogNorm(limit / 30, vmin=-limit, vmax=limit)
            )
            extent = (places[0] - 0.5, places[-1] + 0.5, len(picture), 0)
            image = ax.imshow(picture, aspect="auto", cmap="RdBu_r", norm=colours, extent=extent)
            if picture is by_letter:
                ax.set_yticks(np.arange(4) + 0.5, list("ACGT"))
            else:
                ax.set_yticks(np.arange(len(picture)) + 0.5, np.arange(1, len(picture) + 1))
                ax.set_ylabel("letters of the piece")
            ax.axvline(0, color="black", linewidth=0.7)
            ax.set(
                xlabel="position relative to the start site",
                title=title + ("" if picture is by_letter else ", less non-promoters"),
            )
            ax.figure.colorbar(image, ax=ax, shrink=0.8)

    plot(path, draw, width=9.0, height=2.6 * (len(named) + 1))
