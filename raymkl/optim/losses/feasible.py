"""Points that are brought into the box of a loss and onto their sum, as it takes to begin with the solution
of another problem.
"""

from __future__ import annotations

import numpy as np

from .loss import Terms

LEVEL_STEPS = 60


def feasible(terms: Terms, a: np.ndarray, total: float = 0.0) -> np.ndarray:
    """The point a (n,) brought into the box and onto sum(a) = total; a point that is feasible stays as it is,
    up to round-off.
    """
    a = np.clip(a, terms.lower, terms.upper)
    if terms.loss.is_joint:  # what sums to zero are the variables of a row, over several heads
        return a
    if terms.loss.is_smooth:
        rows = np.flatnonzero(terms.bounds > 0)
        a[rows] = keeping_sum(terms.of(rows), terms.of(rows).slope(a[rows]), total)
        return a
    if total:
        missing = total - a.sum()
        room = terms.upper - a if missing > 0 else a - terms.lower
        return np.clip(a + missing * room / max(room.sum(), 1e-300), terms.lower, terms.upper)
    # The heavier side shrinks.
    positive, negative = a[a > 0].sum(), -a[a < 0].sum()
    if positive > negative:
        a = np.where(a > 0, a * (negative / positive), a)
    elif negative > positive:
        a = np.where(a < 0, a * (positive / negative), a)
    return a


def keeping_sum(terms: Terms, slopes: np.ndarray, total: float) -> np.ndarray:
    """Dual variables (n,) of smooth terms with the given slopes (n,), all shifted by one number such that
    they sum to `total`.
    """
    low, high, shift = -np.inf, np.inf, 0.0
    values = terms.at_slope(slopes)
    for _ in range(LEVEL_STEPS):
        excess = float(values.sum()) - total
        if excess == 0.0:
            break
        if excess > 0:  # larger slopes belong to smaller variables
            low = shift
        else:
            high = shift
        rate = float(np.sum(1.0 / np.maximum(terms.curvature(values), 1e-300)))
        shift += excess / max(rate, 1e-300)
        if not low < shift < high:
            if not (np.isfinite(low) and np.isfinite(high)):
                shift = low + 1.0 if np.isfinite(low) else high - 1.0
            else:
                shift = 0.5 * (low + high)
                if shift in (low, high):
                    break
        values = terms.at_slope(slopes + shift)
    return values
