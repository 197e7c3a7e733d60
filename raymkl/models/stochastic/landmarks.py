"""Models over landmarks, f_k(x) = sum_ml coef[k, m, l] k_m(x, z_l): expansions whose support vectors are the
landmarks.
"""

from __future__ import annotations

import numpy as np

from ...data.lazy_rows import fetch
from ...engine.programs.landmarks import Featured
from ...kernels.base import Kernel
from ...kernels.pairs.families import NO_GATE
from ..description.diagonals import row_gates
from ..expansion import Expansion


def rows_of_landmarks(rows: dict, kernels: list[Kernel], ids: np.ndarray) -> dict:
    """Features of some rows by view key, of the views that kernels read."""
    return fetch({key: rows[key] for kernel in kernels for key in kernel.views}, ids)


def expansion_over(
    landmarks: np.ndarray, rows: dict, kernels: list[Kernel], found: Featured, spherical: bool, n_train: int
) -> Expansion:
    """What predictions are made of.

    landmarks : (L,) numbers of training rows. rows : their features. spherical : whether kernels are
    normalised so. n_train : rows that the model was trained on.
    """
    K, M, L = found.points.shape
    return Expansion(
        kernels=kernels,
        weights=np.tile(found.mu * found.normalisation, (K, 1)),
        coefficients=np.ones((K, L)),
        support=landmarks,
        support_rows=rows,
        n_train=n_train,
        gate_of_entry=list(range(M)) if spherical else [NO_GATE] * M,
        support_gates=row_gates(kernels, rows) if spherical else None,
        entry_factors=found.points,
    )
