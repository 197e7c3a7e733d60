"""Pictures of fitted models in the manner of scikit-learn: `SomethingDisplay.from_estimator(model).plot(ax=ax)`.

matplotlib is loaded when a picture is drawn (`pip install "raymkl[plot]"`). Colours are safe for colour-blind readers: the palette of Okabe
and Ito for lines and bars, cividis for heat maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["AlignmentDisplay", "ConvergenceDisplay", "KernelWeightsDisplay", "SpectraDisplay"]

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
        raise ImportError('plotting needs matplotlib, which is not installed; run: pip install "raymkl[plot]"') from error
    return plt


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    """The text, with its middle left out when it is longer than `longest`."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 3
    return f"{text[: longest - 1 - tail]}…{text[len(text) - tail :]}"


def kernel_names(kernels: Sequence[Any]) -> list[str]:
    """One readable name per kernel: its repr, with its position where two would look the same."""
    names = [repr(kernel) for kernel in kernels]
    counts = {name: names.count(name) for name in set(names)} if len(set(names)) < len(names) else {}
    return [f"{name} #{position}" if counts.get(name, 1) > 1 else name for position, name in enumerate(names)]


def head_names(model: Any) -> list[str]:
    """Names of the decision values of a model: its classes when there is one per class."""
    n_heads = len(np.atleast_2d(model.dual_coef_))
    classes = getattr(model, "classes_", ())
    if n_heads > 1 and len(classes) == n_heads:
        return [str(label) for label in classes]
    return [f"head {h}" for h in range(n_heads)] if n_heads > 1 else [""]


def weight_rows(model: Any) -> tuple[np.ndarray, list[str]]:
    """Weights of a model as (rows, M), and a name per row: class, cluster, or both; one unnamed row for weights (M,)."""
    weights = np.asarray(model.kernel_weights_, np.float64)
    heads = head_names(model)
    if weights.ndim == 1:
        return weights[None], [""]
    if weights.ndim == 2:
        if len(heads) == len(weights) and len(heads) > 1:
            return weights, heads
        return weights, [f"cluster {j}" for j in range(len(weights))]
    return weights.reshape(-1, weights.shape[-1]), [
        f"{heads[h] if h < len(heads) else h}, cluster {j}" for h in range(weights.shape[0]) for j in range(weights.shape[1])
    ]


class _Display:
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
    def _heat_map(ax: Any, values: np.ndarray, rows: Sequence[str], columns: Sequence[str], low: float, high: float, label: str) -> None:
        image = ax.imshow(values, cmap=HEAT, vmin=low, vmax=high, aspect="auto", interpolation="nearest")
        ax.figure.colorbar(image, ax=ax, label=label)
        ax.set_xticks(range(len(columns)), [shorten(name) for name in columns], rotation=45, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(rows)), [shorten(name) for name in rows])
        if max(values.shape) <= ANNOTATED:
            for (i, j), value in np.ndenumerate(values):
                dark = value < low + 0.55 * (high - low)
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color="white" if dark else "black")


def _fitted(model: Any, attribute: str) -> None:
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, attribute)


