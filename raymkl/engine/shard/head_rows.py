"""One head on the rows of a shard: dual variables, box, and the sums that make up f.

    G[f][i, r] = sum_j a_j gate(j) basis_r(statistic(x_j, x_i))      for every family f and every row i at
    work

While a head's weights are *held*, there is no G: f itself is kept, under these weights, which costs half.

Rows *at work* are all rows, or those near the margin: the others would keep their dual variable anyway. They
leave as it shows (`shrink`), and whether that was right a proof shows, from which the rows at work can be
chosen anew (`proof.review`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...optim.losses import Terms, slopes
from ...optim.working_set import evenly_spaced, violators
from ..problem import Head, HeadReply, HeadRequest

if TYPE_CHECKING:
    from .shard import Shard

# Rows leave only if no more than this part of them stays: making smaller arrays costs something, too.
WORTH_LEAVING = 0.85


class HeadRows:
    """State of a head.

    a : (n,) dual variables. terms : of the loss, in the stage whose bounds are multiplied by `bounds_factor`.
    rows : (m,) sorted numbers of the rows at work, or None for all. G : per family (m, R), or
    None while weights are held. offset : (m,) what f differs by from the sums over G, where a proof has shown
    it, else None; f itself while weights are held. f : (n,) of the last proof, or None.
    """

    def __init__(self, head: Head, own: slice, ranks: list[int]):
        """own : ids of the shard's rows. ranks : functions of every family."""
        self.head, self.own, self.ranks = head, own, ranks
        self.a = np.zeros(own.stop - own.start)
        self.enter(1.0)
        self.f: np.ndarray | None = None
        self.work_on(None)

    def work_on(self, rows: np.ndarray | None, held: bool = False) -> None:
        """Begin anew with the given rows, or with all; their sums are zero."""
        m = len(self.a) if rows is None else len(rows)
        self.rows, self.offset = rows, np.zeros(m) if held else None
        self.G: list[np.ndarray] | None = None if held else [np.zeros((m, rank)) for rank in self.ranks]

    def hold(self, f: np.ndarray) -> None:
        """Keep f (m,) of the rows at work alone."""
        self.G, self.offset = None, f

    def shrink(self, stays: np.ndarray) -> bool:
        """Let rows leave, if it is worth it; returns whether it was.

        stays : (m,) mask of the rows at work.
        """
        if stays.sum() > WORTH_LEAVING * len(stays):
            return False
        self.rows = np.flatnonzero(stays) if self.rows is None else self.rows[stays]
        self.G = None if self.G is None else [G[stays] for G in self.G]
        self.offset = None if self.offset is None else self.offset[stays]
        return True

    def of(self, values: np.ndarray) -> np.ndarray:
        """Those of values (n, ...) that belong to the rows at work."""
        return values if self.rows is None else values[self.rows]

    def places(self, local: np.ndarray) -> np.ndarray:
        """Where rows that are at work stand among them."""
        return local if self.rows is None else np.searchsorted(self.rows, local)

    def at_work(self, local: np.ndarray) -> np.ndarray:
        """Those of the given rows that are at work."""
        if self.rows is None or len(local) == 0:
            return local
        there = np.zeros(len(self.a), bool)
        there[self.rows] = True
        return local[there[local]]

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Numbers of the rows at the given places."""
        return places if self.rows is None else self.rows[places]

    def enter(self, bounds_factor: float) -> None:
        """Take the bounds of a stage."""
        head, own, self.bounds_factor = self.head, self.own, bounds_factor
        self.terms = Terms(head.loss, head.targets[own], head.bounds[own] * bounds_factor)

    def take_over(self, bounds_factor: float, a: np.ndarray) -> None:
        """The stage and the dual variables (n,) that a lost shard had."""
        self.enter(bounds_factor)
        self.a = np.array(a)

    def restage(self, bounds_factor: float, stretch: float) -> None:
        """The next stage of a head's path: other bounds, all dual variables (and with them the sums)
        multiplied.
        """
        if bounds_factor != self.bounds_factor:
            self.enter(bounds_factor)
        if stretch != 1.0:
            self.a = np.clip(self.a * stretch, self.terms.lower, self.terms.upper)
            for G in self.G or []:
                G *= stretch
            self.offset = None if self.offset is None else self.offset * stretch

    def residuals(
        self, f: np.ndarray, intercept: float
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
        """Slopes of growing and of shrinking, lower and upper ends: each (m,) of the rows at work.

        f : (m,). intercept : about where the slopes are to meet.
        """
        terms, a = self.terms if self.rows is None else self.terms.of(self.rows), self.of(self.a)
        return slopes(terms.residual(a, f, intercept), a, terms.kink), terms.lower, terms.upper

    def losses(self, f: np.ndarray, intercepts: np.ndarray, every_row: bool = False) -> np.ndarray:
        """(B,) weighted loss at each candidate for the intercept.

        f : (m,) of the rows at work, or (n,) of every row.
        """
        targets, bounds = (
            values if every_row else self.of(values) for values in (self.terms.targets, self.terms.bounds)
        )
        active = bounds > 0
        f, targets, bounds = f[active], targets[active], bounds[active]
        # Losses are convex and not negative: a row that loses nothing at the smallest and the largest
        # candidate loses nothing in between.
        value = self.head.loss.value
        some = (value(f + intercepts.min(), targets) > 0) | (value(f + intercepts.max(), targets) > 0)
        f, targets, bounds = f[some], targets[some], bounds[some]
        return np.array([float(bounds @ value(f + b, targets)) for b in intercepts])

    def reach(self, f: np.ndarray, intercept: float, every_row: bool = False) -> np.ndarray:
        """(m,) how far every row is beyond the point where its dual variable would move: positive for
        violators, -inf for masked rows.

        f : (m,) of the rows at work, or (n,) of every row.
        """
        terms = self.terms
        box = (terms.slope(self.a), self.a, terms.lower, terms.upper)
        slope, a, lower, upper = box if every_row else map(self.of, box)
        grow, shrink = slopes(slope - f - intercept, a, self.head.loss.kink)
        return np.maximum(np.where(a < upper, grow, -np.inf), np.where(a > lower, -shrink, -np.inf))


def reply_of(shard: Shard, part: HeadRequest) -> HeadReply:
    """What a shard tells of a head: losses, violators, gradients of the rows that may move."""
    state = shard.heads[part.head]
    a = state.of(state.a)
    f_values, quadratic = shard.sums(state, part.combination)
    losses = state.losses(f_values, part.intercepts)
    if part.leave is not None:  # before rows are reported: only those that stay may be moved
        level, band = part.leave
        stays = (a != 0) | (state.reach(f_values, level) > -band)
        if state.shrink(stays):
            a, f_values = a[stays], f_values[stays]
    residual, lower, upper = state.residuals(f_values, part.intercept)
    if part.spaced:  # this shard's share, or all rows would come from the first shard: they are alike
        chosen = evenly_spaced(a, lower, upper, -(-part.count * shard.own.n // shard.problem.n_rows))
    else:
        chosen = violators(residual, a, lower, upper, part.count)
    pick = [state.numbers(places) for places in chosen]
    local = shard.own.distinct(*pick, state.at_work(shard.own.numbers(part.watch)))
    reply = HeadReply(
        part.head,
        pick[0] + shard.own.first,
        residual[0][chosen[0]],
        pick[1] + shard.own.first,
        residual[1][chosen[1]],
        local + shard.own.first,
        None if state.G is None else shard.gradients(state, local),
        quadratic,
        losses,
        None if state.offset is None else state.offset[state.places(local)],
    )
    if part.hold:
        state.hold(f_values)
    return reply
