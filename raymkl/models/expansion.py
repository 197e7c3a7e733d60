"""What a fitted model is: a sum over support vectors, kernels and gates.

    f_h(x) - intercept_h = sum_e weights[h, e] gate_e(x) sum_j coefficients[h, j] gate_e(x_j) k_e(x, x_j)

In float64, by formula for small models and by fine tables for large ones (the choice depends on the model
alone, so a row's value never depends on the rows it is predicted with). Contributions and block norms are by
formula always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..data.lazy_rows import fetch
from ..data.rows import row_count, take
from ..kernels.base import Kernel, row_centers
from ..kernels.pairs.families import NO_GATE, Family, group
from ..kernels.pairs.statistics import Matrices, Statistic
from .expansion_sums import CombinedSums, SomeColumns, SumsOneByOne, SupportSide, in_blocks

# Kernel evaluations per predicted row beyond which the weighted sum of kernels is tabulated.
WORTH_A_TABLE = 20_000
BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True, eq=False)
class Expansion:
    """The fitted sum over H heads, E entries, M kernels, S support vectors and J gates; the attribute
    `expansion_` of estimators.

    An entry is a kernel with a gate. Entries stand in rounds over the kernels: entry e is kernel e mod M, and
    a localized model has one round per cluster or class. All kernels of ready-made matrices are known by
    number alone: their values come with new examples.

    kernels : (M,). weights : (H, E) of the entries, with the factors of `normalize`. coefficients : (H, S)
    signed dual variables.
    support : (S,) numbers of the training rows that are kept. support_rows : these rows by view key, (S, 0)
    for ready-made matrices.
    n_train : training rows there were. gate_of_entry : (E,) columns of gates, `NO_GATE` for none.
    support_gates : (S, J) or None.
    stack_depths : matrices of every view that holds ready-made ones. entry_factors : (H, E, S) what
    coefficients are multiplied with, entry by entry, where every kernel has coefficients of its own; None for
    ones.
    """

    kernels: list[Kernel]
    weights: np.ndarray
    coefficients: np.ndarray
    support: np.ndarray
    support_rows: dict
    n_train: int
    gate_of_entry: list[int]
    support_gates: np.ndarray | None = None
    stack_depths: dict = field(default_factory=dict)
    entry_factors: np.ndarray | None = None

    @classmethod
    def of_training(
        cls,
        kernels: list[Kernel],
        weights: np.ndarray,
        coefficients: np.ndarray,
        support: np.ndarray,
        rows: dict,
        gates: np.ndarray | None = None,
        gate_of_entry: Sequence[int] | None = None,
    ) -> Expansion:
        """Keep the features of the support vectors, and nothing of the other rows.

        rows : all training rows by view key. gates : (n_train, J) or None. gate_of_entry : (E,), None for no
        gates at all.
        """
        vectors = {key: array for key, array in rows.items() if not _is_stack(array)}
        return cls(
            kernels=kernels,
            weights=weights,
            coefficients=coefficients,
            support=support,
            support_rows={**dict.fromkeys(rows, np.empty((len(support), 0))), **fetch(vectors, support)},
            n_train=row_count(rows),
            gate_of_entry=[NO_GATE] * weights.shape[1] if gate_of_entry is None else list(gate_of_entry),
            support_gates=None if gates is None else gates[support],
            stack_depths={key: array.shape[2] for key, array in rows.items() if _is_stack(array)},
        )

    def __repr__(self) -> str:
        heads, entries = self.weights.shape
        return (
            f"Expansion({heads} heads, {entries} entries of {len(self.kernels)} kernels, "
            f"{len(self.support)} support vectors)"
        )

    def entries_of(self, m: int) -> range:
        """Numbers of the entries of kernel m."""
        return range(m, self.weights.shape[1], len(self.kernels))

    def with_support_columns(self, rows: dict, copy: bool = True) -> dict:
        """Rows by view key in which stacks (n, n_train, M) of new examples are cut to the columns of
        `support`.

        Stacks that hold those columns alone are taken as they are. copy : columns as arrays; else as
        `SomeColumns` of what came.
        """
        return {
            key: self._columns(rows[key], key, copy) if key in self.stack_depths else rows[key]
            for key in rows
        }

    def _columns(self, stack: Any, key: Any, copy: bool) -> Any:
        wanted, (width, depth) = self.stack_depths[key], stack.shape[1:]
        if width == self.n_train and depth == wanted:
            return stack[:, self.support] if copy else SomeColumns(stack, self.support)
        if width == len(self.support) and depth == wanted:
            return stack
        raise ValueError(
            f"X has shape {stack.shape}; precomputed kernels to predict with have shape (n_test, "
            f"{self.n_train}, {wanted}), "
            f"or (n_test, {len(self.support)}, {wanted}) for the rows of support_ alone"
        )

    def cleared(self, key: Any, stack: Any) -> Any:
        """Ready-made matrices (n, n_train or S, M) that new examples bring, without the columns of rows that
        lack the view.

        What stands there is not read: where some training rows lack it, the result has the columns of
        `support` alone, and zeros in those of such rows.
        """
        gate = next(
            (self.gate_of_entry[m] for m, kernel in enumerate(self.kernels) if key in kernel.views), NO_GATE
        )
        if gate == NO_GATE:
            return stack
        stack, outside = np.asarray(stack), self.support_gates[:, gate] == 0
        if stack.ndim not in (2, 3) or stack.shape[1] not in (self.n_train, len(self.support)):
            return stack  # an error that others explain
        stack = stack[:, self.support] if stack.shape[1] == self.n_train else stack.copy()
        stack[:, outside] = 0
        return stack

    # -- sums over the support vectors -------------------------------------------------------------

    def decision(self, rows: dict, gates: np.ndarray | None = None) -> np.ndarray:
        """(n, H) decision values without intercepts.

        rows : by view key, for ready-made matrices stacks (n, S, M) or `SomeColumns`. gates : (n, J), None
        where there are none.
        """
        used, n = self._used(), row_count(rows)
        total = np.zeros((n, len(self.weights)))
        if len(used) == 0:
            return total
        if self.entry_factors is not None:
            self._add_entries(
                rows, gates, lambda part, e, values: np.add(total[part], values, out=total[part])
            )
            return total
        families = group([self._kernel(e) for e in used], [self.gate_of_entry[e] for e in used], join=True)
        sides = self._sides(families)
        bounds = {statistic: side.bound(rows) for statistic, side in sides.items()}
        tabulated = len(used) * len(self.support) > WORTH_A_TABLE
        order = {statistic: position for position, statistic in enumerate(sides)}
        jobs = [
            CombinedSums(
                family,
                self.weights[:, used[family.members]],
                self.coefficients * self._support_gate(family.gate),
                sides.get(family.statistic),
                bounds.get(family.statistic),
                tabulated,
            )
            for family in sorted(families, key=lambda family: order.get(family.statistic, -1))
        ]

        def block(part: slice) -> None:
            block_rows = take(rows, part)
            side, stat = None, None
            for job in jobs:  # families of one statistic stand next to each other, and it is computed once
                gate = (
                    np.ones(len(total[part])) if job.family.gate == NO_GATE else gates[part, job.family.gate]
                )
                live = np.flatnonzero(gate)
                if len(live) < len(gate) or job.sparse:
                    # Kernels whose gate is zero for an example are not evaluated for it.
                    if len(live) and len(job.columns):
                        values = job.apart(block_rows if len(live) == len(gate) else take(block_rows, live))
                        total[part.start + live] += gate[live][:, None] * values
                    continue
                if job.side is not None and job.side is not side:
                    side, stat = job.side, job.side.pairs(block_rows)
                values = job(block_rows, stat)
                total[part] += values if job.family.gate == NO_GATE else gate[:, None] * values

        in_blocks(block, n, self._block_rows(families))
        return total

    def contributions(self, rows: dict, gates: np.ndarray | None = None) -> np.ndarray:
        """(n, H, M) part of every kernel in the decision values, whose sum over the kernels is `decision`;
        the same arguments.
        """
        values = self.entry_contributions(rows, gates)
        n, n_heads, n_entries = values.shape
        return (
            values
            if n_entries == len(self.kernels)
            else values.reshape(n, n_heads, -1, len(self.kernels)).sum(axis=2)
        )

    def entry_contributions(self, rows: dict, gates: np.ndarray | None = None) -> np.ndarray:
        """(n, H, E) part of every entry in the decision values.

        Kernel values are computed for blocks of rows: beyond the result, memory is bounded whatever n is.
        """
        total = np.zeros((row_count(rows), *self.weights.shape))

        def keep(part: slice, e: int, values: np.ndarray) -> None:
            total[part, :, e] = values

        self._add_entries(rows, gates, keep)
        return total

    def _add_entries(
        self, rows: dict, gates: np.ndarray | None, add: Callable[[slice, int, np.ndarray], Any]
    ) -> None:
        """Call add(part, e, (k, H) part of entry e in the decision values) for blocks of rows, and all
        entries with a weight.
        """
        used = self._used()
        if len(used) == 0:
            return
        families = group([self._kernel(e) for e in used], None, join=True)
        sides = self._sides(families)
        gated: dict[tuple, np.ndarray] = {}
        jobs = [
            SumsOneByOne(family, self._sharing(family, used, gated), sides.get(family.statistic))
            for family in families
        ]

        def block(part: slice) -> None:
            block_rows = take(rows, part)
            for job in jobs:
                for entries, sums in job.sums(block_rows):
                    for position, e in enumerate(entries):
                        gate = self.gate_of_entry[e]
                        row_gate = 1.0 if gate == NO_GATE else gates[part, gate][:, None]
                        # What lies outside a gate is 0, not -0.
                        add(part, e, sums[:, position] * row_gate * self.weights[:, e] + 0.0)

        in_blocks(block, row_count(rows), self._block_rows(families))

    def block_norms(self, kernel_weights: Any, rows: dict | None = None) -> np.ndarray:
        """Lengths ||w_m|| of the parts of the model, in the shape of `kernel_weights`.

            ||w_m||^2 = theta_m^2 a' K_m a        (K_m normalised and gated as in the fit)

        kernel_weights : theta, the estimator's `kernel_weights_`. rows : support vectors by view key with
        stacks (S, S, M); None for a model without ready-made matrices, which holds all that is needed.
        """
        parts = self.entry_contributions(self.support_rows if rows is None else rows, self.support_gates)
        theta = np.asarray(kernel_weights, np.float64)
        own = (
            self.coefficients[:, None]
            if self.entry_factors is None
            else self.coefficients[:, None] * self.entry_factors
        )
        forms = np.einsum(
            "hei,ihe->he", np.broadcast_to(own, (*self.weights.shape, len(self.support))), parts
        )
        if theta.size != forms.size:  # weights that all heads share: a block holds the parts of all of them
            forms = forms.sum(axis=0)
        # The entries' weights, in `parts`, hold theta once and the factors of `normalize`.
        squares = theta.reshape(forms.shape) * forms
        return np.sqrt(np.maximum(squares, 0.0)).reshape(theta.shape)

    # -- how they are computed ---------------------------------------------------------------------

    def _kernel(self, entry: int) -> Kernel:
        return self.kernels[entry % len(self.kernels)]

    def _used(self) -> np.ndarray:
        """Numbers of the entries with a weight; none without support vectors."""
        return np.flatnonzero(np.abs(self.weights).max(axis=0) > 0) if len(self.support) else np.empty(0, int)

    def coefficients_of(self, e: int) -> np.ndarray:
        """(H, S) coefficients of an entry times the gates of the support vectors."""
        own = (
            self.coefficients if self.entry_factors is None else self.coefficients * self.entry_factors[:, e]
        )
        return own * self._support_gate(self.gate_of_entry[e])

    def _support_gate(self, gate: int) -> Any:
        return 1.0 if gate == NO_GATE else self.support_gates[:, gate]

    def _sides(self, families: list[Family]) -> dict[Statistic, SupportSide]:
        """The support vectors as the families' statistics want them; ready-made matrices have no such
        side.
        """
        centers = row_centers(self.support_rows)
        statistics = dict.fromkeys(family.statistic for family in families)
        return {
            s: SupportSide(s, self.support_rows, centers) for s in statistics if not isinstance(s, Matrices)
        }

    def _sharing(
        self, family: Family, used: np.ndarray, gated: dict[tuple, np.ndarray]
    ) -> list[tuple[int, list[int], np.ndarray]]:
        """Per kernel its position in the family, its entries, and (S, entries * H) coefficients times the
        support vectors' gates.

        Entries that are the same kernel under different gates share its values. gated : such coefficients by
        gates, to be filled: families share them.
        """
        sharing: dict[Kernel, list[int]] = {}
        for position, kernel in enumerate(family.kernels):
            sharing.setdefault(kernel, []).append(position)
        jobs = []
        for positions in sharing.values():
            entries = [int(used[family.members[position]]) for position in positions]
            key = tuple(self.gate_of_entry[e] for e in entries)
            if self.entry_factors is not None:
                key = tuple(entries)
            if key not in gated:
                gated[key] = np.concatenate([self.coefficients_of(e) for e in entries]).T.copy()
            jobs.append((positions[0], entries, gated[key]))
        return jobs

    def _block_rows(self, families: list[Family]) -> int:
        """Rows whose statistics with all support vectors take BLOCK_BYTES."""
        return max(
            1, BLOCK_BYTES // (8 * len(self.support) * max(family.statistic.depth for family in families))
        )


def _is_stack(array: Any) -> bool:
    return getattr(array, "ndim", 2) == 3
