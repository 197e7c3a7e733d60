"""Which rule weights move by."""

from __future__ import annotations

import numpy as np

from ..norms import Norm
from .following import Follow, FollowMultipliers
from .holding import FixedPoint, HoldAnalytic, HoldCuts
from .multipliers import LARGEST_FOLLOWED_EXPONENT
from .rules import WeightRule


def rule_of(
    norm: Norm,
    used: np.ndarray,
    tol: float,
    theta: np.ndarray,
    solver: str,
    theta_step: str,
    shared: bool = False,
) -> WeightRule:
    """The rule for weights that begin at theta (M,).

    solver, theta_step : as the estimators take them. shared : by several heads.
    """
    if solver == "wrapper" or theta_step == "cutting_plane" or shared:
        full, ends_analytic = solver == "wrapper", theta_step == "auto"
        # At p = 1 cuts are quicker than the fixed point.
        if theta_step == "cutting_plane" or (
            ends_analytic and norm.has_cutting_planes and norm.selects == "kernels"
        ):
            return HoldCuts(norm, used, tol, full, ends_analytic)
        return HoldAnalytic(norm, used, tol, full)
    if max(norm.exponents, default=1.0) <= LARGEST_FOLLOWED_EXPONENT:
        return Follow(norm, used, tol)
    return FollowMultipliers(norm, used, tol, theta) if theta_step == "auto" else FixedPoint(norm, used, tol)
