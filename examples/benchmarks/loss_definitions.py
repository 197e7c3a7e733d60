"""Losses by their definitions, in numpy: value, term of the dual, and how far a dual point is from feasible.

Not a program; `recomputed.py` takes certificates from it. Nothing of the library takes part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import xlogy


def loss_values(model: Any, f: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Loss of every row at decision values f. y : +1/-1, or numbers."""
    r, margin = y - f, np.maximum(1.0 - y * f, 0.0)
    name = name_of(model)
    if name == "hinge":
        return margin
    if name == "squared_hinge":
        return margin**2 / 2
    if name == "logistic":
        return np.logaddexp(0.0, -y * f)
    if name == "squared":
        return r**2 / 2
    if name == "epsilon_insensitive":
        return np.maximum(np.abs(r) - model.epsilon, 0.0)
    if name == "squared_epsilon_insensitive":
        return np.maximum(np.abs(r) - model.epsilon, 0.0) ** 2 / 2
    if name == "huber":
        return np.where(np.abs(r) < model.delta, r**2 / 2, model.delta * np.abs(r) - model.delta**2 / 2)
    if name == "quantile":
        return np.maximum(model.quantile * r, (model.quantile - 1.0) * r)
    return np.maximum(0.0, -f)  # one class


def dual_term(model: Any, a: np.ndarray, y: np.ndarray, C: float) -> tuple[float, float]:
    """Sum of the terms, and by how much the box is left at most, in units of C."""
    alpha, ridge, name = a * y, float(np.sum(a**2)) / (2 * C), name_of(model)
    margin = max(0.0, -float(alpha.min()) / C, float(alpha.max()) / C - 1.0)
    if name == "hinge":
        return float(alpha.sum()), margin
    if name == "squared_hinge":
        return float(alpha.sum()) - ridge, max(0.0, -float(alpha.min()) / C)
    if name == "logistic":
        share = np.clip(alpha / C, 0.0, 1.0)
        return -C * float(np.sum(xlogy(share, share) + xlogy(1.0 - share, 1.0 - share))), margin
    if name == "squared":
        return float(alpha.sum()) - ridge, 0.0
    if name in ("epsilon_insensitive", "squared_epsilon_insensitive"):
        linear = float(alpha.sum()) - model.epsilon * float(np.abs(a).sum())
        tube = name == "epsilon_insensitive"
        return (linear, max(0.0, float(np.abs(a).max()) / C - 1.0)) if tube else (linear - ridge, 0.0)
    if name == "huber":
        return float(alpha.sum()) - ridge, max(0.0, float(np.abs(a).max()) / (C * model.delta) - 1.0)
    if name == "quantile":
        return float(alpha.sum()), max(
            0.0, float(a.max()) / C - model.quantile, model.quantile - 1.0 - float(a.min()) / C
        )
    return 0.0, max(0.0, -float(a.min()), float(a.max()) - 1.0)  # one class


def total_of(model: Any, n: int) -> float:
    """What the dual variables sum to; the primal adds it, times b."""
    return float(model.nu) * n if name_of(model) == "one_class" else 0.0


def name_of(model: Any) -> str:
    return "one_class" if hasattr(model, "nu") else model.loss
