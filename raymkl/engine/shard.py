"""A shard: some of the rows, the statistics of those rows with every cached column, and the gradients of every head.

For head h and basis function r it keeps

    G[h][i, r] = sum_j a_j gate(j) basis_r(statistic(x_j, x_i))        for its own rows i

from which f, residuals, quadratic terms and violators follow. It never sees more than its own rows and the rows that entered
a working set. The same class runs in a thread of this process and inside a Ray actor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from ..kernels.basis import Basis
from ..kernels.families import NO_GATE
from ..kernels.statistics import Matrices, SquaredDistance
from ..kernels.store import StoreRows
from ..optim.working_set import evenly_spaced, violators
from .messages import Head, HeadReply, HeadRequest, Problem, RoundReply, RoundRequest
from .parallel import RowThreads
from .rows import from_table, take


class Shard:
    """Rows first <= i < first + n of the data."""

    def __init__(self, threads: int = 1, warm: bool = False):
        """warm : load compiled code now, which a new process should do before the first call comes."""
        self.threads = RowThreads(threads)
        if warm:
            from ..kernels.compiled import warm_up

            warm_up()

    def load(self, block: pa.Table | dict, first: int, problem: Problem) -> None:
        """Take rows first <= i < first + n, an Arrow block or arrays by view, and forget all that was before."""
        self.rows = from_table(block, problem.views) if isinstance(block, pa.Table) else block
        self.first = first
        self.problem = problem
        self.n = next(iter(self.rows.values())).shape[0]
        self.gates = None if problem.gates is None else problem.gates[first : first + self.n]
        self.statistics = list(dict.fromkeys(family.statistic for family in problem.families))
        self.family_statistic = [self.statistics.index(family.statistic) for family in problem.families]
        self.prepared: list[Any] = []
        self.cache: list[np.ndarray | None] = []
        self.bases: list[Basis] = []
        self.heads: list[Head] = []
        self.a: list[np.ndarray] = []
        self.boxes: list[tuple] = []
        self.G: list[list[np.ndarray]] = []
        self.sent = np.zeros(self.n, bool)

    # -- setting up -------------------------------------------------------------------------------------------------

    def moments(self) -> dict:
        """Per dense view of a squared-distance statistic: (rows, column sums, sum of squares), to choose a centre."""
        result = {}
        for statistic in self.statistics:
            if isinstance(statistic, SquaredDistance) and not sp.issparse(self.rows[statistic.view]):
                array = self.rows[statistic.view]
                sums = array.sum(axis=0, dtype=np.float64)
                result[statistic.view] = (self.n, sums, float(np.einsum("ij,ij->", array, array, dtype=np.float64)))
        return result

    def prepare(self, centers: dict) -> list[float]:
        """Ready the rows for every statistic; returns each statistic's `largest` over these rows."""
        self.centers = centers
        self.prepared = [s.prepare(self.rows, self.problem.dtype_of(s), centers) for s in self.statistics]
        return [s.largest(p) for s, p in zip(self.statistics, self.prepared, strict=True)]

    def diagonals(self, masks: np.ndarray) -> np.ndarray:
        """(H, E) sum over the rows of each mask (H, n_total) of every entry's k(i, i), gates applied."""
        diagonal = np.empty((self.n, self.problem.n_entries))
        for f, family in enumerate(self.problem.families):
            gate = 1.0 if family.gate == NO_GATE else self.gates[:, family.gate] ** 2
            if isinstance(family.statistic, Matrices):
                own = self._stack_diagonal(self.family_statistic[f])
                for kernel, member in zip(family.kernels, family.members, strict=True):
                    diagonal[:, member] = gate * own[:, kernel.index]
            else:
                t = family.statistic.diagonal(self.prepared[self.family_statistic[f]])
                for kernel, member in zip(family.kernels, family.members, strict=True):
                    diagonal[:, member] = gate * kernel.profile(np.asarray(t, np.float64))
        return masks[:, self.first : self.first + self.n] @ diagonal

    def open(self, bases: list[Basis], capacity: int) -> None:
        """Take the bases of the families and reserve a cache of `capacity` columns (memory is touched only when used)."""
        self.bases = bases
        self.cache = [np.empty((capacity, self.n), self.problem.dtype_of(s)) if s.cacheable else None for s in self.statistics]

    def matrix_sums(self, request: RoundRequest, ids: np.ndarray, slots: np.ndarray, masks: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(H, R) sum_i sum_j masks[h, i] weights[h, j] basis_r(i, j) over own rows i and the given columns j.

        request : columns to compute first; they stay cached for the training. ids, slots : (k,) all columns. masks : (H, n_total).
        weights : (H, k).
        """
        self._enter(request)
        result = np.zeros((len(masks), sum(basis.rank for basis in self.bases)))
        at = 0
        for f, basis in enumerate(self.bases):
            family = self.problem.families[f]
            row_gate = 1.0 if family.gate == NO_GATE else self.gates[:, family.gate]
            column_gate = 1.0 if family.gate == NO_GATE else self.problem.gates[ids, family.gate]
            block, places = self._block(f, ids, slots)
            for h in range(len(masks)):
                out = np.zeros((self.n, basis.rank))
                self._accumulate(basis, block, places, weights[h] * column_gate, out)
                result[h, at : at + basis.rank] = (masks[h, self.first : self.first + self.n] * row_gate) @ out
            at += basis.rank
        return result

    def add_heads(self, heads: list[Head]) -> None:
        """Add learning problems; dual variables start at zero."""
        for head in heads:
            own = slice(self.first, self.first + self.n)
            lower, upper = head.loss.box(head.targets[own], head.bounds[own])
            self.heads.append(head)
            self.a.append(np.zeros(self.n))
            self.boxes.append((lower, upper, head.loss.linear(head.targets[own]), head.targets[own], head.bounds[own]))
            self.G.append([np.zeros((self.n, basis.rank)) for basis in self.bases])

    # -- a round ------------------------------------------------------------------------------------------------------

    def advance(self, request: RoundRequest) -> RoundReply:
        """Cache the entering columns, apply the changes of every head, and report."""
        self._enter(request)
        replies = [self._advance_head(part) for part in request.heads]
        wanted = [np.concatenate([reply.grow, reply.shrink]) for reply in replies]
        local = np.unique(np.concatenate([*wanted, np.empty(0, np.int64)])) - self.first
        local = local[~self.sent[local]]
        self.sent[local] = True
        movable = {view: array for view, array in self.rows.items() if self._travels(view)}
        return RoundReply(request.round, replies, local + self.first, take(movable, local))

    def _travels(self, view: Any) -> bool:
        """Whether rows of a view are sent around; those of ready-made matrices stay where they are."""
        return any(view in s.views and not isinstance(s, Matrices) for s in self.statistics)

    def _enter(self, request: RoundRequest) -> None:
        """Compute the statistics of entering columns."""
        if len(request.entering):
            for s, cache in enumerate(self.cache):
                if cache is not None:
                    self._fill(s, cache, request)

    def _block(self, f: int, ids: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Statistics of a family and where the given columns stand in them: the cache, or ready-made matrices."""
        s = self.family_statistic[f]
        return (self.prepared[s].array, ids) if self.cache[s] is None else (self.cache[s], slots)

    def _fill(self, s: int, cache: np.ndarray, request: RoundRequest) -> None:
        """Statistics of the entering columns, written to their slots."""
        statistic, ids, slots = self.statistics[s], request.entering, np.array(request.slots)
        columns = statistic.prepare(request.rows, self.problem.dtype_of(statistic), self.centers)
        statistic.fill(columns, self.prepared[s], cache, slots)
        mine = np.flatnonzero((ids >= self.first) & (ids < self.first + self.n))
        if len(mine):
            # The statistic of a row with itself is known exactly; the pair formula only approximates it.
            cache[slots[mine], ids[mine] - self.first] = statistic.diagonal(columns.take(mine))

    def _accumulate(self, basis: Basis, block: np.ndarray, slots: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
        # Arrays out of Ray's object store are read-only, which compiled code counts as another type; copies of these two are tiny.
        slots, weights = np.array(slots), np.array(weights)
        self.threads.split(
            self.n,
            lambda start, stop: basis.accumulate(block, slots, weights, out, start, stop),
            cost=float(len(slots)) * self.n * basis.rank,
        )

    def _advance_head(self, part: HeadRequest) -> HeadReply:
        h = part.head
        a, (lower, upper, linear, targets, bounds) = self.a[h], self.boxes[h]
        if len(part.columns):
            mine = (part.columns >= self.first) & (part.columns < self.first + self.n)
            a[part.columns[mine] - self.first] = part.values[mine]
            for f, (family, basis) in enumerate(zip(self.problem.families, self.bases, strict=True)):
                weights = part.delta if family.gate == NO_GATE else part.delta * self.problem.gates[part.columns, family.gate]
                block, places = self._block(f, part.columns, part.slots)
                self._accumulate(basis, block, places, weights, self.G[h][f])
        f_values = np.zeros(self.n)
        quadratic = []
        at = 0
        for family, basis, G in zip(self.problem.families, self.bases, self.G[h], strict=True):
            values = G @ part.combination[at : at + basis.rank]
            gated = a
            if family.gate != NO_GATE:
                gate = self.gates[:, family.gate]
                values, gated = gate * values, gate * a
            f_values += values
            quadratic.append(gated @ G)
            at += basis.rank
        residual = linear - f_values
        pick = (evenly_spaced(a, lower, upper, part.count)) if part.spaced else violators(residual, a, lower, upper, part.count)
        watched = part.watch[(part.watch >= self.first) & (part.watch < self.first + self.n)] - self.first
        local = np.unique(np.concatenate([*pick, watched]))
        active = bounds > 0
        losses = [float(bounds[active] @ head_loss) for head_loss in self._losses(h, f_values[active], targets[active], part)]
        return HeadReply(
            h,
            pick[0] + self.first,
            residual[pick[0]],
            pick[1] + self.first,
            residual[pick[1]],
            local + self.first,
            self._gradients(h, local),
            np.concatenate(quadratic),
            np.array(losses),
        )

    def _losses(self, h: int, f: np.ndarray, targets: np.ndarray, part: HeadRequest):
        loss = self.heads[h].loss
        return (loss.value(f + b, targets) for b in part.intercepts)

    def _gradients(self, h: int, local: np.ndarray) -> np.ndarray:
        """(k, R) gradients of own rows over all basis functions, gates applied."""
        parts = []
        for family, G in zip(self.problem.families, self.G[h], strict=True):
            rows = G[local]
            parts.append(rows if family.gate == NO_GATE else rows * self.gates[local, family.gate][:, None])
        return np.concatenate(parts, axis=1)

    # -- asked for now and then ---------------------------------------------------------------------------------------

    def fetch(self, ids: np.ndarray) -> dict:
        """Features of own rows."""
        movable = {view: array for view, array in self.rows.items() if self._travels(view)}
        return take(movable, ids - self.first)

    def stack_rows(self, s: int, ids: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """(own ids, columns, M) entries of ready-made matrices."""
        stack = self.prepared[s].array
        if isinstance(stack, StoreRows):
            return stack.entries(ids, columns)
        return stack[np.ix_(ids - self.first, columns)]

    def _stack_diagonal(self, s: int) -> np.ndarray:
        """(own rows, M) diagonal entries of ready-made matrices."""
        stack = self.prepared[s].array
        return stack.diagonal() if isinstance(stack, StoreRows) else stack[np.arange(self.n), self.first + np.arange(self.n)]

    def f(self, h: int, combination: np.ndarray) -> np.ndarray:
        """f without the intercept for all own rows."""
        return self._gradients(h, np.arange(self.n)) @ combination
