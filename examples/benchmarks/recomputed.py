"""Certificates the slow and obvious way: primal and dual of a fitted model, recomputed in float64.

Not a program. Nothing that trained the model takes part: only its public arrays (`support_`, `dual_coef_`,
`kernel_weights_`, `intercept_`), its parameters, and the kernels evaluated by their formulas, a few rows at a
time. With signed dual variables a, weights theta and intercept b

    g[m, i] = sum_j a_j k_m(x_i, x_j)      s_m = sum_i a_i g[m, i]      f(x_i) = sum_m theta_m g[m, i] + b
    primal  = 1/2 (sum_m ||w_m||^p)^(2/p) + C sum_i loss(f(x_i), y_i) + total * b,  ||w_m|| = theta_m
            sqrt(s_m)
    dual    = sum_i term(a_i) - 1/2 ||s||_k,      k = p / (2p - 2)  (p = 1: the largest, p = inf: k = 1/2)

with loss and term by their definitions (`loss_definitions.py`). The dual bounds the optimum from below only
where a is feasible (in its box, and sum a = total, which is zero but for one class), so how far it is from
that is recomputed too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from loss_definitions import dual_term, loss_values, total_of

PORTION = 500  # rows of a kernel matrix that are held at a time
# A reported gap may be off by this part of the tolerance; below the second figure round-off of float64 sums
# decides.
SLACK, ROUND_OFF = 0.1, 1e-7
# A kernel with less variance than this, relative to its level, is a constant and counts as zero when it is
# normalised.
CONSTANT = 1e-10


@dataclass(frozen=True)
class TrueCertificate:
    """primal, dual : recomputed.

    outside : how far the dual point is from feasible, relative to C and to the sum of |a|.
    """

    primal: float
    dual: float
    outside: float

    @property
    def gap(self) -> float:
        return (self.primal - self.dual) / max(abs(self.primal), 1e-300)

    def agrees_with(self, reported: float, tol: float, converged: bool) -> bool:
        """Whether a reported gap is this one, to a tenth of tol, and a model that calls itself converged
        is.
        """
        slack = SLACK * tol + ROUND_OFF
        return bool(
            abs(reported - self.gap) <= slack
            and self.gap >= -slack
            and (self.gap <= tol + slack or not converged)
        )


def true_certificates(model: Any, X: Any, y: Any) -> list[TrueCertificate]:
    """One for each entry of `duality_gap_` of a fitted MKLClassifier, MKLRegressor or MKLOneClass.

    X, y : what it was fitted to.
    """
    targets = targets_of(model, np.asarray(y))
    a = np.zeros(targets.shape)
    a[:, model.support_] = model.dual_coef_
    G = products(model.kernels_, X, a, model.support_, model.normalize)
    weights = np.atleast_2d(model.kernel_weights_)
    # Heads that share their weights share one norm and one certificate.
    groups = [slice(h, h + 1) for h in range(len(a))] if len(weights) == len(a) else [slice(None)]
    return [
        certificate(model, G[:, group], a[group], targets[group], theta, model.intercept_[group])
        for group, theta in zip(groups, weights, strict=True)
    ]


def targets_of(model: Any, y: np.ndarray) -> np.ndarray:
    """(heads, n) targets of the learning problems that a model solves."""
    if not hasattr(model, "classes_"):
        return y[None].astype(float)
    positives = model.classes_[1:] if len(model.classes_) == 2 else model.classes_
    return np.where(y == positives[:, None], 1.0, -1.0)


def products(
    bank: Sequence, X: Any, a: np.ndarray, support: np.ndarray, normalize: str | None = None
) -> np.ndarray:
    """(M, heads, n) of sum_j a_j k_m(x_i, x_j) with normalised kernels.

    a : (heads, n), zero but for the rows `support`.
    """
    heads, n = a.shape
    gates, columns = normalising_gates(normalize, bank, X), _take(X, support)
    G = np.empty((len(bank), heads, n))
    for part in _portions(n):
        rows = _take(X, np.arange(n)[part])
        for m, kernel in enumerate(bank):
            G[m, :, part] = gates[m, part] * ((a * gates[m])[:, support] @ kernel(rows, columns).T)
    return G


def normalising_gates(normalize: str | None, bank: Sequence, X: Any) -> np.ndarray:
    """(M, n) gates d with which the normalised kernel is d_m(x) k_m(x, z) d_m(z), from the definitions of the
    normalisations.
    """
    diagonals = np.stack([np.asarray(kernel.diag(X), float) for kernel in bank])
    if normalize is None:
        return np.ones_like(diagonals)
    if normalize == "spherical":
        squares = diagonals
    elif normalize == "trace":
        squares = np.broadcast_to(diagonals.sum(axis=1, keepdims=True), diagonals.shape)
    elif normalize == "multiplicative":
        levels = diagonals.mean(axis=1)
        variances = levels - np.array([mean_entry(kernel, X, diagonals.shape[1]) for kernel in bank])
        variances[variances <= CONSTANT * levels] = 0.0
        squares = np.broadcast_to(variances[:, None], diagonals.shape)
    else:
        raise ValueError(f"normalize={normalize!r} has no recomputation here")
    return np.divide(
        1.0,
        np.sqrt(squares, where=squares > 0, out=np.ones_like(diagonals)),
        where=squares > 0,
        out=np.zeros_like(diagonals),
    )


def mean_entry(kernel: Any, X: Any, n: int) -> float:
    """Mean of all n * n entries of a kernel matrix."""
    return float(sum(kernel(_take(X, np.arange(n)[part]), X).sum() for part in _portions(n)) / n**2)


def certificate(
    model: Any, G: np.ndarray, a: np.ndarray, y: np.ndarray, theta: np.ndarray, b: np.ndarray
) -> TrueCertificate:
    """Of heads with common weights. G : (M, heads, n). a, y : (heads, n). theta : (M,). b : (heads,)."""
    C, p, total = model.C, model.p, total_of(model, a.shape[1])
    s = np.maximum(np.einsum("mhi,hi->m", G, a), 0.0)
    f = np.einsum("m,mhi->hi", theta, G) + b[:, None]
    term, outside = dual_term(model, a, y, C)
    primal = lp_norm(theta * np.sqrt(s), p) ** 2 / 2 + C * loss_values(model, f, y).sum() + total * b.sum()
    dual = term - lp_norm(np.sqrt(s), 1.0 if np.isinf(p) else np.inf if p == 1 else p / (p - 1)) ** 2 / 2
    balance = np.abs(a.sum(axis=1) - total) / np.maximum(np.abs(a).sum(axis=1), 1e-300)
    return TrueCertificate(float(primal), float(dual), float(max(outside, balance.max())))


def lp_norm(lengths: np.ndarray, p: float) -> float:
    """(sum lengths^p)^(1/p), the largest for p = inf; scaled, so that no power of a small number vanishes."""
    largest = float(lengths.max())
    if np.isinf(p) or largest == 0.0:
        return largest
    return largest * float(np.sum((lengths / largest) ** p)) ** (1.0 / p)


def _take(X: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, or of a list of strings."""
    return X[rows] if isinstance(X, np.ndarray) else [X[i] for i in rows]


def _portions(n: int) -> list[slice]:
    return [slice(start, min(start + PORTION, n)) for start in range(0, n, PORTION)]
