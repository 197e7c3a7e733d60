"""What a head has learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...optim.certificate import Certificate

if TYPE_CHECKING:
    from .head import HeadSolver


@dataclass
class HeadResult:
    """What a head learned, in one stage of its path.

    a : (n,) signed dual variables. theta : (E,) weights. scale : (E,) normalisation factors. f : decision
    values of `Head.watch`.
    """

    a: np.ndarray
    theta: np.ndarray
    intercept: float
    scale: np.ndarray
    certificate: Certificate
    rounds: int
    converged: bool
    f: np.ndarray | None = None


def result_of(solver: HeadSolver, factor: np.ndarray, f: np.ndarray | None) -> HeadResult:
    """What a head has learned in the stage that it is done with.

    factor : (E,) normalisation. f : decision values of `Head.watch`.
    """
    (certificate, a, theta), rounds = solver.result()
    if (
        solver.head.entries is not None
    ):  # weights of kernels that are zero: no rule need have cared, and no value depends on them
        theta = np.where(solver.head.entries, theta, 0.0)
    return HeadResult(
        a, theta, certificate.intercept, factor, certificate, rounds, certificate.gap <= solver.head.tol, f
    )
