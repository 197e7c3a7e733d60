"""Tail sums and costs of the kernels of a stochastic fit, both of the kernels as they were given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine import RayParams
from ...kernels.base import Kernel
from ...kernels.normalize import zeta_of
from ..description.tails import ZETA, costs_of, tail_sums


def costs_of_stream(kernel_costs: Any, n_kernels: int) -> np.ndarray:
    """(M,) costs that no rows are needed for; ones for None, and for "tail", which does without prices."""
    costs = costs_of(kernel_costs, n_kernels)
    return costs if isinstance(costs, np.ndarray) else np.ones(n_kernels)


def tails_and_costs(
    rows: dict,
    kernels: list[Kernel],
    used: np.ndarray,
    normalize: Any,
    beta: float,
    kernel_costs: Any,
    engine: Any,
    ray_params: RayParams | None,
) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray]:
    """Tail sums (M,) or None where none are asked for, factors (M,) of normalisation by them or None for
    another kind, and costs (M,).

    used : (n,) bool, rows that count. The rest as estimators have it.
    """
    zeta, costs = zeta_of(normalize), costs_of(kernel_costs, len(kernels))
    priced = isinstance(costs, str) and beta > 0
    sums: dict[int, np.ndarray] = {}
    for wanted in dict.fromkeys(([] if zeta is None else [zeta]) + ([ZETA] if priced else [])):
        # A kernel without a tail costs nothing, but cannot be divided by it.
        sums[wanted] = tail_sums(rows, kernels, used, wanted, engine, ray_params, needed=wanted == zeta)
    if costs is None or isinstance(costs, str):
        costs = sums[ZETA] / used.sum() if priced else np.ones(len(kernels))
    shown = sums[ZETA if zeta is None else zeta] if sums else None
    return shown, None if zeta is None else 1.0 / sums[zeta], costs
