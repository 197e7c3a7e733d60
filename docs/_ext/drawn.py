"""Pictures of the pages, drawn from real fits every time the site is built (`docs/_static/drawn/`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "_static" / "drawn"
INK = "#1b1b1b"


def figure(width: float, height: float, columns: int = 1):
    """A white figure with room for its labels, and its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(drawn)
    return drawn, np.atleast_1d(drawn.subplots(1, columns))


def families():
    """Gaussians of many widths are curves over one squared distance, and few functions span them all."""
    drawn, (left, right) = figure(9, 3.2, 2)
    distance = np.logspace(-3, 3, 800)
    for gamma in np.logspace(-1, 1, 50):
        left.semilogx(distance, np.exp(-gamma * distance), color="#2c6fbb", linewidth=0.7)
    left.set(xlabel="squared distance of two rows", ylabel="kernel value", title="50 Gaussian kernels")
    for count, colour in ((10, "#2c6fbb"), (50, "#c8571b"), (1000, "#3a8a3a")):
        values = np.exp(-np.logspace(-1, 1, count)[:, None] * distance)
        left_vectors, sizes, functions = np.linalg.svd(values, full_matrices=False)
        ranks = range(1, min(count, 22) + 1)
        errors = [np.abs(values - (left_vectors[:, :r] * sizes[:r]) @ functions[:r]).max() for r in ranks]
        right.semilogy(ranks, errors, color=colour, marker=".", label=f"{count:,} widths")
    right.set(xlabel="functions", ylabel="largest error of a kernel", title="Few functions span them")
    right.set_ylim(1e-9, 2)
    right.legend(frameon=False)
    return drawn


def rounds():
    """Both sides of the gap over the rounds of a fit, and the gap itself."""
    from sklearn.datasets import load_digits

    from raymkl import MKLClassifier, kernels

    X, y = load_digits(return_X_y=True)
    model = MKLClassifier(kernels=kernels.rbf(np.logspace(-4, -2, 20)), C=10.0, tol=1e-5, engine="local")
    history = model.fit(X, y % 2).history_
    drawn, (left, right) = figure(9, 3.2, 2)
    seen = [row for row in history if np.isfinite(row["primal"]) and np.isfinite(row["dual"])]
    number = [row["round"] for row in seen]
    left.plot(
        number, [row["primal"] for row in seen], color="#c8571b", label="primal: never below the optimum"
    )
    left.plot(number, [row["dual"] for row in seen], color="#2c6fbb", label="dual: never above it")
    left.set_ylim(0, 2.5 * seen[-1]["primal"])
    left.set(xlabel="round", ylabel="objective", title="Digits, odd against even, 20 kernels")
    left.legend(frameon=False)
    right.semilogy(number, [max(row["gap"], 1e-12) for row in seen], color=INK, marker=".")
    right.axhline(model.tol, color="#777777", linestyle="--")
    right.annotate("tol", (number[0], model.tol), textcoords="offset points", xytext=(0, 4), color="#555555")
    right.set(xlabel="round", ylabel="relative gap", title=f"Proved in the end: {model.duality_gap_:.1e}")
    return drawn


def heads():
    """Heads of a search over three classes and three folds: who learns what from which rows."""
    from matplotlib.colors import ListedColormap
    from sklearn.datasets import load_iris
    from sklearn.model_selection import StratifiedKFold

    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:48]
    X, y = X[order], y[order]
    folds = list(StratifiedKFold(3).split(X, y))
    table, names = [], []
    for k in range(3):
        for f, (train, _) in enumerate(folds):
            column = np.zeros(len(y))
            column[train] = np.where(y[train] == k, 1, -1)
            table.append(column)
            names.append(f"class {k}\nfold {f}")
    drawn, (ax,) = figure(9, 3.6)
    ax.imshow(
        np.array(table).T,
        aspect="auto",
        interpolation="nearest",
        cmap=ListedColormap(["#9ec3e6", "#f2f2ee", "#f0a868"]),
    )
    ax.set_xticks(range(len(names)), names, fontsize=8)
    ax.set(ylabel="rows", title="Nine heads over the same rows (orange: +1, blue: -1, white: held out)")
    return drawn


def gates():
    """A kernel matrix, the gates of one cluster, and the entry that a localized model learns a weight for."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(60, 1)) + np.repeat([[-2.0], [2.0]], 30, axis=0), axis=0)
    kernel = np.exp(-0.3 * (X - X.T) ** 2)
    gate = 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))
    drawn, axes = figure(9, 3.0, 3)
    pictures = (kernel, np.outer(gate, gate), kernel * np.outer(gate, gate))
    titles = ("k(x, z)", "gate(x) gate(z), one cluster", "gate(x) k(x, z) gate(z)")
    for ax, picture, title in zip(axes, pictures, titles, strict=True):
        ax.imshow(picture, cmap="cividis", vmin=0, vmax=1)
        ax.set(title=title, xlabel="rows z", ylabel="rows x", xticks=[], yticks=[])
    return drawn


def draw(app) -> None:
    """All pictures, before the pages are read."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for picture in (families, rounds, heads, gates):
        picture().savefig(FOLDER / f"{picture.__name__}.png", dpi=140)


def setup(app):
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True}
