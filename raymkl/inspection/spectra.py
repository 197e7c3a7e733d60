"""Spectra of kernel matrices: how many directions of feature space the examples fill, and how quickly that
falls off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.normalize import scales
from .centred import sampled

# Eigenvalues below this part of the largest one are round-off and take no part in the fit of their decay.
ROUND_OFF = 1e-10


@dataclass(frozen=True)
class Spectra:
    """Eigenvalues of a set of M kernel matrices of n rows.

    Parameters
    ----------
    eigenvalues : ndarray of shape (M, n)
        Of K_m / n, largest first, none negative.
    decay : ndarray of shape (M,)
        alpha of the fit eigenvalue_j ~ j^-alpha; infinite for a kernel with one eigenvalue.
    names : list of str
        Of the kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from raymkl import diagnostics, kernels
    >>> diagnostics.spectra([kernels.Linear()], np.eye(3)).eigenvalues.round(2)
    array([[0.33, 0.33, 0.33]])
    """

    eigenvalues: np.ndarray
    decay: np.ndarray
    names: Sequence[str]

    def plot(self, ax: Any = None) -> Any:
        """Draw the eigenvalues.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None
            Where to draw; None for a new figure.

        Returns
        -------
        display : raymkl.plot.SpectraDisplay
            What was drawn.
        """
        from ..plot import SpectraDisplay

        return SpectraDisplay(self.eigenvalues, self.names, self.decay).plot(ax=ax)


def spectra(
    kernels: Any, X: Any = None, *, only: Any = None, max_rows: int = 1000, random_state: int | None = None
) -> Spectra:
    """Eigenvalues of every kernel matrix, and how quickly they fall.

        K_m / n = sum_j lambda_mj u_j u_j',      lambda_m1 >= lambda_m2 >= ... >= 0
        lambda_mj ~ j^-alpha_m

    They estimate the eigenvalues of the kernel's covariance operator, which the local bound depends on
    (`bound_factor(model, decay=spectra(...).decay)`). alpha is the slope of a straight line through (log j,
    log lambda_j), with weights 1/j so that every octave of j counts alike; what is below round-off is left
    out. Gaussian kernels fall quicker than any power: their alpha describes the eigenvalues that there are.
    The last ones of a sample are smaller than those of the operator, so alpha leans to the high side.

    Parameters
    ----------
    kernels, X, only : object
        As for `alignment`; the kernels of a fitted model are normalised as there.
    max_rows : int
        Larger data are sub-sampled to so many rows; n is then their number. One matrix is held at a time.
    random_state : int or None
        As for `alignment`.

    Returns
    -------
    found : Spectra
        `eigenvalues` (M, n) and `decay` (M,).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from raymkl import diagnostics, kernels
    >>> X, _ = load_iris(return_X_y=True)
    >>> found = diagnostics.spectra(kernels.rbf([0.1, 10.0]), X)
    >>> found.eigenvalues.shape, bool(found.decay[0] > found.decay[1])
    ((2, 150), True)
    """
    from ..plot import kernel_names

    sample = sampled(kernels, X, max_rows, random_state, only)
    n = len(sample.chosen)
    values = np.empty((len(sample.bank), n))
    for m, matrix in sample.matrices():
        found = np.maximum(np.linalg.eigvalsh((matrix + matrix.T) / 2)[::-1], 0.0)
        factor = scales(
            sample.normalize, np.array([np.trace(matrix)]), np.array([matrix.sum()]), n, found[None]
        )[0]
        values[m] = found * (factor / n)
    return Spectra(values, np.array([fitted_decay(row) for row in values]), kernel_names(sample.bank))


def fitted_decay(eigenvalues: np.ndarray) -> float:
    """alpha of a power law j^-alpha through eigenvalues (n,), largest first."""
    kept = eigenvalues[eigenvalues > ROUND_OFF * max(eigenvalues[0], 1e-300)]
    if len(kept) < 2:
        return np.inf
    position = np.arange(1.0, len(kept) + 1)
    slope, _ = np.polyfit(np.log(position), np.log(kept), 1, w=position**-0.5)  # polyfit squares its weights
    return float(-slope)