class KernelWeightsDisplay(_Display):
    """Weights of the kernels: bars, or a heat map when there are several sets of weights (per class or per cluster).

    Parameters
    ----------
    weights : (M,) or (rows, M) weights.
    names : M names of kernels.
    rows : names of the rows, for (rows, M).

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure, after `plot`.

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
    def from_estimator(cls, model: Any, *, ax: Any = None, top: int = 30, sort: bool = True) -> KernelWeightsDisplay:
        """Draw the weights of a fitted model. top, sort : see `plot`."""
        _fitted(model, "kernel_weights_")
        weights, rows = weight_rows(model)
        names = kernel_names(model.kernels_)
        display = cls(weights[0], names) if rows == [""] else cls(weights, names, rows)
        return display.plot(ax=ax, top=top, sort=sort)

    def plot(self, ax: Any = None, *, top: int = 30, sort: bool = True) -> KernelWeightsDisplay:
        """Draw on `ax`, or on a new figure.

        top : kernels to show at most, those with the largest weight. sort : largest first, else in the order of the list.
        """
        weights = np.atleast_2d(np.asarray(self.weights, np.float64))
        if weights.shape[1] != len(self.names):
            raise ValueError(f"names has {len(self.names)} entries, but there are weights of {weights.shape[1]} kernels")
        largest = np.argsort(-weights.max(axis=0), kind="stable")[:top]
        shown = largest if sort else np.sort(largest)
        names = [self.names[m] for m in shown]
        left = weights.shape[1] - len(shown)
        more = f" (the {len(shown)} largest of {weights.shape[1]})" if left else ""
        if self.rows is None:
            ax = self._axes(ax, 7.0, 1.2 + 0.28 * len(shown))
            ax.barh(range(len(shown)), weights[0, shown], color=PALETTE[0])
            ax.set_yticks(range(len(shown)), [shorten(name) for name in names])
            ax.invert_yaxis()
            ax.set_xlabel("weight")
            ax.set_title("Kernel weights" + more)
            return self
        ax = self._axes(ax, 2.5 + 0.45 * len(shown), 2.2 + 0.4 * len(weights))
        self._heat_map(ax, weights[:, shown], self.rows, names, 0.0, float(max(weights.max(), 1e-300)), "weight")
        ax.set_title("Kernel weights" + more)
        return self


class ConvergenceDisplay(_Display):
    """The run of a fit: relative duality gap, or primal and dual objective, against seconds or rounds.

    Parameters
    ----------
    history : the `history_` of a model: one dict per round and head.
    heads : names of the heads.
    tol : the gap that was asked for, or None.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure, after `plot`.

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
    def from_estimator(cls, model: Any, *, ax: Any = None, kind: str = "gap", x: str = "seconds") -> ConvergenceDisplay:
        """Draw the run of a fitted model. kind, x : see `plot`."""
        _fitted(model, "history_")
        return cls(model.history_, head_names(model), getattr(model, "tol", None)).plot(ax=ax, kind=kind, x=x)

    def plot(self, ax: Any = None, *, kind: str = "gap", x: str = "seconds") -> ConvergenceDisplay:
        """Draw on `ax`, or on a new figure. kind : "gap" or "objectives". x : "seconds" or "round"."""
        for name, value, known in (("kind", kind, ("gap", "objectives")), ("x", x, ("seconds", "round"))):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}")
        ax = self._axes(ax, 7.0, 4.0)
        runs: dict[int, list[dict]] = {}
        for row in self.history:
            runs.setdefault(row.get("head", 0), []).append(row)
        for position, (head, rows) in enumerate(sorted(runs.items())):
            name = self.heads[head] if self.heads and head < len(self.heads) else f"head {head}"
            color = PALETTE[position % len(PALETTE)]
            where = [row[x] for row in rows]
            if kind == "gap":
                gaps = [row["gap"] if row["gap"] > 0 else np.nan for row in rows]
                ax.plot(where, gaps, color=color, marker=".", label=name or "gap")
            else:
                prefix = f"{name}: " if name else ""
                ax.plot(where, [row["primal"] for row in rows], color=color, marker=".", label=f"{prefix}primal")
                ax.plot(where, [row["dual"] for row in rows], color=color, marker=".", linestyle="--", label=f"{prefix}dual")
        ax.set_xlabel("seconds" if x == "seconds" else "round")
        if kind == "gap":
            ax.set_yscale("log")
            ax.set_ylabel("relative duality gap")
            if self.tol:
                ax.axhline(self.tol, color=PALETTE[6], linestyle=":", label=f"tol = {self.tol:g}")
        else:
            ax.set_ylabel("objective")
        if runs:
            ax.legend(fontsize=8, ncols=2 if len(runs) > 6 else 1)
        ax.set_title("Convergence")
        return self


