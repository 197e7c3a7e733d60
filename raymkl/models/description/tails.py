"""Tail sums of kernels over the rows of a fit, by which normalize="tail" divides, and prices of kernels,
which may be made of them.

    tail_m = trace(K_m) - (its zeta largest eigenvalues),     K_m over the training rows of positive weight
    rho_m = beta * sum_i C_i * r_m,                           r_m = 1, tail_m / n or a number of the user's

A row counts for a kernel if it has the views that the kernel reads.

Up to `EXACT_ROWS` rows by the eigenvalues of one matrix after the other, in this process; beyond, over the
shards of the engine (`engine.programs.tail_sums`), within three per cent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from ...data.rows import from_block
from ...engine import Head, Problem, RayParams
from ...engine.programs.tail_sums import TailSums
from ...engine.run import train
from ...kernels.base import Kernel
from ...kernels.matrices import kernel_matrices
from ...kernels.normalize import check_tails, check_zeta, tail_of, zeta_of
from ...kernels.pairs.families import group
from ...optim.norms import PricedNorm
from ..missing.presence import names_read, presence_of

# Rows up to which one matrix at a time is held here.
EXACT_ROWS = 2_500
# Eigenvalues that the tail sums of prices leave out.
ZETA = 2


def tail_sums(
    rows: dict,
    kernels: Sequence[Kernel],
    used: np.ndarray,
    zeta: int,
    engine: Any = "local",
    ray_params: RayParams | None = None,
    needed: bool = True,
) -> np.ndarray:
    """Tail sums of every kernel.

    Parameters
    ----------
    rows : dict from view key to array, as estimators read them. Of every kernel those count that have its
        views.
    kernels : list of M kernels. A kernel that occurs several times is looked at once.
    used : (n,) bool, rows that count, or (H, n) for several sets of them.
    zeta : eigenvalues to leave out, below the number of rows that count.
    engine, ray_params : where it is computed beyond `EXACT_ROWS` rows.
    needed : whether a kernel without a tail is an error, "kernel 1 ...", because it is to be divided by it.

    Returns
    -------
    tails : (M,), or (H, M), none negative.
    """
    masks = np.atleast_2d(np.asarray(used, bool))
    distinct = {id(kernel): kernel for kernel in kernels}
    bank = list(distinct.values())
    tails, traces = np.empty((2, len(masks), len(bank)))
    for present, members in _by_presence(bank, rows):
        there = masks if present is None else masks & present
        check_zeta(zeta, int(there.sum(axis=1).min()))
        tails[:, members], traces[:, members] = _tails_and_traces(
            rows, [bank[m] for m in members], there, zeta, engine, ray_params
        )
    place = {key: position for position, key in enumerate(distinct)}
    which = [place[id(kernel)] for kernel in kernels]
    tails = np.maximum(tails, 0.0)
    for h in range(len(masks) if needed else 0):
        check_tails(tails[h, which], traces[h, which])
    return tails[0, which] if np.ndim(used) == 1 else tails[:, which]


def _by_presence(kernels: list[Kernel], rows: dict) -> list[tuple[np.ndarray | None, list[int]]]:
    """Positions of the kernels that the same rows (n,) have; None for all rows."""
    presence = presence_of(rows)
    if presence is None or presence.complete:
        return [(None, list(range(len(kernels))))]
    found: dict[tuple, list[int]] = {}
    for m, kernel in enumerate(kernels):
        found.setdefault(tuple(names_read(kernel, presence.names)), []).append(m)
    return [(presence.has(names), members) for names, members in found.items()]


def _tails_and_traces(
    rows: dict, bank: list[Kernel], masks: np.ndarray, zeta: int, engine: Any, ray_params: RayParams | None
) -> tuple[np.ndarray, np.ndarray]:
    """Tail sums and traces, both (H, M), of kernels over rows that all of them have."""
    n, most = masks.shape[1], int(masks.sum(axis=1).max())
    lazy = any(getattr(array, "in_source", False) for array in rows.values())
    if most <= EXACT_ROWS and not (lazy and n > 4 * EXACT_ROWS):
        return _exact(from_block(dict(rows), list(rows)), bank, masks, zeta)
    problem = Problem(
        views=list(rows), families=group(bank, join=True), n_rows=n, n_entries=len(bank), dtype=np.float64
    )
    # There is nothing in it worth a checkpoint.
    params = (
        None if ray_params is None else replace(ray_params, checkpoint_dir=None, name=None, storage_path=None)
    )
    return train(rows, problem, TailSums(bank, masks, zeta), engine, params).results


def _exact(rows: dict, kernels: list[Kernel], masks: np.ndarray, zeta: int) -> tuple[np.ndarray, np.ndarray]:
    """Tail sums and traces, both (H, M), by the eigenvalues of one matrix at a time."""
    tails, traces = np.empty((len(masks), len(kernels))), np.empty((len(masks), len(kernels)))
    every = np.flatnonzero(masks.any(axis=0))
    # One set of rows at a time where all of them together would make too large a matrix.
    together = [every] if len(every) <= EXACT_ROWS else [np.flatnonzero(mask) for mask in masks]
    for chosen in together:
        for m, matrix in kernel_matrices(kernels, rows, chosen):
            matrix = (matrix + matrix.T) / 2
            for h, mask in enumerate(masks):
                if len(together) > 1 and not np.array_equal(np.flatnonzero(mask), chosen):
                    continue
                part = matrix if mask[chosen].all() else matrix[np.ix_(mask[chosen], mask[chosen])]
                tails[h, m], traces[h, m] = tail_of(part, zeta), np.trace(part)
    return tails, traces


def set_tails(
    heads: list[Head],
    kernels: list[Kernel],
    rows: dict,
    engine: Any,
    ray_params: RayParams | None,
    known: dict | None = None,
) -> np.ndarray | None:
    """Give heads that are normalised by tail sums the factors of their entries, 1 / tail over their own rows
    of positive weight.

    kernels : of every entry. known : tail sums that were found before over these rows, which are not computed
    again; new ones are added. Returns the tail sums (E,) of the first head, or None where it has none.
    """
    known = {} if known is None else known
    missing: dict[int, dict[bytes, np.ndarray]] = {}
    for head in heads:
        zeta, mask = zeta_of(head.normalize), head.bounds > 0
        if zeta is not None and head.normalisation is None and (zeta, mask.tobytes()) not in known:
            missing.setdefault(zeta, {})[mask.tobytes()] = mask
    for zeta, masks in missing.items():
        found = tail_sums(rows, kernels, np.stack(list(masks.values())), zeta, engine, ray_params)
        known.update({(zeta, key): tails for key, tails in zip(masks, found, strict=True)})
    for head in heads:
        zeta = zeta_of(head.normalize)
        if zeta is not None and head.normalisation is None:
            head.normalisation = 1.0 / known[zeta, (head.bounds > 0).tobytes()]
    return 1.0 / heads[0].normalisation if heads and zeta_of(heads[0].normalize) is not None else None


# -- prices ----------------------------------------------------------------------------------------


def check_prices(beta: Any, kernel_costs: Any, p: float, norm: Any, theta_step: str) -> None:
    """Raise ValueError, which names the argument, unless prices can be made of it; p, norm, theta_step : as
    estimators have them.
    """
    number = isinstance(beta, Real) and not isinstance(beta, bool | np.bool_)
    if not number or not np.isfinite(beta) or beta < 0:
        raise ValueError(f"beta must be a finite number >= 0, got {beta!r}")
    costs_of(kernel_costs)
    if beta == 0:
        return
    if norm is not None:
        raise ValueError(
            f"beta={beta!r} puts prices on top of the block norm p and needs norm=None, got norm={norm!r}"
        )
    if not 1 < p < np.inf:
        raise ValueError(
            f"beta={beta!r} needs p in (1, inf), got p={p!r}; with p = 1 few kernels are selected without "
            "prices"
        )
    if theta_step == "cutting_plane":
        raise ValueError(
            f'theta_step="cutting_plane" knows no prices, got beta={beta!r}; use theta_step="auto"'
        )


def costs_of(kernel_costs: Any, n_kernels: int | None = None) -> np.ndarray | str | None:
    """kernel_costs as None, "tail" or an array (M,); ValueError for anything else, or for another number of
    them than kernels.
    """
    what = 'kernel_costs must be None, "tail", or one finite number >= 0 per kernel'
    if kernel_costs is None or (isinstance(kernel_costs, str) and kernel_costs == "tail"):
        return kernel_costs
    try:
        costs = np.asarray(kernel_costs, float)
    except (TypeError, ValueError):
        raise ValueError(f"{what}; got {kernel_costs!r}") from None
    if isinstance(kernel_costs, str) or costs.ndim != 1 or not np.isfinite(costs).all() or np.any(costs < 0):
        raise ValueError(f"{what}; got {kernel_costs!r}")
    if n_kernels is not None and len(costs) != n_kernels:
        raise ValueError(f"{what}; got {len(costs)} for {n_kernels} kernels")
    return costs


def set_prices(
    heads: list[Head],
    kernels: list[Kernel],
    rows: dict,
    beta: float,
    kernel_costs: Any,
    p: float,
    engine: Any,
    ray_params: RayParams | None,
    known: dict | None = None,
) -> None:
    """Give heads the block norm p with the prices that beta and kernel_costs make of their own bounds;
    nothing where beta is 0.

    Heads have one set of bounds each, not a path of them: prices grow with C, and so the norm would change on
    the way. Tail sums are those of the kernels as they were given, before any normalisation. known : see
    `set_tails`.
    """
    costs = costs_of(kernel_costs, len(kernels))
    heads = [head for head in heads if not isinstance(head.norm, PricedNorm)]
    if beta == 0 or not heads:
        return
    known = {} if known is None else known
    for head in heads:
        if len(head.path) > 1:
            raise ValueError("heads with prices have no path over C")
        mask = head.bounds > 0
        if costs is None:
            r = np.ones(len(kernels))
        elif isinstance(costs, str):
            if (ZETA, mask.tobytes()) not in known:
                known[ZETA, mask.tobytes()] = tail_sums(
                    rows, kernels, mask, ZETA, engine, ray_params, needed=False
                )
            counts = np.empty(len(kernels))
            for present, members in _by_presence(kernels, rows):
                counts[members] = mask.sum() if present is None else (mask & present).sum()
            r = known[ZETA, mask.tobytes()] / counts
        else:
            r = costs
        head.norm = PricedNorm(float(p), tuple(float(beta) * head.path[0] * float(head.bounds.sum()) * r))
