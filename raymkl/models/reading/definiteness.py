"""Whether ready-made matrices are kernels: symmetric, and positive semi-definite in cheap tests."""

from __future__ import annotations

import numpy as np

from ...data.store import StoreRows
from ...engine.resources import usable_cpus
from ...kernels.matrix_facts import quadratic_forms, survey

# Symmetry of ready-made matrices is checked to this part of their largest entry (float32 matrices are
# welcome).
SYMMETRY = 1e-5
# Entries may be larger than their diagonal entries allow by this part of the largest entry.
DIAGONAL = 1e-3
# Rows of a kernel store that are checked.
STORE_SAMPLE = 200
# Random quadratic forms per matrix, and how negative they may be relative to the trace.
FORMS = 16
DEFINITENESS = 1e-6


def check_kernel_stack(stack: np.ndarray, where: str = "X") -> None:
    """Raise ValueError unless every matrix is symmetric and passes cheap tests of positive semi-definiteness.

    Of a kernel store some rows and their columns are looked at: reading all of it could take longer than the
    training.
    """
    if isinstance(stack, StoreRows):
        some = np.unique(np.linspace(0, len(stack) - 1, min(len(stack), STORE_SAMPLE)).astype(int))
        stack = stack.entries(some, some)
    n = len(stack)
    diagonal = stack[np.arange(n), np.arange(n)].astype(np.float64)
    largest, asymmetry, excess = survey(stack, np.sqrt(np.maximum(diagonal, 0.0)), usable_cpus())
    bad = np.flatnonzero(asymmetry > SYMMETRY * largest)
    if len(bad):
        raise ValueError(
            f"kernel {bad[0]} of {where} is not symmetric: entries differ from their mirror image by "
            f"{asymmetry[bad[0]]:.3g}"
        )
    bad = np.flatnonzero(excess > DIAGONAL * largest)
    if len(bad):
        _name_excess(stack, int(bad[0]), diagonal, largest, where)
    trace = diagonal.sum(axis=0)
    low = diagonal.min(axis=0)
    bad = np.flatnonzero(low < -DEFINITENESS * np.maximum(largest, 1e-300))
    if len(bad):
        raise ValueError(
            f"kernel {bad[0]} of {where} is not positive semi-definite: its diagonal has an entry "
            f"{low[bad[0]]:.6g}"
        )
    values = quadratic_forms(stack, np.random.default_rng(0).normal(size=(FORMS, n)), usable_cpus())
    bad = np.argwhere(values < -DEFINITENESS * n * np.maximum(np.abs(trace), largest)[None] / np.sqrt(n))
    if len(bad):
        raise ValueError(
            f"kernel {bad[0][1]} of {where} is not positive semi-definite: a quadratic form of it is "
            f"{values[tuple(bad[0])]:.6g}"
        )


def _name_excess(stack: np.ndarray, m: int, diagonal: np.ndarray, largest: np.ndarray, where: str) -> None:
    """Raise ValueError for a matrix that breaks |k(i, j)| <= sqrt(k(i, i) k(j, j)), which holds for all
    positive semi-definite ones.
    """
    roots = np.sqrt(np.maximum(diagonal[:, m], 0.0))
    i, j = np.argwhere(np.abs(stack[:, :, m]) - np.outer(roots, roots) > DIAGONAL * largest[m])[0]
    raise ValueError(
        f"kernel {m} of {where} is not positive semi-definite: entry ({i}, {j}) is {stack[i, j, m]:.6g}, "
        "more than "
        f"its diagonal entries {diagonal[i, m]:.6g} and {diagonal[j, m]:.6g} allow"
    )
