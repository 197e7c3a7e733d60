"""Which clusters to join: a pair whose responsibilities are added up, with the better of its two machines for
both.

For given responsibilities r and posteriors at their best the bound is

    sum_k evidence_k + stick term + sum_n v_n H(r_n) - beta sum_nk r_nk loss_nk - beta / (2 C) sum_k
    ||coef_k||^2

of which a merge of i and j changes the evidence, the sticks, the entropy (which falls) and the losses. The
parts are known at different prices: statistics say what the first two change, and what the losses could bring
at the most; the entropy takes a look at the rows that both have a share of; losses of one machine on the rows
of the other are computed for the pairs that are left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .posterior import Prior, Statistics, evidence, stick_term

# Clusters with less than this have nobody.
EMPTY = 1e-9
# A merge must raise the bound by more than round-off, as a part of its size.
ROUND_OFF = 1e-12


@dataclass(frozen=True)
class Costs:
    """What machines cost. losses : (K,) beta sum_n r_nk loss_nk. norms : (K,) beta / (2 C) ||coef_k||^2."""

    losses: np.ndarray
    norms: np.ndarray


@dataclass(frozen=True)
class Merge:
    """Cluster `gone` becomes part of cluster `kept`, with the machine of cluster `machine`, which is one of
    the two.
    """

    kept: int
    gone: int
    machine: int


def choose_merges(
    statistics: Statistics,
    prior: Prior,
    costs: Costs | None,
    entropies: Callable[[np.ndarray], np.ndarray],
    cross_losses: Callable[[np.ndarray], np.ndarray],
) -> list[Merge]:
    """Disjoint merges that raise the bound, the best first; where there are empty clusters, these alone, all
    into the largest one.

    costs : of the machines, None where there are none. entropies : (P,) what the entropy changes by for pairs
    (P, 2). cross_losses : (P,) beta times the losses of machine i on the rows of cluster j, by their shares
    there, for pairs (i, j) (P, 2). Both are asked once, and for few pairs.
    """
    K = len(statistics.counts)
    empty = np.flatnonzero(statistics.counts <= EMPTY)
    if 0 < len(empty) < K:
        # They bring nothing, but their places among the sticks cost something: all of them go at once, and
        # leave no machine.
        largest = int(statistics.counts.argmax())
        return [Merge(largest, int(k), largest) for k in empty]
    pairs = np.array([(i, j) for i in range(K) for j in range(i + 1, K)], int).reshape(-1, 2)
    if len(pairs) == 0:
        return []
    alone = evidence(statistics, prior)
    i, j = pairs.T
    joined = evidence(statistics.take(i) + statistics.take(j), prior) - alone[i] - alone[j]
    counts, before = statistics.counts, stick_term(statistics.counts, prior.concentration)
    gains = joined + np.array(
        [stick_term(_joined(counts, a, b), prior.concentration) - before for a, b in pairs]
    )
    least = ROUND_OFF * (np.abs(alone).sum() + 1.0)
    hope = np.zeros(len(pairs))
    if costs is not None:
        # Losses are not negative: a machine that goes takes at the most all of its cluster's losses, and its
        # norm, away.
        saved = costs.losses + costs.norms
        hope = np.maximum(saved[i], saved[j])
    open_ = np.flatnonzero(gains + hope > least)
    if len(open_):
        change = np.zeros(len(pairs))
        change[open_] = entropies(pairs[open_])
        gains = gains + change
        joined = joined + change
        open_ = open_[gains[open_] + hope[open_] > least]
    if len(open_) == 0:
        return []
    saved_by, chosen = np.zeros(len(pairs)), i.copy()
    if costs is not None:
        both = np.concatenate([pairs[open_], pairs[open_][:, ::-1]])
        on_j, on_i = np.split(cross_losses(both), 2)  # machine i on the rows of j, and the reverse
        a, b = pairs[open_].T
        keep_i = costs.losses[b] - on_j + costs.norms[b]
        keep_j = costs.losses[a] - on_i + costs.norms[a]
        saved_by[open_] = np.maximum(keep_i, keep_j)
        chosen[open_] = np.where(keep_i >= keep_j, a, b)
    return _disjoint(
        pairs,
        joined + saved_by,
        chosen,
        open_[np.argsort(-(gains + saved_by)[open_], kind="stable")],
        counts,
        prior,
        least,
    )


def _disjoint(pairs, gains, chosen, order, counts, prior, least) -> list[Merge]:
    """Take pairs in this order whose clusters are both still there, as long as they raise the bound.

    gains : (P,) without the sticks, whose part depends on the merges before. Of disjoint pairs the other
    parts add up.
    """
    merges: list[Merge] = []
    used = np.zeros(len(counts), bool)
    present, names = counts, np.arange(len(counts))
    for p in order:
        i, j = pairs[p]
        if used[i] or used[j]:
            continue
        a, b = (int(np.flatnonzero(names == k)[0]) for k in (i, j))
        after = _joined(present, a, b)
        if (
            gains[p] + stick_term(after, prior.concentration) - stick_term(present, prior.concentration)
            <= least
        ):
            continue
        used[[i, j]] = True
        present, names = after, np.delete(names, b)
        merges.append(Merge(int(i), int(j), int(chosen[p])))
    return merges


def _joined(counts: np.ndarray, a: int, b: int) -> np.ndarray:
    """(K - 1,) counts after the cluster at b has become part of that at a."""
    after = np.delete(counts, b)
    after[a if a < b else a - 1] = counts[a] + counts[b]
    return after


def merged_statistics(
    statistics: Statistics, merges: list[Merge]
) -> tuple[Statistics, np.ndarray, np.ndarray]:
    """Statistics after merges, the clusters (K',) that are left, and the cluster (K',) whose machine each of
    them has.
    """
    K = len(statistics.counts)
    onto, machine = np.arange(K), np.arange(K)
    for merge in merges:
        onto[merge.gone] = merge.kept
        machine[merge.kept] = merge.machine
    left = np.flatnonzero(onto == np.arange(K))
    into = np.searchsorted(left, onto)
    parts = []
    for array in (statistics.counts, statistics.sums, statistics.squares):
        total = np.zeros((len(left), *array.shape[1:]))
        np.add.at(total, into, array)
        parts.append(total)
    return Statistics(*parts), left, machine[left]
