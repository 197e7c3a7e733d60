"""Gates of kernels: what a row weighs in a kernel, from its views, its length and its pattern.

    gate_m(x) = s_m(x) * sqrt(V / V_x) * 1 / sqrt(k_m(x, x)) * c_j(x)

s_m(x) is 1 where x has every view that kernel m reads, else 0. The second factor is that of missing="scaled",
the third that of normalize="spherical", the fourth says whether x belongs to cluster j of missing="pattern".
Gates belong to views: kernels that read the same ones share a column, and so stay one family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.rows import row_count
from ...engine.programs.clusters import gates_of
from ...kernels.base import Kernel, Scaled
from ...kernels.pairs.families import NO_GATE
from ...kernels.pairs.statistics import Matrices
from ...optim.norms import GroupedNorm
from ..description.diagonals import lengths
from .presence import Presence, names_read


@dataclass(frozen=True, eq=False)
class Gating:
    """Gates of the training rows.

    gates : (n, J) or None. of_entry : (E,) the column of every entry, `NO_GATE` for none; None for no gates
    at all. present : (J,) of every column, the rows (n,) that have its views; None for all of them.
    """

    gates: np.ndarray | None
    of_entry: list[int] | None
    present: tuple[np.ndarray | None, ...] = ()

    def present_of(self, gate: int) -> np.ndarray | None:
        """(n,) bool, rows whose kernel values constants are learned of; None for all."""
        return self.present[gate] if 0 <= gate < len(self.present) else None


def gating_of(
    kernels: Sequence[Kernel], rows: dict, presence: Presence | None, spherical: bool, scaled: bool
) -> Gating:
    """Gates of training rows by view key, one round over the kernels. presence : None where no row may ever
    lack a view.

    Else every kernel has a gate, also where all training rows have its views: new rows may lack them.
    """
    own_lengths = lengths(kernels, rows) if spherical else [None] * len(kernels)
    of_views: dict[tuple, tuple] = {}
    columns: dict[tuple, int] = {}
    gates, present, of_entry = [], [], []
    for m, (kernel, length) in enumerate(zip(kernels, own_lengths, strict=True)):
        views = () if presence is None else tuple(sorted(names_read(kernel, presence.names)))
        if views not in of_views:
            of_views[views] = _of_views(views, presence, scaled)
        gate, has = of_views[views]
        if gate is None and length is None:
            of_entry.append(NO_GATE)
            continue
        # A factor 1 / sqrt(k(x, x)) is a kernel's own; all others are those of its views.
        key = (views, None if length is None else m)
        if key not in columns:
            columns[key] = len(gates)
            gates.append(length if gate is None else gate if length is None else gate * length)
            present.append(has)
        of_entry.append(columns[key])
    return Gating(np.stack(gates, axis=1) if gates else None, of_entry, tuple(present))


def _of_views(
    views: Sequence[str], presence: Presence | None, scaled: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(n,) gate of kernels that read these views, None if it is one whatever the row is, and the rows (n,)
    that have them, None for all.
    """
    if presence is None or not views:
        return None, None
    has = presence.has(views)
    return has * (presence.stretch if scaled else 1.0), None if has.all() else has


def clustered(gating: Gating, membership: np.ndarray) -> Gating:
    """The gates of one round over the kernels for every cluster: entries of the first cluster, then of the
    second. membership : (n, l).
    """
    layout, of_entry = layout_of(gating.of_entry, membership.shape[1])
    gates = gates_of(membership, layout, gating.gates)
    return Gating(gates, of_entry, tuple(gating.present_of(base) for _, base in layout))


def layout_of(gate_of_kernel: Sequence[int], n_clusters: int) -> tuple[list[tuple[int, int]], list[int]]:
    """Gate columns as (cluster, base gate), and the column of every entry: all kernels of the first cluster,
    then of the second.
    """
    of_entry = [(j, base) for j in range(n_clusters) for base in gate_of_kernel]
    layout = list(dict.fromkeys(of_entry))
    return layout, [layout.index(column) for column in of_entry]


def clustered_norm(p: float, n_clusters: int, n_kernels: int) -> GroupedNorm:
    """One block norm p for the entries of every cluster, whose squares add up."""
    return GroupedNorm(float(p), tuple(np.repeat(np.arange(n_clusters), n_kernels).tolist()), outer=2.0)


def without_constant_gates(
    kernels: list[Kernel], gates: np.ndarray | None, gate_of_entry: list[int] | None, learned: bool
) -> tuple[list[Kernel], list[int] | None]:
    """Kernels and gates to train with: a gate that is the same number for all rows becomes a factor, which
    costs nothing.

    learned : whether constants are learned of the kernels, which would see that factor.
    """
    if gates is None:
        return kernels, gate_of_entry
    constant = (gates[0] > 0) & (gates == gates[0]).all(axis=0)
    kernels, gate_of_entry = list(kernels), list(gate_of_entry)
    for entry, gate in enumerate(gate_of_entry):
        if gate == NO_GATE or not constant[gate]:
            continue
        if gates[0, gate] == 1.0:
            gate_of_entry[entry] = NO_GATE
        elif not learned and not isinstance(kernels[entry].statistic(), Matrices):
            kernels[entry], gate_of_entry[entry] = Scaled(kernels[entry], float(gates[0, gate]) ** 2), NO_GATE
    return kernels, gate_of_entry


def gates_of_new(
    expansion: Any,
    rows: dict,
    presence: Presence | None,
    patterns: np.ndarray | None,
    spherical: bool,
    scaled: bool,
) -> np.ndarray | None:
    """(n, J) gates of new rows by view key, in the columns of a fitted model's `expansion_`; None without
    any.

    A column is that of the first entry that has it: its kernel says the views and the length, its round the
    cluster.
    """
    kernels, of_entry = expansion.kernels, expansion.gate_of_entry
    first = {gate: entry for entry, gate in reversed(list(enumerate(of_entry))) if gate != NO_GATE}
    if not first:
        return None
    n = row_count(rows)
    used = sorted({entry % len(kernels) for entry in first.values()}) if spherical else []
    length_of = dict(zip(used, lengths([kernels[m] for m in used], rows), strict=True))
    clusters = None if patterns is None else presence.clusters(patterns)
    gates = np.ones((n, max(first) + 1))
    for column, entry in first.items():
        kernel = kernels[entry % len(kernels)]
        if presence is not None:
            views = names_read(kernel, presence.names)
            gates[:, column] = presence.has(views) * (presence.stretch if scaled and views else 1.0)
        if length_of.get(entry % len(kernels)) is not None:
            gates[:, column] *= length_of[entry % len(kernels)]
        if clusters is not None:
            gates[:, column] *= clusters[:, entry // len(kernels)]
    return gates
