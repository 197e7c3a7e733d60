"""What travels between the coordinator and its shards, and the description of a learning problem.

Everything here is plain data: arrays, numbers and small value objects, so that it crosses a process boundary
cheaply.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..kernels.pairs.families import Family
from ..optim.losses import Loss
from ..optim.norms import Norm


@dataclass
class Head:
    """One learning problem over the shared rows: a class of one-vs-rest, a fold, a setting of a search.

    targets, bounds : (n,) labels or values, and C * weights (0 masks a row). loss, norm : see `optim`.
    solver : "chunking" or "wrapper". theta_step : "auto", "analytic" or "cutting_plane". tol : relative
    duality gap to reach.
    normalize : kind of normalisation whose constants are learned from the unmasked rows of this head.
    start : dual variables (n,) and weights (E,) to begin with, or None. normalisation : (E,) factors that are
    known already.
    after : place, in the list that this head comes in, of a head of much the same problem, whose first result
    it waits for and begins from; a fold comes after the problem of all rows.
    ceiling : give up as soon as the dual objective, and so the optimum, is above this.
    path : factors of the bounds, solved one after the other from where the last one ended (a path over C;
    ascending is best).
    stage : where on the path to begin.
    watch : (k,) ids of rows whose f is wanted at the end of every stage of the path, e.g. the masked ones:
    held-out predictions.
    total : what the dual variables sum to; the primal problem adds total * b.
    group : heads with the same group share one set of weights (quadratic terms summed over them); None stands
    alone.
    every_row : keep sums for every row, because something else than the rounds reads them.
    entries : (E,) bool, the entries that this head learns over; the others are left out, as if the bank were
    smaller. None: all.
    shrinks : whether rows far from the margin may leave the rounds, and f alone may be kept while weights are
    held (see `head_rows`); set by the coordinator.
    """

    targets: np.ndarray
    bounds: np.ndarray
    loss: Loss
    norm: Norm
    tol: float = 1e-3
    solver: str = "chunking"
    theta_step: str = "auto"
    normalize: str | None = None
    max_rounds: int = 10_000
    start: tuple[np.ndarray, np.ndarray] | None = None
    normalisation: np.ndarray | None = None
    after: int | None = None
    ceiling: float = np.inf
    path: tuple[float, ...] = (1.0,)
    stage: int = 0
    watch: np.ndarray | None = None
    group: int | None = None
    total: float = 0.0
    every_row: bool = False
    entries: np.ndarray | None = None
    shrinks: bool = False


def together(heads: list[Head]) -> int:
    """Heads that must be trained at the same time, because they share their weights."""
    return max(Counter(head.group for head in heads if head.group is not None).values(), default=1)


def put_beside(heads: list[Head], more: list[Head]) -> slice:
    """Put the heads of another model beside those of a list; returns their places.

    The groups that they share weights in, and the heads that they come after, become those of the list.
    """
    first, groups = len(heads), 1 + max((head.group for head in heads if head.group is not None), default=-1)
    for head in more:
        head.group = None if head.group is None else groups + head.group
        head.after = None if head.after is None else first + head.after
    heads += more
    return slice(first, len(heads))


@dataclass
class Problem:
    """All that a pool of shards and its coordinator need besides the rows.

    views : view keys, in the order of the columns of a row block. families : entries grouped by statistic and
    gate.
    gates : (n, J) or None. dtype : of the statistics, except those in `wide`, which are float64. may_widen :
    whether to go on in float64 where float32 does not reach the tolerance. depths : matrices in the stack of
    each view that holds ready-made ones. exact : evaluate formulas instead of tables. coarse : whether tables
    may span the kernels less precisely. light : statistics that are computed anew where they are wanted,
    which is quicker than keeping them. cells : dtype of the caches of those statistics that are kept in
    another one than they are computed in.
    """

    views: list
    families: list[Family]
    n_rows: int
    n_entries: int
    gates: np.ndarray | None = None
    dtype: Any = np.float32
    exact: bool = False
    coarse: bool = False
    may_widen: bool = False
    wide: frozenset = frozenset()
    light: frozenset = frozenset()
    depths: dict = field(default_factory=dict)
    cells: dict = field(default_factory=dict)

    @property
    def statistics(self) -> list:
        """The statistics of all families, each once."""
        return list(dict.fromkeys(family.statistic for family in self.families))

    def dtype_of(self, statistic: Any) -> Any:
        """dtype in which a statistic is computed."""
        return np.float64 if statistic in self.wide else self.dtype

    def is_cached(self, statistic: Any) -> bool:
        """Whether shards keep the statistics of columns."""
        return statistic.cacheable and statistic not in self.light

    def cell_dtype(self, statistic: Any) -> Any:
        """dtype in which a statistic is cached."""
        return self.cells.get(statistic, self.dtype_of(statistic))

    def pair_bytes(self, statistic: Any) -> int:
        """Bytes of a statistic in a cache, per pair of rows."""
        return statistic.pair_bytes(self.cell_dtype(statistic))


@dataclass
class HeadRequest:
    """What one head asks of every shard in a round.

    columns : (k,) ids of rows whose dual variable changed, `slots` (k,) where their statistics are, `delta`
    (k,) the changes and `values` (k,) the new values (adding a change could miss a bound by one bit, and "at
    its bound" must be exact).
    combination : (R,) weights of the basis functions that make up f. intercepts : (B,) candidates to evaluate
    the loss at.
    watch : ids whose gradients are wanted back. count : violators wanted per side. spaced : pick them
    evenly, not by violation.
    bounds_factor : what this stage of the path multiplies the head's bounds by. stretch : what all dual
    variables are multiplied by first.
    leave : (intercept, band): rows that are further than the band from moving their dual variable leave the
    rounds; None: none leave.
    hold : whether f alone is to be kept after this round. intercept : the best candidate so far.
    """

    head: int
    columns: np.ndarray
    slots: np.ndarray
    delta: np.ndarray
    values: np.ndarray
    combination: np.ndarray
    intercepts: np.ndarray
    watch: np.ndarray
    count: int
    spaced: bool = False
    bounds_factor: float = 1.0
    stretch: float = 1.0
    leave: tuple[float, float] | None = None
    hold: bool = False
    intercept: float = 0.0


@dataclass
class RoundRequest:
    """One call to every shard: rows that enter the cache (with their features and slots), what each head
    asks, heads to forget.

    columns, column_rows : (k,) all rows that a head has changed, sorted, and their features where statistics
    are not cached.
    """

    round: int
    entering: np.ndarray
    slots: np.ndarray
    rows: dict
    columns: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    column_rows: dict = field(default_factory=dict)
    heads: list[HeadRequest] = field(default_factory=list)
    drop: list[int] = field(default_factory=list)


@dataclass
class HeadReply:
    """Answer of a shard for one head.

    grow, shrink : ids of the worst violators of both sides with their residuals. ids, gradients : rows whose
    per-function gradients (k, R) are returned, gates applied. quadratic : (R,) partial sum_i a_i g_i. losses
    : (B,) partial losses. offsets : (k,) what f of the rows in `ids` differs by from their gradients, where a
    proof has shown it (see `proof`). While weights are held, gradients is None, offsets are f, and quadratic
    (1,) is partial sum_i a_i f_i.
    """

    head: int
    grow: np.ndarray
    grow_residual: np.ndarray
    shrink: np.ndarray
    shrink_residual: np.ndarray
    ids: np.ndarray
    gradients: np.ndarray | None
    quadratic: np.ndarray
    losses: np.ndarray
    offsets: np.ndarray | None = None


@dataclass
class RoundReply:
    """Answer of a shard: per head, and the features of rows that the coordinator sees for the first time."""

    round: int
    heads: list[HeadReply]
    new_ids: np.ndarray
    new_rows: dict
