"""Explicit features of Nystrom type: kernels as products of their values with a few landmarks.

    phi_m(x) = k_m(x, Z) K_ZZ^(-1/2),       <phi_m(x), phi_m(z)> = k_m(x, Z) K_ZZ^+ k_m(Z, z)

which is k_m itself where Z is all rows. Kernels of one pair statistic share it. All in float64, blocks of
rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...data.rows import row_count
from ..base import Kernel, row_centers
from ..normalize import gate_of_diagonal
from ..pairs.families import group

# Eigenvalues of K_ZZ below this part of the largest are taken for zero.
NO_EIGENVALUE = 1e-10


class Landmarks:
    """L landmarks and M kernels.

    rows : features of the landmarks by view key. spherical : whether k(x, x) is brought to one.
    """

    def __init__(self, kernels: Sequence[Kernel], rows: dict, spherical: bool = False):
        self.rows, self.spherical, self.n_kernels = rows, spherical, len(kernels)
        self.families = group(list(kernels), join=True)
        self.centers = row_centers(rows)
        self.prepared = [family.statistic.prepare(rows, centers=self.centers) for family in self.families]
        self.size = row_count(rows)
        self.gates = dict(self.diagonals(rows)) if spherical else {}
        self.gates = {m: gate_of_diagonal(diagonal) for m, diagonal in self.gates.items()}

    def values(self, rows: dict) -> Iterator[tuple[int, np.ndarray]]:
        """Every kernel's number and its values (n, L) of rows by view key with the landmarks; one kernel's at
        a time are in memory.
        """
        own_gates = dict(self.diagonals(rows)) if self.spherical else {}
        for family, prepared in zip(self.families, self.prepared, strict=True):
            pairs = np.asarray(
                family.statistic.pairs(family.statistic.prepare(rows, centers=self.centers), prepared),
                np.float64,
            )
            for position, m in enumerate(family.members):
                values = np.asarray(family.values(position, pairs), np.float64)
                if self.spherical:
                    values = values * gate_of_diagonal(own_gates[m])[:, None] * self.gates[m]
                yield m, values

    def diagonals(self, rows: dict) -> Iterator[tuple[int, np.ndarray]]:
        """Every kernel's number and its k(x, x) (n,)."""
        for family in self.families:
            t = family.statistic.diagonal(family.statistic.prepare(rows))
            for position, m in enumerate(family.members):
                yield m, np.asarray(family.values(position, t), np.float64)

    def roots(self) -> np.ndarray:
        """(M, L, L) K_ZZ^(-1/2) of every kernel, of its pseudo-inverse where it is singular."""
        roots = np.empty((self.n_kernels, self.size, self.size))
        diagonals = dict(self.diagonals(self.rows))
        for m, values in self.values(self.rows):
            K = (values + values.T) / 2
            np.fill_diagonal(K, diagonals[m] if not self.spherical else (diagonals[m] > 0).astype(float))
            eigenvalues, vectors = np.linalg.eigh(K)
            kept = eigenvalues > NO_EIGENVALUE * max(float(eigenvalues[-1]), 1e-300)
            roots[m] = (vectors[:, kept] / np.sqrt(eigenvalues[kept])) @ vectors[:, kept].T
        return roots
