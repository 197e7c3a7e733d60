"""What the displays share: names of kernels and rows, and axes to draw on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from .drawing import PALETTE as PALETTE
from .drawing import SCREEN, Style, need_matplotlib


def kernel_names(kernels: Sequence[Any]) -> list[str]:
    """One readable name per kernel: its repr, with its position where two would look the same.

    Parameters
    ----------
    kernels : list of Kernel
        The M kernels of a model.

    Returns
    -------
    names : list of str
        One per kernel.

    Examples
    --------
    >>> from raymkl import kernels
    >>> from raymkl.plot import kernel_names
    >>> kernel_names([kernels.Linear(), kernels.Linear(), kernels.RBF(0.1)])
    ['Linear() #0', 'Linear() #1', 'RBF(gamma=0.1)']
    """
    names = [repr(kernel) for kernel in kernels]
    counts = {name: names.count(name) for name in set(names)} if len(set(names)) < len(names) else {}
    return [f"{name} #{position}" if counts.get(name, 1) > 1 else name for position, name in enumerate(names)]


def head_names(model: Any) -> list[str]:
    """Names of the decision values of a model: its classes when there is one per class.

    Parameters
    ----------
    model : fitted estimator
        Any of raymkl.

    Returns
    -------
    names : list of str
        One per decision value; a single one is unnamed.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLClassifier, kernels
    >>> from raymkl.plot import head_names
    >>> X = np.arange(9.0).reshape(-1, 1)
    >>> model = MKLClassifier(kernels=kernels.rbf([0.1]), engine="local").fit(X, list("aaabbbccc"))
    >>> head_names(model)
    ['a', 'b', 'c']
    """
    # A model over landmarks has no dual variables; baselines have no expansion.
    n_heads = len(
        np.atleast_2d(model.dual_coef_ if hasattr(model, "dual_coef_") else model.expansion_.coefficients)
    )
    classes = getattr(model, "classes_", ())
    if n_heads > 1 and len(classes) == n_heads:
        return [str(label) for label in classes]
    return [f"head {h}" for h in range(n_heads)] if n_heads > 1 else [""]


def weight_rows(model: Any) -> tuple[np.ndarray, list[str]]:
    """Weights of a model as rows, with their names.

    Parameters
    ----------
    model : fitted estimator
        Any with `kernel_weights_`.

    Returns
    -------
    weights : ndarray of shape (rows, M)
        One row for weights (M,), else one per class, cluster, or both.
    names : list of str
        One per row: class, cluster, or both; a single row is unnamed.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import MKLClassifier, kernels
    >>> from raymkl.plot import weight_rows
    >>> X, y = np.arange(8.0).reshape(-1, 1), [0, 0, 1, 1, 0, 0, 1, 1]
    >>> weights, names = weight_rows(MKLClassifier(kernels=kernels.rbf([0.1, 1.0]), engine="local").fit(X, y))
    >>> weights.shape, names
    ((1, 2), [''])
    """
    weights = np.asarray(model.kernel_weights_, np.float64)
    heads = head_names(model)
    if weights.ndim == 1:
        return weights[None], [""]
    if weights.ndim == 2:
        if len(heads) == len(weights) and len(heads) > 1 and not hasattr(model, "patterns_"):
            return weights, heads
        return weights, _cluster_names(model, len(weights))
    clusters = _cluster_names(model, weights.shape[1])
    return weights.reshape(-1, weights.shape[-1]), [
        f"{heads[h] if h < len(heads) else h}, {cluster}"
        for h in range(weights.shape[0])
        for cluster in clusters
    ]


def _cluster_names(model: Any, count: int) -> list[str]:
    """Names of clusters: their numbers, or what rows of a pattern of presence have."""
    if not hasattr(model, "patterns_"):
        return [f"cluster {j}" for j in range(count)]
    names = np.asarray(model.view_names_, object)
    return [
        "all rows",
        *(f"rows with {', '.join(map(str, names[np.asarray(row, bool)]))}" for row in model.patterns_),
    ]


class Display:
    """What the displays share: a way to be drawn.

    style : colours; the report gives others, which follow the reader's screen.
    """

    style: Style = SCREEN
    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        display : object
            The display itself, with `ax_` and `figure_`.
        """
        self._draw(self._axes(ax, *self._size()))
        return self

    def _size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches."""
        return 7.0, 4.0

    def _draw(self, ax: Any) -> None:
        raise TypeError(f"{type(self).__name__} draws nothing")

    def _axes(self, ax: Any, width: float, height: float) -> Any:
        if ax is None:
            need_matplotlib()
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(width, height), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def fitted(model: Any, attribute: str | None = None) -> None:
    """Raise scikit-learn's NotFittedError unless the model is fitted (and has the attribute)."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, attribute)
