"""Kernel matrices: how alike they are, and their spectra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Display, fitted, kernel_names
from .drawing import heat_map, legend, line, log_scale, shorten


class AlignmentDisplay(Display):
    """Centred alignment of every pair of kernels as a heat map; with labels, alignment with them in a last
    row and column.

    Parameters
    ----------
    alignment : ndarray of shape (M, M)
        See `raymkl.diagnostics.alignment`.
    names : list of str
        Names of the M kernels.
    target : ndarray of shape (M,), or None
        Alignments with the labels.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

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
    def from_estimator(
        cls, model: Any, X: Any = None, y: Any = None, *, ax: Any = None, max_rows: int = 1000
    ) -> AlignmentDisplay:
        """Draw the alignment of the kernels of a fitted model on X, or on its support vectors when X is
        None.

        Parameters
        ----------
        model : fitted estimator
            Any with kernels.
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
            Examples; None for the support vectors.
        y : array-like of shape (n,), or None
            Labels, for the alignment with them.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        max_rows : int
            Rows that are used at most, see `raymkl.diagnostics.alignment`.

        Returns
        -------
        display : AlignmentDisplay
            Drawn.
        """
        fitted(model, "kernels_")
        return cls._from(model, model.kernels_, X, y, ax, max_rows)

    @classmethod
    def from_kernels(
        cls, kernels: Any, X: Any = None, y: Any = None, *, ax: Any = None, max_rows: int = 1000
    ) -> AlignmentDisplay:
        """Draw the alignment of a list of kernels on X, or of a stack of matrices (n, n, M).

        Parameters
        ----------
        kernels : list of Kernel, or ndarray of shape (n, n, M)
            The kernels, or their ready-made matrices.
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
            Examples; None for ready-made matrices.
        y : array-like of shape (n,), or None
            Labels, for the alignment with them.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        max_rows : int
            Rows that are used at most, see `raymkl.diagnostics.alignment`.

        Returns
        -------
        display : AlignmentDisplay
            Drawn.
        """
        return cls._from(kernels, kernels, X, y, ax, max_rows)

    @classmethod
    def _from(cls, source: Any, bank: Any, X: Any, y: Any, ax: Any, max_rows: int) -> AlignmentDisplay:
        from ..diagnostics import alignment
        from ..kernels.base import Kernel

        found = alignment(source, X, y, max_rows=max_rows)
        matrix: Any
        matrix, target = (found, None) if y is None else found
        bank = [bank] if isinstance(bank, Kernel) else bank
        matrices = isinstance(bank, str | np.ndarray)
        names = [f"matrix {m}" for m in range(len(matrix))] if matrices else kernel_names(list(bank))
        return cls(matrix, names, target).plot(ax=ax)

    def _matrix(self) -> tuple[np.ndarray, list[str]]:
        """What is drawn, and the names of its rows."""
        matrix, names = np.asarray(self.alignment, np.float64), list(self.names)
        if matrix.shape != (len(names), len(names)):
            raise ValueError(f"alignment has shape {matrix.shape}, but there are {len(names)} names")
        if self.target is None:
            return matrix, names
        target = np.asarray(self.target, np.float64)
        return np.block([[matrix, target[:, None]], [target[None], np.ones((1, 1))]]), [*names, "labels"]

    def _size(self) -> tuple[float, float]:
        side = 2.6 + 0.42 * min(len(self._matrix()[1]), 40)
        return side + 1.0, side

    def _draw(self, ax: Any) -> None:
        matrix, names = self._matrix()
        low = min(0.0, float(matrix.min()))
        heat_map(ax, self.style, matrix, names, names, low, 1.0, "centred alignment")
        if len(names) > 60:
            ax.set_xticks([])
            ax.set_yticks([])
        ax.set_title("Kernel alignment")


class SpectraDisplay(Display):
    """Eigenvalues of kernel matrices against their rank, both axes logarithmic; a power law is a straight
    line.

    Parameters
    ----------
    eigenvalues : ndarray of shape (M, n)
        Largest first, see `raymkl.diagnostics.spectra`.
    names : list of str
        Names of the M kernels.
    decay : ndarray of shape (M,), or None
        Slopes to write beside the names.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        Where it was drawn, after `plot`.
    figure_ : matplotlib.figure.Figure
        Its figure.

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
    def from_estimator(
        cls, model: Any, X: Any = None, *, ax: Any = None, max_rows: int = 1000, top: int = 12
    ) -> SpectraDisplay:
        """Draw the spectra of the kernels of a fitted model on X, or on its support vectors when X is
        None.

        Parameters
        ----------
        model : fitted estimator
            Any with kernels.
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
            Examples; None for the support vectors.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        max_rows : int
            Rows that are used at most, see `raymkl.diagnostics.alignment`.
        top : int
            Kernels to show at most, evenly spaced in the list.

        Returns
        -------
        display : SpectraDisplay
            Drawn.
        """
        fitted(model, "kernels_")
        return cls.from_kernels(model, X, ax=ax, max_rows=max_rows, top=top)

    @classmethod
    def from_kernels(
        cls, kernels: Any, X: Any = None, *, ax: Any = None, max_rows: int = 1000, top: int = 12
    ) -> SpectraDisplay:
        """Draw the spectra of a list of kernels on X, or of a stack of matrices (n, n, M).

        Parameters
        ----------
        kernels : list of Kernel, or ndarray of shape (n, n, M)
            The kernels, or their ready-made matrices.
        X : array-like of shape (n, d), DataFrame, list, dict, Views, path or None
            Examples; None for ready-made matrices.
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        max_rows : int
            Rows that are used at most, see `raymkl.diagnostics.alignment`.
        top : int
            Kernels to show at most, evenly spaced in the list.

        Returns
        -------
        display : SpectraDisplay
            Drawn.
        """
        from ..diagnostics import spectra

        found = spectra(kernels, X, max_rows=max_rows)
        return cls(found.eigenvalues, found.names, found.decay).plot(ax=ax, top=top)

    def plot(self, ax: Any = None, *, top: int = 12) -> SpectraDisplay:
        """Draw the eigenvalues of the kernels.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.
        top : int
            Kernels to show at most, evenly spaced in the list.

        Returns
        -------
        display : object
            The display itself, with `ax_` and `figure_`.
        """
        values = np.atleast_2d(np.asarray(self.eigenvalues, np.float64))
        if len(values) != len(self.names):
            raise ValueError(
                f"eigenvalues are those of {len(values)} kernels, but there are {len(self.names)} names"
            )
        shown = np.unique(np.linspace(0, len(values) - 1, min(top, len(values))).round().astype(int))
        ax = self._axes(ax, 7.0, 4.5)
        for position, m in enumerate(shown):
            slope = (
                ""
                if self.decay is None or not np.isfinite(self.decay[m])
                else f" (decay {self.decay[m]:.2g})"
            )
            there = values[m] > 1e-14 * max(values[m, 0], 1e-300)
            rank = np.flatnonzero(there) + 1
            line(ax, self.style, position, rank, values[m, there], shorten(self.names[m]) + slope)
        log_scale(ax.xaxis)
        log_scale(ax.yaxis)
        ax.set_xlabel("rank")
        ax.set_ylabel("eigenvalue of K / n")
        legend(ax)
        ax.set_title(
            "Kernel spectra" + (f" ({len(shown)} of {len(values)})" if len(shown) < len(values) else "")
        )
        return self
