"""Weights of kernels, and the run of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Display, fitted, head_names, kernel_names, weight_rows
from .drawing import bars, heat_map, legend, line, log_scale


class KernelWeightsDisplay(Display):
    """Weights of the kernels: bars, or a heat map when there are several sets of weights (per class or per
    cluster).

    Parameters
    ----------
    weights : ndarray of shape (M,) or (rows, M)
        Weights of the kernels.
    names : list of str
        Names of the M kernels.
    rows : list of str, or None
        Names of the rows, for (rows, M).

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, kernels
    >>> from raymkl.plot import KernelWeightsDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.01, 0.1, 1.0]), engine="local").fit(X, y)
    >>> display = KernelWeightsDisplay.from_estimator(clf)
    """

    def __init__(self, weights: np.ndarray, names: Sequence[str], rows: Sequence[str] | None = None):
        self.weights = weights
        self.names = names
        self.rows = rows

    @classmethod
    def from_estimator(
        cls, model: Any, *, ax: Any = None, top: int = 30, sort: bool = True
    ) -> KernelWeightsDisplay:
        """Draw the weights of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            Any with `kernel_weights_`.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        top : int
            Kernels to show at most, those with the largest weight.
        sort : bool
            Whether the largest come first; else in the order of the list.

        Returns
        -------
        display : KernelWeightsDisplay
            Drawn.
        """
        fitted(model, "kernel_weights_")
        weights, rows = weight_rows(model)
        names = kernel_names(model.kernels_)
        display = cls(weights[0], names) if rows == [""] else cls(weights, names, rows)
        return display.plot(ax=ax, top=top, sort=sort)

    def plot(self, ax: Any = None, *, top: int = 30, sort: bool = True) -> KernelWeightsDisplay:
        """Draw the weights as bars, or as a heat map where there are several rows of them.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        top : int
            Kernels to show at most, those with the largest weight.
        sort : bool
            Whether the largest come first; else in the order of the list.

        Returns
        -------
        display : object
            The display itself, with `ax_` and `figure_`.
        """
        weights = np.atleast_2d(np.asarray(self.weights, np.float64))
        if weights.shape[1] != len(self.names):
            raise ValueError(
                f"names has {len(self.names)} entries, but there are weights of {weights.shape[1]} kernels"
            )
        shown = np.argsort(-weights.max(axis=0), kind="stable")[:top]
        shown = shown if sort else np.sort(shown)
        names = [self.names[m] for m in shown]
        left = weights.shape[1] - len(shown)
        more = f" (the {len(shown)} largest of {weights.shape[1]})" if left else ""
        if self.rows is None:
            ax = self._axes(ax, 7.0, 1.2 + 0.28 * len(shown))
            bars(ax, self.style, names, [("weight", weights[0, shown])])
            ax.set_xlabel("weight")
            ax.set_title("Kernel weights" + more)
            return self
        ax = self._axes(ax, 2.5 + 0.45 * len(shown), 2.2 + 0.4 * len(weights))
        largest = float(max(weights.max(), 1e-300))
        heat_map(ax, self.style, weights[:, shown], self.rows, names, 0.0, largest, "weight")
        ax.set_title("Kernel weights" + more)
        return self


class ConvergenceDisplay(Display):
    """The run of a fit: relative duality gap, or primal and dual objective, against seconds or rounds.

    Parameters
    ----------
    history : list of dict
        The `history_` of a model: one dict per round and class (or other problem that was solved beside it).
    heads : list of str, or None
        Names of these classes or problems.
    tol : float or None
        The gap that was asked for.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import MKLClassifier, kernels
    >>> from raymkl.plot import ConvergenceDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MKLClassifier(kernels=kernels.rbf([0.01, 0.1, 1.0]), engine="local").fit(X, y)
    >>> display = ConvergenceDisplay.from_estimator(clf, kind="objectives")
    """

    def __init__(self, history: Sequence[dict], heads: Sequence[str] | None = None, tol: float | None = None):
        self.history = history
        self.heads = heads
        self.tol = tol

    @classmethod
    def from_estimator(
        cls, model: Any, *, ax: Any = None, kind: str = "gap", x: str = "seconds"
    ) -> ConvergenceDisplay:
        """Draw the run of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            Any with `history_`.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        kind : {"gap", "objectives"}
            What is drawn.
        x : {"seconds", "round"}
            Against what.

        Returns
        -------
        display : ConvergenceDisplay
            Drawn.
        """
        fitted(model, "history_")
        return cls(model.history_, head_names(model), getattr(model, "tol", None)).plot(ax=ax, kind=kind, x=x)

    def plot(self, ax: Any = None, *, kind: str = "gap", x: str = "seconds") -> ConvergenceDisplay:
        """Draw the gap, or both objectives, of every class.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        kind : {"gap", "objectives"}
            What is drawn.
        x : {"seconds", "round"}
            Against what.

        Returns
        -------
        display : object
            The display itself, with `ax_` and `figure_`.
        """
        for name, value, known in (("kind", kind, ("gap", "objectives")), ("x", x, ("seconds", "round"))):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
        ax = self._axes(ax, 7.0, 4.0)
        runs: dict[int, list[dict]] = {}
        for row in self.history:
            runs.setdefault(row.get("head", 0), []).append(row)
        for position, (head, rows) in enumerate(sorted(runs.items())):
            name = self.heads[head] if self.heads and head < len(self.heads) else f"head {head}"
            where = [row[x] for row in rows]
            if kind == "gap":
                gaps = [row["gap"] if row["gap"] > 0 else np.nan for row in rows]
                line(ax, self.style, position, where, gaps, name or "gap")
                continue
            for side, dash in (("primal", "-"), ("dual", "--")):
                label = f"{name}: {side}" if name else side
                line(ax, self.style, position, where, [row[side] for row in rows], label, dash)
        ax.set_xlabel(x)
        ax.set_ylabel("relative duality gap" if kind == "gap" else "objective")
        if kind == "gap":
            log_scale(ax.yaxis)
            if self.tol:
                ax.axhline(self.tol, color=self.style.soft, linestyle=":", label=f"tol = {self.tol:g}")
        if runs:
            legend(ax, ncols=2 if len(runs) > 6 else 1)
        ax.set_title("Convergence")
        return self
