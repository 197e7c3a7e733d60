"""Facts about stacks (n, n, M) of square matrices by which kernels are told from other matrices, in passes
over memory by some threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from .loops.vectors import survey_stack

# Rows that are surveyed at a time, and bytes of those that are multiplied.
BLOCK = 256
BLOCK_BYTES = 2**22


def survey(stack: np.ndarray, roots: np.ndarray, threads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per matrix the largest |K_ij|, |K_ij - K_ji| and |K_ij| - roots_i roots_j, (M,) each.

    roots : (n, M).
    """

    def look(start: int) -> np.ndarray:
        found = np.zeros((3, stack.shape[2]))
        found[2] = -np.inf
        survey_stack(stack, roots, *found, start, min(start + BLOCK, len(stack)))
        return found

    with ThreadPoolExecutor(threads) as executor:
        return tuple(np.max(list(executor.map(look, range(0, len(stack), BLOCK))), axis=0))


def quadratic_forms(stack: np.ndarray, vectors: np.ndarray, threads: int) -> np.ndarray:
    """(F, M) values v' K_m v of symmetric matrices. vectors : (F, n)."""
    # In float64, also because float32 values near zero are denormal numbers, which BLAS is five times slower
    # with.
    n, step = len(stack), max(1, BLOCK_BYTES // max(8 * stack[0].size, 1))

    def part(start: int) -> np.ndarray:
        rows = slice(start, min(start + step, n))
        block = stack[rows, : rows.stop].astype(np.float64, copy=False)
        products = (
            2.0 * (vectors[:, :start] @ block[:, :start]) + vectors[:, rows] @ block[:, start:]
        )  # what is left of it counts twice
        return np.einsum("fi,ifm->fm", vectors[:, rows], products)

    with threadpool_limits(1), ThreadPoolExecutor(threads) as executor:
        return sum(executor.map(part, range(0, n, step)))
