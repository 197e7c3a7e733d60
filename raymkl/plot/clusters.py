"""Clusters of a mixture in the plane, and the scales of their machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Display, fitted
from .drawing import heat_map, literal
from .drawing import legend as draw_legend

MARKERS = ("o", "x", "^", "s", "+", "D", "v", "*")
# Rows that are drawn at most, evenly spaced: more than these are a blot.
MOST_ROWS = 3_000
# Clusters with a smaller weight hold hardly a row, and their ellipses are those of the prior.
SMALLEST_WEIGHT = 1e-3


def _has(model: Any, names: Sequence[str], what: str) -> None:
    """Raise unless the model is fitted and has the attributes.

    what : words for that which it is asked for.
    """
    fitted(model)
    missing = [name for name in names if not hasattr(model, name)]
    if missing:
        raise ValueError(f"{type(model).__name__} has no {what} to draw: there is no {', '.join(missing)}")


def cluster_names(weights: Any) -> list[str]:
    """Names of clusters (K,) with their part of the rows."""
    return [
        f"cluster {k} ({weight:.0%})" if weight >= 0.005 else f"cluster {k} (<1%)"
        for k, weight in enumerate(np.asarray(weights))
    ]


def ellipse(mean: np.ndarray, covariance: np.ndarray, deviations: float, points: int = 100) -> np.ndarray:
    """(points, 2) on the line where a Gaussian in the plane lies `deviations` standard deviations from its
    mean (2,).
    """
    values, axes = np.linalg.eigh(covariance)
    angle = np.linspace(0.0, 2 * np.pi, points)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return mean + deviations * (circle * np.sqrt(np.maximum(values, 0.0))) @ axes.T


class ClustersDisplay(Display):
    """Clusters in the plane: an ellipse for each, the rows, and where the machines decide for which class.

    Rows have the colour of their cluster and the marker of their class. Decision regions are shades of grey
    with a line between them.

    Parameters
    ----------
    means : ndarray of shape (K, 2)
        Means of the clusters.
    covariances : ndarray of shape (K, 2, 2)
        Their covariances.
    weights : ndarray of shape (K,)
        Their shares of the rows.
    X : ndarray of shape (n, 2), or None
        Rows.
    clusters : ndarray of shape (n,), or None
        Cluster of every row, for X.
    y : ndarray of shape (n,), or None
        Class of every row.
    probabilities : ndarray of shape (height, width, n_classes), or None
        Probabilities of the classes at the points of a grid; the largest decides.
    extent : tuple of float, or None
        (left, right, bottom, top) of the grid.
    names : list of str, or None
        Names of the two columns.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl.plot import ClustersDisplay
    >>> means, covariances = np.array([[0.0, 0.0], [4.0, 1.0]]), np.array([np.eye(2), np.diag([0.5, 2.0])])
    >>> display = ClustersDisplay(means, covariances, np.array([0.7, 0.3])).plot()
    """

    def __init__(
        self,
        means: np.ndarray,
        covariances: np.ndarray,
        weights: np.ndarray,
        X: np.ndarray | None = None,
        clusters: np.ndarray | None = None,
        y: np.ndarray | None = None,
        probabilities: np.ndarray | None = None,
        extent: tuple[float, float, float, float] | None = None,
        names: Sequence[str] | None = None,
    ):
        self.means, self.covariances, self.weights = means, covariances, weights
        self.X, self.clusters, self.y = X, clusters, y
        self.probabilities, self.extent, self.names = probabilities, extent, names

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any = None,
        *,
        ax: Any = None,
        deviations: float = 2.0,
        resolution: int = 200,
        legend: bool = True,
    ) -> ClustersDisplay:
        """Draw the clusters of a fitted model of two columns, with rows and, where there are any, classes.

        Parameters
        ----------
        model : fitted estimator
            `ClusteredMKLClassifier` or `DirichletProcessMixture`, of two columns.
        X : array-like of shape (n, 2)
            Rows.
        y : array-like of shape (n,), or None
            Their classes.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        deviations : float
            Size of the ellipses, in standard deviations.
        resolution : int
            Points of the grid per side at which the model decides, where it classifies.
        legend : bool
            Whether clusters and classes are named beside the picture.

        Returns
        -------
        display : ClustersDisplay
            Drawn.
        """
        _has(model, ("means_", "covariances_", "cluster_weights_"), "clusters")
        columns = np.shape(model.means_)[1]
        if columns != 2:
            raise ValueError(
                f"clusters are drawn in the plane: the model must have two columns, this one has {columns}"
            )
        rows = np.asarray(X, np.float64)
        if rows.ndim != 2 or rows.shape[1] != 2:
            raise ValueError(f"X must have two columns, as the model has; its shape is {rows.shape}")
        if y is not None and len(y) != len(rows):
            raise ValueError(f"y has {len(y)} entries, but X has {len(rows)} rows")
        few = np.unique(np.linspace(0, len(rows) - 1, min(MOST_ROWS, len(rows))).round().astype(int))
        clusters = np.asarray(model.membership(X)).argmax(axis=1)[few]
        low, high = rows.min(axis=0), rows.max(axis=0)
        margin = 0.05 * np.where(high > low, high - low, 1.0)
        (left, bottom), (right, top) = low - margin, high + margin
        probabilities = None
        if hasattr(model, "classes_"):
            across, up = np.meshgrid(
                np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
            )
            grid: Any = np.column_stack([across.ravel(), up.ravel()])
            if hasattr(X, "columns"):  # a DataFrame: the model knows its columns by name
                import pandas as pd

                grid = pd.DataFrame(grid, columns=list(X.columns))
            probabilities = np.asarray(model.predict_proba(grid)).reshape(*across.shape, -1)
        display = cls(
            np.asarray(model.means_),
            np.asarray(model.covariances_),
            np.asarray(model.cluster_weights_),
            rows[few],
            clusters,
            None if y is None else np.asarray(y)[few],
            probabilities,
            (left, right, bottom, top),
            getattr(model, "feature_names_in_", None),
        )
        return display.plot(ax=ax, deviations=deviations, legend=legend)

    def plot(self, ax: Any = None, *, deviations: float = 2.0, legend: bool = True) -> ClustersDisplay:
        """Draw clusters, rows and regions.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        deviations : float
            Size of the ellipses, in standard deviations.
        legend : bool
            Whether clusters and classes are named beside the picture.

        Returns
        -------
        display : object
            The display itself, with `ax_` and `figure_`.
        """
        means, covariances, weights = (
            np.asarray(part, np.float64) for part in (self.means, self.covariances, self.weights)
        )
        if means.ndim != 2 or means.shape[1] != 2:
            raise ValueError(
                f"means must be those of clusters in the plane, (K, 2); their shape is {means.shape}"
            )
        if covariances.shape != (len(means), 2, 2) or weights.shape != (len(means),):
            raise ValueError(
                f"{len(means)} means need covariances (K, 2, 2) and weights (K,); got {covariances.shape} "
                f"and {weights.shape}"
            )
        ax = self._axes(ax, 7.0, 5.0)
        self._draw_regions(ax)
        self._draw_rows(ax)
        names = cluster_names(weights)
        for k in np.flatnonzero(weights >= min(SMALLEST_WEIGHT, weights.max())).tolist():
            color = self.style.line(k)
            line = ellipse(means[k], covariances[k], deviations)
            ax.plot(
                *line.T,
                color=color,
                linewidth=2.0,
                linestyle=self.style.dash(k),
                label=names[k],
            )
            box = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": color, "alpha": 0.85}
            ax.annotate(
                str(k), means[k], ha="center", va="center", fontsize=8, color=self.style.ink, bbox=box
            )
        if self.extent is not None:
            ax.set(xlim=self.extent[:2], ylim=self.extent[2:])
        across, up = ("column 0", "column 1") if self.names is None else map(literal, self.names)
        ax.set(
            xlabel=across,
            ylabel=up,
            title="Clusters" if self.probabilities is None else "Clusters and decision regions",
        )
        if legend:
            draw_legend(ax, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        return self

    def _draw_regions(self, ax: Any) -> None:
        """Shades of grey by class, and lines where the decision changes."""
        if self.probabilities is None or self.extent is None:
            return
        P = np.asarray(self.probabilities, np.float64)
        height, width, n = P.shape
        shades = np.linspace(0.97, 0.80, n)[P.argmax(axis=2)]
        ax.imshow(
            np.repeat(shades[:, :, None], 3, axis=2),
            extent=self.extent,
            origin="lower",
            aspect="auto",
            zorder=0,
        )
        left, right, bottom, top = self.extent
        across, up = np.linspace(left, right, width), np.linspace(bottom, top, height)
        for number in range(n if n > 2 else 1):  # the only line between two classes is drawn once
            ahead = P[:, :, number] - np.delete(P, number, axis=2).max(axis=2)
            if ahead.min() < 0.0 < ahead.max():
                ax.contour(across, up, ahead, levels=[0.0], colors=self.style.ink, linewidths=1.2, zorder=2)

    def _draw_rows(self, ax: Any) -> None:
        """Rows in the colours of their clusters, with the markers of their classes."""
        if self.X is None:
            return
        rows = np.asarray(self.X, np.float64)
        clusters = np.zeros(len(rows), int) if self.clusters is None else np.asarray(self.clusters)
        colors = np.array(self.style.lines)[clusters % len(self.style.lines)]
        if self.y is None:
            ax.scatter(*rows.T, s=10, c=colors, alpha=0.6, linewidths=0, zorder=1)
            return
        labels = np.asarray(self.y)
        for number, label in enumerate(np.unique(labels)):
            own, marker = labels == label, MARKERS[number % len(MARKERS)]
            line = 0.8 if marker in "x+" else 0.0
            ax.scatter(*rows[own].T, s=12, c=colors[own], alpha=0.6, marker=marker, linewidths=line, zorder=1)
            ax.scatter(
                [],
                [],
                s=18,
                color=self.style.ink,
                marker=marker,
                linewidths=line,
                label=literal(f"class {label}"),
            )


class ScalesDisplay(Display):
    """Scales that the machines of clusters have learned, clusters by columns: a column without a scale has no
    say in its cluster.

    Scales are those of the columns as they are; for columns in different units, multiply them by the spreads
    first.

    Parameters
    ----------
    scales : ndarray of shape (K, d)
        Scale of every column, in every cluster.
    names : list of str
        Names of the d columns.
    rows : list of str, or None
        Names of the K clusters.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl.plot import ScalesDisplay
    >>> display = ScalesDisplay(np.array([[1.0, 0.1], [0.2, 2.0]]), ["height", "weight"], ["cluster 0",
    ...     "cluster 1"]).plot()
    """

    def __init__(self, scales: np.ndarray, names: Sequence[str], rows: Sequence[str] | None = None):
        self.scales = scales
        self.names = names
        self.rows = rows

    @classmethod
    def from_estimator(
        cls, model: Any, feature_names: Sequence[str] | None = None, *, ax: Any = None, top: int = 40
    ) -> ScalesDisplay:
        """Draw the scales of a fitted model.

        Parameters
        ----------
        model : fitted estimator
            `ClusteredMKLClassifier`.
        feature_names : list of str, or None
            Names of its d columns; None for those it was fitted with.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        top : int
            Columns to show at most, those with the largest scales, in their order.

        Returns
        -------
        display : ScalesDisplay
            Drawn.
        """
        _has(model, ("scales_",), "scales")
        scales = np.asarray(model.scales_, np.float64)
        if feature_names is None:
            feature_names = getattr(model, "feature_names_in_", None)
        names = (
            [f"column {j}" for j in range(scales.shape[1])]
            if feature_names is None
            else [str(name) for name in feature_names]
        )
        if len(names) != scales.shape[1]:
            raise ValueError(
                f"feature_names has {len(names)} entries, but the model has {scales.shape[1]} columns"
            )
        weights = getattr(model, "cluster_weights_", None)
        rows = [f"cluster {k}" for k in range(len(scales))] if weights is None else cluster_names(weights)
        return cls(scales, names, rows).plot(ax=ax, top=top)

    def plot(self, ax: Any = None, *, top: int = 40) -> ScalesDisplay:
        """Draw the scales as a heat map.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        top : int
            Columns to show at most, those with the largest scales, in their order.

        Returns
        -------
        display : object
            The display itself, with `ax_` and `figure_`.
        """
        scales = np.atleast_2d(np.asarray(self.scales, np.float64))
        rows = [f"cluster {k}" for k in range(len(scales))] if self.rows is None else list(self.rows)
        if scales.shape != (len(rows), len(self.names)):
            raise ValueError(
                f"scales have shape {scales.shape}, but there are names of {len(rows)} clusters and "
                f"{len(self.names)} columns"
            )
        shown = np.sort(np.argsort(-scales.max(axis=0), kind="stable")[:top])
        more = (
            f" (the {len(shown)} largest of {scales.shape[1]} columns)"
            if len(shown) < scales.shape[1]
            else ""
        )
        ax = self._axes(ax, 3.0 + 0.45 * len(shown), 2.2 + 0.4 * len(rows))
        names = [self.names[j] for j in shown]
        heat_map(ax, self.style, scales[:, shown], rows, names, 0.0, float(scales.max()), "scale")
        ax.set_title("Learned scales" + more)
        return self