class AlignmentDisplay(_Display):
    """Centred alignment of every pair of kernels as a heat map; with labels, alignment with them in a last row and column.

    Parameters
    ----------
    alignment : (M, M), see `raymkl.diagnostics.alignment`.
    names : M names of kernels.
    target : (M,) alignments with the labels, or None.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import kernels
    >>> from raymkl.plot import AlignmentDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> display = AlignmentDisplay.from_kernels(kernels.rbf([0.01, 0.1, 1.0]), X, y)
    """

    def __init__(self, alignment: np.ndarray, names: Sequence[str], target: np.ndarray | None = None):
        self.alignment = alignment
        self.names = names
        self.target = target

    @classmethod
    def from_estimator(cls, model: Any, X: Any = None, y: Any = None, *, ax: Any = None, max_rows: int = 1000) -> AlignmentDisplay:
        """Draw the alignment of the kernels of a fitted model on X, or on its support vectors when X is None."""
        _fitted(model, "kernels_")
        return cls._from(model, model.kernels_, X, y, ax, max_rows)

    @classmethod
    def from_kernels(cls, kernels: Any, X: Any = None, y: Any = None, *, ax: Any = None, max_rows: int = 1000) -> AlignmentDisplay:
        """Draw the alignment of a list of kernels on X, or of a stack of matrices (n, n, M)."""
        return cls._from(kernels, kernels, X, y, ax, max_rows)

    @classmethod
    def _from(cls, source: Any, bank: Any, X: Any, y: Any, ax: Any, max_rows: int) -> AlignmentDisplay:
        from .diagnostics import alignment
        from .kernels.base import Kernel

        found = alignment(source, X, y, max_rows=max_rows)
        matrix: Any
        matrix, target = (found, None) if y is None else found
        bank = [bank] if isinstance(bank, Kernel) else bank
        matrices = isinstance(bank, str | np.ndarray)
        names = [f"matrix {m}" for m in range(len(matrix))] if matrices else kernel_names(list(bank))
        return cls(matrix, names, target).plot(ax=ax)

    def plot(self, ax: Any = None) -> AlignmentDisplay:
        """Draw on `ax`, or on a new figure."""
        matrix, names = np.asarray(self.alignment, np.float64), list(self.names)
        if matrix.shape != (len(names), len(names)):
            raise ValueError(f"alignment has shape {matrix.shape}, but there are {len(names)} names")
        if self.target is not None:
            target = np.asarray(self.target, np.float64)
            matrix = np.block([[matrix, target[:, None]], [target[None], np.ones((1, 1))]])
            names = [*names, "labels"]
        side = 2.6 + 0.42 * min(len(names), 40)
        ax = self._axes(ax, side + 1.0, side)
        self._heat_map(ax, matrix, names, names, min(0.0, float(matrix.min())), 1.0, "centred alignment")
        if len(names) > 60:
            ax.set_xticks([])
            ax.set_yticks([])
        ax.set_title("Kernel alignment")
        return self


class SpectraDisplay(_Display):
    """Eigenvalues of kernel matrices against their rank, both axes logarithmic; a power law is a straight line.

    Parameters
    ----------
    eigenvalues : (M, n), largest first, see `raymkl.diagnostics.spectra`.
    names : M names of kernels.
    decay : (M,) slopes to write beside the names, or None.

    Attributes
    ----------
    ax_, figure_ : matplotlib axes and figure, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import kernels
    >>> from raymkl.plot import SpectraDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> display = SpectraDisplay.from_kernels(kernels.rbf([0.01, 0.1, 1.0]), X)
    """

    def __init__(self, eigenvalues: np.ndarray, names: Sequence[str], decay: np.ndarray | None = None):
        self.eigenvalues = eigenvalues
        self.names = names
        self.decay = decay

    @classmethod
    def from_estimator(cls, model: Any, X: Any = None, *, ax: Any = None, max_rows: int = 1000, top: int = 12) -> SpectraDisplay:
        """Draw the spectra of the kernels of a fitted model on X, or on its support vectors when X is None."""
        _fitted(model, "kernels_")
        return cls.from_kernels(model, X, ax=ax, max_rows=max_rows, top=top)

    @classmethod
    def from_kernels(cls, kernels: Any, X: Any = None, *, ax: Any = None, max_rows: int = 1000, top: int = 12) -> SpectraDisplay:
        """Draw the spectra of a list of kernels on X, or of a stack of matrices (n, n, M). top : see `plot`."""
        from .diagnostics import spectra

        found = spectra(kernels, X, max_rows=max_rows)
        return cls(found.eigenvalues, found.names, found.decay).plot(ax=ax, top=top)

    def plot(self, ax: Any = None, *, top: int = 12) -> SpectraDisplay:
        """Draw on `ax`, or on a new figure. top : kernels to show at most, evenly spaced in the list."""
        values = np.atleast_2d(np.asarray(self.eigenvalues, np.float64))
        if len(values) != len(self.names):
            raise ValueError(f"eigenvalues are those of {len(values)} kernels, but there are {len(self.names)} names")
        shown = np.unique(np.linspace(0, len(values) - 1, min(top, len(values))).round().astype(int))
        ax = self._axes(ax, 7.0, 4.5)
        for position, m in enumerate(shown):
            slope = "" if self.decay is None or not np.isfinite(self.decay[m]) else f" (decay {self.decay[m]:.2g})"
            there = values[m] > 1e-14 * max(values[m, 0], 1e-300)
            style = ("-", "--", ":")[position // len(PALETTE) % 3]
            label = shorten(self.names[m]) + slope
            rank = np.flatnonzero(there) + 1
            ax.plot(rank, values[m, there], style, color=PALETTE[position % len(PALETTE)], marker=".", markersize=3, label=label)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("rank")
        ax.set_ylabel("eigenvalue of K / n")
        ax.legend(fontsize=8)
        ax.set_title("Kernel spectra" + (f" ({len(shown)} of {len(values)})" if len(shown) < len(values) else ""))
        return self
