"""A fitted model in words and in JSON: what `raymkl info`, `train` and `search` print."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from ..models.table_model import TableModel

# Kernels that are listed with their weights at most.
MOST_LINES = 40


def plain(value: Any) -> Any:
    """A value that JSON can hold: arrays as lists, infinities and NaN as text, everything unknown by its
    repr.
    """
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def describe(model: Any, path: Any = None) -> dict:
    """What there is to know about a fitted model, ready for JSON.

    Weights are a list of M numbers, or one list per class; gap and objectives a number, or one per class.
    """
    preparation = model.preparation if isinstance(model, TableModel) else None
    fitted = model.model if isinstance(model, TableModel) else model
    told: dict[str, Any] = {"model": type(fitted).__name__}
    if path is not None:
        told.update(file=str(path), bytes=os.path.getsize(path))
    for name, attribute in (
        ("classes", "classes_"),
        ("kernel_weights", "kernel_weights_"),
        ("duality_gap", "duality_gap_"),
        ("primal_objective", "primal_objective_"),
        ("dual_objective", "dual_objective_"),
        ("intercept", "intercept_"),
        ("converged", "converged_"),
        ("n_iterations", "n_iter_"),
    ):
        if hasattr(fitted, attribute):
            told[name] = getattr(fitted, attribute)
    told["kernels"] = [repr(kernel) for kernel in getattr(fitted, "kernels_", [])]
    told["n_support"] = len(getattr(fitted, "support_", []))
    told["n_rows"] = fitted.expansion_.n_train if hasattr(fitted, "expansion_") else None
    told["seconds"] = max((row.get("seconds", 0.0) for row in getattr(fitted, "history_", [])), default=None)
    params = fitted.get_params(deep=False)
    told.update(
        {
            name: params[name]
            for name in ("C", "p", "loss", "normalize", "tol", "solver", "theta_step", "class_weight")
            if name in params
        }
    )
    if params.get("norm") is not None:  # in place of p
        told.pop("p", None)
        told["norm"] = repr(params["norm"])
    if preparation is not None:
        told.update(
            target=preparation.target,
            features=preparation.feature_names,
            views={"X" if view is None else view: names for view, names in preparation.views.items()},
            standardized=bool(preparation.scale),
        )
    return plain(told)


def lines_of(told: dict) -> list[str]:
    """The same for people."""
    lines = []
    if "file" in told:
        lines.append(f"{told['file']}: {told['model']}, {_bytes(told['bytes'])}")
    if "classes" in told:
        shown = ", ".join(map(str, told["classes"][:12])) + (", ..." if len(told["classes"]) > 12 else "")
        lines.append(f"classes          {shown}")
    if told.get("target") is not None:
        lines.append(f"target           {told['target']}")
    if "features" in told:
        names = told["features"]
        shown = ", ".join(names[:8]) + (f", ... ({len(names)} columns)" if len(names) > 8 else "")
        lines.append(f"features         {shown}{'; standardised' if told['standardized'] else ''}")
    settings = [
        f"{name} = {_number(told[name])}" for name in ("C", "p", "norm", "loss", "normalize") if name in told
    ]
    lines.append(f"settings         {', '.join(settings)}")
    lines.append(
        f"trained on       {told['n_rows']} rows, {told['n_support']} support vectors, "
        f"{told.get('n_iterations')} rounds"
    )
    if "duality_gap" in told:
        short = "" if told.get("converged", True) else "   (above the tolerance: not converged)"
        lines.append(f"duality gap      {np.max(told['duality_gap']):.1e}{short}")
    return [*lines, "weights", *weight_lines(told)]


def weight_lines(told: dict) -> list[str]:
    """Kernels by weight, largest first, with bars; the mean where every class or cluster has its own. Of many
    kernels the largest, and how many are left out.
    """
    if "kernel_weights" not in told or not told["kernels"]:
        return []
    weights = np.asarray(told["kernel_weights"], dtype=float).reshape(-1, len(told["kernels"])).mean(axis=0)
    largest = max(weights.max(initial=0.0), 1e-300)
    order = np.argsort(-weights, kind="stable")
    lines = [
        f"  {weights[m]:8.4f}  {'#' * round(30 * weights[m] / largest):<30}  {told['kernels'][m]}"
        for m in order[:MOST_LINES]
    ]
    left = len(order) - len(lines)
    return [*lines, f"  ... and {left:,} more with smaller weights (--json has all)"] if left else lines


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _bytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
