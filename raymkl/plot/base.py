"""What the displays share: colours, names, axes, heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F", "#000000")
HEAT = "cividis"
# Names longer than this are shortened in the middle.
LONGEST_NAME = 34
# Heat maps with at most this many cells per side carry their numbers.
ANNOTATED = 12


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plotting needs matplotlib, which is not installed; run: pip install "raymkl[plot]"'
        ) from error
    return plt


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    """The text, with its middle left out when it is too long.

    Parameters
    ----------
    text : str
        Any.
    longest : int
        Characters at most.

    Returns
    -------
    text : str
        As it was, or with an ellipsis.

    Examples
    --------
    >>> from raymkl.plot import shorten
    >>> shorten("WeightedDegree(degree=20)", 12)
    'Weighted…20)'
    """
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


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
    """What the displays share: axes to draw on."""

    ax_: Any
    figure_: Any

    def _axes(self, ax: Any, width: float, height: float) -> Any:
        plt = _pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(width, height), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        return ax

    @staticmethod
    def _heat_map(
        ax: Any,
        values: np.ndarray,
        rows: Sequence[str],
        columns: Sequence[str],
        low: float,
        high: float,
        label: str,
    ) -> None:
        image = ax.imshow(values, cmap=HEAT, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, label=label)
        ax.set_xticks(
            range(len(columns)),
            [shorten(name) for name in columns],
            rotation=45,
            ha="right",
            rotation_mode="anchor",
        )
        ax.set_yticks(range(len(rows)), [shorten(name) for name in rows])
        if max(values.shape) <= ANNOTATED:
            for (i, j), value in np.ndenumerate(values):
                dark = value < low + 0.55 * (high - low)
                ax.text(
                    j,
                    i,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if dark else "black",
                )


def fitted(model: Any, attribute: str | None = None) -> None:
    """Raise scikit-learn's NotFittedError unless the model is fitted (and has the attribute)."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, attribute)
