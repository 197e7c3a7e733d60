"""Pictures of results, in the manner of `raymkl.plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..plot.base import Display
from ..plot.drawing import LONGEST_LABEL, legend, literal, named_rows, shorten


class ComparisonDisplay(Display):
    """Scores of models: a dot per split, and their means.

    Parameters
    ----------
    scores : dict of ndarray of shape (J,)
        Scores by the name of the model.
    metric : str
        Name of the score.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl.evaluate import ComparisonDisplay
    >>> display = ComparisonDisplay({"mkl": np.array([0.9, 0.8]), "average": np.array([0.7, 0.8])})
    >>> display.plot().ax_.get_xlabel() is not None  # doctest: +SKIP
    True
    """

    def __init__(self, scores: Mapping[str, np.ndarray], metric: str = "score"):
        self.scores = scores
        self.metric = metric

    def _size(self) -> tuple[float, float]:
        return 7.0, 1.4 + 0.45 * len(self.scores)

    def _draw(self, ax: Any) -> None:
        for place, (_, scores) in enumerate(self.scores.items()):
            # Splits side by side, so that equal scores do not hide each other.
            across = place + np.linspace(-0.18, 0.18, len(scores)) if len(scores) > 1 else np.array([place])
            color = self.style.line(place)
            ax.scatter(scores, across, s=16, alpha=0.6, color=color)
            ax.plot([scores.mean()] * 2, [place - 0.3, place + 0.3], color=color, linewidth=2)
        named_rows(ax, list(self.scores))
        ax.set_xlabel(literal(self.metric))
        ax.set_title("Scores of the splits, and their means")


class PermutationDisplay(Display):
    """A score among those of permuted targets.

    Parameters
    ----------
    score : float
        Of the targets as they are.
    null : ndarray of shape (n,)
        Of permuted ones.
    p_value : float
        Of the test.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl.evaluate import PermutationDisplay
    >>> PermutationDisplay(0.9, np.array([0.5, 0.4, 0.6]), 0.25).p_value
    0.25
    """

    def __init__(self, score: float, null: np.ndarray, p_value: float):
        self.score = score
        self.null = null
        self.p_value = p_value

    def _size(self) -> tuple[float, float]:
        return 6.0, 3.5

    def _draw(self, ax: Any) -> None:
        bins = min(max(len(self.null) // 5, 5), 40)
        ax.hist(self.null, bins=bins, color=self.style.line(4), label="permuted targets")
        label = f"targets as they are, p = {self.p_value:.3g}"
        ax.axvline(self.score, color=self.style.line(1), linewidth=2, label=label)
        ax.set_xlabel("score")
        ax.set_ylabel("permutations")
        legend(ax)
        ax.set_title("Permutation test")


class StabilityDisplay(Display):
    """Weights of kernels with the interval that half-samples give them; a panel of bars per class.

    Parameters
    ----------
    names : list of str
        Names of the M kernels.
    weight, low, high : ndarray of shape (K, M)
        Weights of the fit on all rows, and the ends of the intervals.
    rows : list of str
        Names of the K classes; one empty name for a single set of weights.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl.evaluate import StabilityDisplay
    >>> weight = np.array([[0.7, 0.3]])
    >>> StabilityDisplay(["wide", "narrow"], weight, weight - 0.1, weight + 0.1).names
    ['wide', 'narrow']
    """

    def __init__(
        self,
        names: Sequence[str],
        weight: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        rows: Sequence[str] = ("",),
    ):
        self.names = names
        self.weight = weight
        self.low = low
        self.high = high
        self.rows = rows

    def _size(self) -> tuple[float, float]:
        return 7.0, 1.4 + 0.3 * len(self.names) * max(1.0, 0.6 * len(self.rows))

    def _draw(self, ax: Any) -> None:
        count = len(self.rows)
        places = np.arange(len(self.names))
        for k, row in enumerate(self.rows):
            at, color = places + (k - (count - 1) / 2) * 0.8 / count, self.style.line(k)
            ax.hlines(at, self.low[k], self.high[k], color=color, linewidth=3, alpha=0.5)
            label = literal(row or "weight on all rows")
            ax.plot(self.weight[k], at, "o", color=color, markersize=5, label=label)
        named_rows(ax, self.names)
        ax.set_xlabel("weight")
        legend(ax)
        ax.set_title("Weights over half-samples")


class DropDisplay(Display):
    """What a score loses without a view or a kernel.

    Parameters
    ----------
    names : list of str
        What is left out.
    differences : ndarray of shape (k, J)
        What the score of every split loses.
    p_values : ndarray of shape (k,)
        Of the tests.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl.evaluate import DropDisplay
    >>> DropDisplay(["scan"], np.array([[0.1, 0.2]]), np.array([0.04])).names
    ['scan']
    """

    def __init__(self, names: Sequence[str], differences: np.ndarray, p_values: np.ndarray):
        self.names = names
        self.differences = differences
        self.p_values = p_values

    def _size(self) -> tuple[float, float]:
        return 7.0, 1.4 + 0.4 * len(self.names)

    def _draw(self, ax: Any) -> None:
        means, spread = self.differences.mean(axis=1), self.differences.std(axis=1)
        ax.barh(range(len(means)), means, xerr=spread, color=self.style.line(0), ecolor=self.style.soft)
        p_values = [f"  (p = {p:.2g})" for p in self.p_values]
        named_rows(
            ax, [shorten(name) + p for name, p in zip(self.names, p_values, strict=True)], LONGEST_LABEL
        )
        ax.axvline(0.0, color=self.style.ink, linewidth=0.8)
        ax.set_xlabel("what the score loses")
        ax.set_title("Without one")
