"""Primal, dual and the gap between them.

    primal(w, b) >= optimum >= dual(a)    for every w, b and every feasible a

so `(primal - dual) / |primal|` bounds how far both are from the optimum, whatever produced them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .norms import Norm


@dataclass(frozen=True)
class Certificate:
    """primal, dual : objective values. gap : relative. intercept : the b of the primal point.

    svm_gap, weight_gap : how much of the absolute gap is due to the dual variables at these weights, and to
    the weights.
    """

    primal: float
    dual: float
    gap: float
    intercept: float
    svm_gap: float
    weight_gap: float


def certify(
    norm: Norm,
    theta: np.ndarray,
    s: np.ndarray,
    dual_value: float,
    intercepts: np.ndarray,
    losses: np.ndarray,
) -> Certificate:
    """Certificate of weights theta (M,) and a dual point with quadratic terms s (M,).

    dual_value : the part of the dual objective that is not the norm. losses : (B,) weighted loss over all
    rows for each candidate in `intercepts` (B,).
    """
    s = np.maximum(s, 0.0)
    best = int(np.argmin(losses))
    at_theta = float(theta @ s)
    dual_norm = norm.dual(s)
    primal_norm = norm.primal(theta * np.sqrt(s))
    primal = 0.5 * primal_norm + float(losses[best])
    dual = dual_value - 0.5 * dual_norm
    return Certificate(
        primal=primal,
        dual=dual,
        gap=(primal - dual) / max(abs(primal), 1e-300),
        intercept=float(intercepts[best]),
        svm_gap=float(losses[best]) + at_theta - dual_value,
        weight_gap=norm.weight_gap(at_theta, primal_norm, dual_norm),
    )


def certify_held(
    at_weights: float, dual_value: float, intercepts: np.ndarray, losses: np.ndarray
) -> Certificate:
    """What is known of a point while its weights are held: the certificate of the SVM at these weights. The
    weights' own part of the gap is not known; it is that of the certificate above.

    at_weights : sum_m theta_m s_m. The rest is as above.
    """
    best = int(np.argmin(losses))
    primal, dual = 0.5 * at_weights + float(losses[best]), dual_value - 0.5 * at_weights
    return Certificate(
        primal, dual, (primal - dual) / max(abs(primal), 1e-300), float(intercepts[best]), primal - dual, 0.0
    )


def intercept_candidates(center: float, width: float, extra: tuple = ()) -> np.ndarray:
    """Candidates for b: dense near `center`, reaching `width` to both sides, and `extra` ones."""
    offsets = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 8)])
    around = max(width, 0.0) * np.concatenate([-offsets[:0:-1], offsets])
    return np.unique(np.concatenate([center + around, np.asarray(extra, float)]))


def intercept_from_residuals(
    residual: np.ndarray | tuple[np.ndarray, np.ndarray],
    may_grow: np.ndarray,
    may_shrink: np.ndarray,
    weight: np.ndarray,
) -> float | None:
    """b from the optimality conditions: the residual of rows strictly inside their box, averaged; else the
    middle of its bounds.

    residual : (q,) target minus f without b, or a pair of them (of growing, of shrinking), which differ at
    kinks; a row at a kink only bounds b. weight : (q,) bounds, so that merging equal rows does not change the
    mean.
    """
    growing, shrinking = residual if isinstance(residual, tuple) else (residual, residual)
    free = may_grow & may_shrink & (growing == shrinking)
    if free.any():
        return float(np.average(growing[free], weights=weight[free]))
    if may_grow.any() and may_shrink.any():
        return float((growing[may_grow].max() + shrinking[may_shrink].min()) / 2)
    return None
