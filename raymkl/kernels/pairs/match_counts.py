"""Banks of weighted-degree kernels: few small numbers per pair of sequences, from which kernels of all
degrees follow.

A kernel of degree D is a weighted sum of M_1 .. M_D, the numbers of places from which 1 .. D letters of two
sequences match. Long runs of matching letters are rare unless the sequences are related, so a pair keeps M_1
.. M_m in one byte each, with m = 8 for dna: when M_m >= 2 there is a longer run, and when M_1 fills its byte
it may be more; then (a pair in a thousand or so) all numbers are counted again from the letters, which the
block has at hand. Nothing is lost, and twenty degrees take eight bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..loops.match_counts import (
    COLUMNS,
    ROW_TILE,
    accumulate_counts,
    combine_counts,
    match_counts,
    reuse_pairs,
)
from .basis import Basis
from .memory import untouched
from .string_statistics import MatchRuns, PreparedMatches

# A bank of fewer degrees keeps the value of each.
FEWEST_DEGREES = 4
# M_m is kept up to an m beyond which a pair of random sequences of this many letters has a longer run once in
# 1000 pairs.
TYPICAL_LENGTH = 200
RARE = 1 / 1000
MOST_KEPT = 12


class RunBlock:
    """Counts `cells` (rows, m, columns) of sequences with sequences, the bit planes of both sides, and the
    dtype to sum them in.
    """

    def __init__(
        self,
        cells: np.ndarray,
        left: np.ndarray | None = None,
        right: np.ndarray | None = None,
        number: Any = np.float64,
    ):
        self.cells, self.left, self.right, self.number = cells, left, right, number

    def __getitem__(self, rows: slice) -> RunBlock:
        return RunBlock(
            self.cells[rows], np.ascontiguousarray(self.left[:, :, rows]), self.right, self.number
        )

    @classmethod
    def among(cls, prepared: PreparedMatches, cells: np.ndarray) -> RunBlock:
        """A block of sequences with themselves, whose cells are still to be filled."""
        return cls(cells, prepared.planes, prepared.planes, prepared.dtype)

    def note(self, a: PreparedMatches, b: PreparedMatches, slots: np.ndarray) -> None:
        """Keep the letters of new rows, and of all columns."""
        if self.left is b.planes:  # a block of sequences with themselves
            return
        if self.left is None:
            self.left = np.zeros((*a.planes.shape[:2], len(self.cells)), np.uint64)
        self.right, self.number = b.planes, b.dtype
        self.left[:, :, slots] = a.planes


@dataclass(frozen=True)
class MatchCounts(MatchRuns):
    """Matching runs for a bank of many degrees without shift; blocks of it are `RunBlock`s."""

    block_of_its_own = True

    @property
    def kept(self) -> int:
        """m, the numbers per pair that are kept."""
        rare = math.log(TYPICAL_LENGTH / RARE) / math.log(max(len(self.letters), 2))
        return min(self.degrees[-1], max(math.ceil(rare) - 1, 2), MOST_KEPT)

    def cell_dtype(self, rows, dtype):
        # A byte is enough for pairs of sequences that are not close relatives.
        return np.uint8 if rows[self.view].shape[1] * 1.5 < 200 * len(self.letters) else np.uint16

    def pair_bytes(self, dtype):
        return self.kept * np.dtype(dtype).itemsize

    def empty_block(self, rows, columns, dtype):
        return RunBlock(untouched((rows, self.kept, columns), dtype))

    def fill(self, a, b, cache, slots):
        if not isinstance(cache, RunBlock):
            super().fill(a, b, cache, slots)
            return
        self.check_lengths(a, b)
        slots = np.array(slots)
        cache.note(a, b, slots)
        match_counts(a.planes, b.planes, cache.cells, slots)


class RunBasis(Basis):
    """Functions sum_{d <= D} (D - d + 1) M_d of a `RunBlock`, one per degree D of a family, and what
    multiples of them the kernels are.
    """

    def __init__(self, degrees: Sequence[int], factors: Sequence[float]):
        degrees = np.asarray(degrees, np.int64)
        self.degrees, place = np.unique(degrees, return_inverse=True)
        self.coefficients = np.zeros((len(degrees), len(self.degrees)))
        self.coefficients[np.arange(len(degrees)), place] = factors
        # (longest, R) how often M_d counts in each function.
        self.counted = np.maximum(self.degrees[None] - np.arange(self.degrees[-1])[:, None], 0).astype(
            np.float64
        )
        self.counted.flags.writeable = False

    def accumulate(
        self, stat: RunBlock, slots: Any, weights: Any, out: np.ndarray, start: int, stop: int
    ) -> None:
        odd = -len(slots) % COLUMNS
        if odd:
            slots, weights = np.append(slots, np.repeat(slots[:1], odd)), np.append(weights, np.zeros(odd))
        room = np.empty(ROW_TILE, stat.number)
        accumulate_counts(
            stat.cells, stat.left, stat.right, slots, weights, self.counted, room, out, start, stop
        )

    def function(self, combination):
        weights = self.counted @ combination

        def fill(stat: RunBlock, out: np.ndarray) -> None:
            combine_counts(
                stat.cells, stat.left, stat.right, weights, np.empty(stat.cells.shape[2], stat.number), out
            )

        return fill


@functools.cache
def compile_loops() -> None:
    """Compile what banks run, by working on two sequences."""
    statistic, both = MatchCounts(degrees=tuple(range(1, FEWEST_DEGREES + 1))), np.arange(2)
    basis = RunBasis(statistic.degrees, np.ones(FEWEST_DEGREES))
    for number in (np.float32, np.float64):
        prepared = PreparedMatches(np.zeros((3, 1, 2), np.uint64), 30, number)
        block = RunBlock.among(prepared, statistic.empty_block(2, 2, np.uint8).cells)
        statistic.fill(prepared, prepared, block, both)
        basis.accumulate(block, both, np.ones(2), np.zeros((2, FEWEST_DEGREES)), 0, 2)
        basis.function(np.ones(FEWEST_DEGREES))(block, np.empty((2, 2)))
        reuse_pairs(block.cells, both, both, block.cells.copy(), both, both, both[:0])
