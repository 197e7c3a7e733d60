"""Pair statistics of sequences: what string kernels are functions of.

| statistic   | of two sequences x and z                                          | kernels |
|---|---|---|
| MatchRuns   | sum_{d <= D} (D - d + 1) M_d for every degree D of a bank         | WeightedDegree |
| KmerCounts  | sum over all k-mers of (times it occurs in x) * (times in z)      | Spectrum |

M_d is the number of places from which d letters of x and z agree. One pass over the matching letters gives
M_1, M_2, ... one after the other, and a running sum of running sums of them is what a kernel of degree D = 1,
2, ... is made of, so a whole bank of degrees costs little more than its highest. A statistic with several
degrees holds one number per degree and pair: blocks of it have the shape (rows, depth, columns), and each
`plane` [:, q, :] is the block of one degree.

Values are whole numbers (without a shift) and are cached in two bytes where they fit, without loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...data.alphabet import bits_per_letter, code_table
from ...data.strings import lengths_of, letters_and_starts
from ...data.views import where_of
from ..loops.sequences import (
    count_kmers,
    invert,
    kmer_products,
    match_runs,
    own_runs,
    pack_planes,
    spread_counts,
)
from .statistics import Statistic, _read_only

# k-mers are coded in 63 bits.
LARGEST_CODE = 2**62
# Numbers of possible k-mers up to which an inverted index is addressed by the k-mer itself.
DIRECT_INDEX = 2**20
# Products of count vectors go through BLAS when there are at most this many possible k-mers, and few for the
# length of the sequences.
DENSE_KMERS = 4096
DENSE_PER_LETTER = 9.0


@dataclass
class PreparedMatches:
    """Sequences of one length as bit planes (bits + 1, words, n); see `loops.sequences`."""

    planes: np.ndarray
    length: int
    dtype: Any

    def __len__(self) -> int:
        return self.planes.shape[2]

    def take(self, index: Any) -> PreparedMatches:
        return PreparedMatches(np.ascontiguousarray(self.planes[:, :, index]), self.length, self.dtype)


@dataclass(frozen=True)
class MatchRuns(Statistic):
    """Matching runs of sequences of one length, for kernels of the given degrees.

    letters : sorted, see `alphabet`.
    """

    letters: str = "ACGT"
    shift: int = 0
    degrees: tuple = (1,)
    non_negative = False  # so that no table is made over the bits of whole numbers
    reads_strings = True

    @property
    def depth(self) -> int:
        return len(self.degrees)

    @property
    def kin(self) -> MatchRuns:
        return replace(self, degrees=())

    def joined(self, others: Iterable[MatchRuns], one_gate: bool) -> MatchRuns:
        """One statistic for several that differ in their degree.

        one_gate : whether their kernels have the same gate.
        """
        from .match_counts import (
            FEWEST_DEGREES,
            MatchCounts,
        )  # which is a `MatchRuns`: it cannot be loaded first

        degrees = tuple(sorted({degree for other in others for degree in other.degrees}))
        if one_gate and self.shift == 0 and len(degrees) >= FEWEST_DEGREES:
            return MatchCounts(self.view, self.letters, self.shift, degrees)
        return replace(self, degrees=degrees)

    def plane_of(self, other: MatchRuns) -> int:
        return self.degrees.index(other.degrees[0])

    def cell_dtype(self, rows: Mapping, dtype: Any) -> Any:
        if self.shift:
            return dtype
        return _narrowest(max(_most(degree, rows[self.view].shape[1]) for degree in self.degrees), dtype)

    def check_rows(self, rows: Mapping) -> None:
        lengths = lengths_of(rows[self.view])
        if lengths.min() != lengths.max():
            row = int(np.flatnonzero(lengths != lengths[0])[0])
            raise ValueError(
                f"weighted-degree kernels compare sequences of equal length, but in {where_of(self.view)} "
                f"row 0 has length {lengths[0]} "
                f"and row {row} has length {lengths[row]}; Spectrum takes sequences of any length"
            )
        if max(self.degrees) > lengths[0]:
            raise ValueError(
                f"degree={max(self.degrees)} is larger than the length {lengths[0]} of the sequences in "
                f"{where_of(self.view)}"
            )

    def prepare(self, rows, dtype=np.float64, centers=None):
        self.check_rows(rows)
        letters, _ = letters_and_starts(rows[self.view])
        n, length = rows[self.view].shape
        planes = np.zeros((bits_per_letter(self.letters) + 1, -(-length // 64), n), np.uint64)
        pack_planes(_read_only(letters), length, code_table(self.letters), planes)
        return PreparedMatches(planes, length, dtype)

    def pairs(self, a, b):
        out = np.empty((len(a), self.depth, len(b)), a.dtype)
        self.fill(a, b, out, np.arange(len(a)))
        return out[:, 0] if self.depth == 1 else out

    def check_lengths(self, a: PreparedMatches, b: PreparedMatches) -> None:
        if a.length != b.length:
            raise ValueError(
                "weighted-degree kernels compare sequences of equal length, but there are sequences of "
                f"length {a.length} and of length "
                f"{b.length} in {where_of(self.view)}"
            )

    def fill(self, a, b, cache, slots):
        self.check_lengths(a, b)
        target = cache[:, None, :] if cache.ndim == 2 else cache
        match_runs(a.planes, b.planes, np.array(self.degrees), self.shift, target, np.array(slots))
        if is_new(match_runs):
            from .match_counts import compile_loops  # as above

            compile_loops()  # who has waited for one kernel need not wait for a bank another time

    def diagonal(self, a):
        out = np.empty((self.depth, len(a)))
        own_runs(a.planes, np.array(self.degrees), self.shift, out)
        return out[0] if self.depth == 1 else out.T

    def largest(self, a):
        return float(self.diagonal(a).max()) if len(a) else 0.0


def is_new(loop: Any) -> bool:
    """Whether numba had to compile a loop in this process: no earlier one has kept it on this machine."""
    return sum(loop.stats.cache_misses.values()) > 0 if hasattr(loop, "stats") else False


def _most(degree: int, length: int) -> int:
    """Largest value of sum_{d <= D} (D - d + 1) M_d: all letters match."""
    return sum((degree - d + 1) * (length - d + 1) for d in range(1, min(degree, length) + 1))


def _narrowest(largest: int, dtype: Any) -> Any:
    """Two bytes for whole numbers that fit; else floating-point numbers in which they are exact, or those
    asked for.
    """
    if largest < 2**16:
        return np.uint16
    return dtype if largest < 2**24 else np.float64


class PreparedKmers:
    """Distinct k-mers of every row: row i holds codes[indptr[i]:indptr[i + 1]], sorted, with their counts."""

    def __init__(self, indptr: np.ndarray, codes: np.ndarray, counts: np.ndarray, possible: int, dtype: Any):
        self.indptr, self.codes, self.counts, self.possible, self.dtype = (
            indptr,
            codes,
            counts,
            possible,
            dtype,
        )
        self._dense: np.ndarray | None = None
        self._index: tuple | None = None

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def take(self, index: Any) -> PreparedKmers:
        rows = np.arange(len(self))[index]
        lengths = np.diff(self.indptr)[rows]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        if isinstance(index, slice) and index.step in (None, 1):
            first = self.indptr[rows[0]] if len(rows) else 0
            places = slice(first, first + indptr[-1])
        else:
            places = np.repeat(self.indptr[rows] - indptr[:-1], lengths) + np.arange(indptr[-1])
        part = PreparedKmers(indptr, self.codes[places], self.counts[places], self.possible, self.dtype)
        part._dense = None if self._dense is None else self._dense[index]
        return part

    @property
    def worth_dense(self) -> bool:
        """Whether products with these rows are quicker through BLAS than through an inverted index."""
        return (
            self.possible <= DENSE_KMERS and self.possible * len(self) <= DENSE_PER_LETTER * self.counts.sum()
        )

    @property
    def dense(self) -> np.ndarray:
        """(n, possible k-mers) counts."""
        if self._dense is None:
            dense = np.zeros((len(self), self.possible), self.dtype)
            spread_counts(self.indptr, self.codes, self.counts, dense)
            self._dense = dense
        return self._dense

    @property
    def index(self) -> tuple:
        """(vocabulary or None, begins, rows, amounts): the rows that hold each k-mer."""
        if self._index is None:
            vocabulary, terms, size = None, self.codes, self.possible
            if size > DIRECT_INDEX:
                vocabulary, terms = np.unique(self.codes, return_inverse=True)
                size = len(vocabulary)
            begins = np.zeros(size + 1, np.int64)
            rows, amounts = np.empty(len(terms), np.int32), np.empty(len(terms), np.int32)
            invert(self.indptr, terms, self.counts, begins, rows, amounts)
            self._index = (vocabulary, begins, rows, amounts)
        return self._index


@dataclass(frozen=True)
class KmerCounts(Statistic):
    """Inner products of the k-mer counts of sequences of any length. letters : sorted, see `alphabet`."""

    letters: str = "ACGT"
    k: int = 1
    non_negative = False
    reads_strings = True

    def cell_dtype(self, rows: Mapping, dtype: Any) -> Any:
        return _narrowest(max(rows[self.view].shape[1] - self.k + 1, 0) ** 2, dtype)

    def prepare(self, rows, dtype=np.float64, centers=None):
        letters, starts = letters_and_starts(rows[self.view])
        indptr = np.empty(len(starts), np.int64)
        codes, counts = np.empty(len(letters), np.int64), np.empty(len(letters), np.int32)
        table, size = code_table(self.letters), len(self.letters)
        count_kmers(_read_only(letters), starts, table, self.k, size, indptr, codes, counts)
        used = int(indptr[-1])
        longest = rows[self.view].shape[1]
        exact = (
            np.float64 if longest**2 >= 2**24 else dtype
        )  # whole numbers beyond 2^24 are not exact in float32
        return PreparedKmers(indptr, codes[:used].copy(), counts[:used].copy(), size**self.k, exact)

    def pairs(self, a, b):
        if b.worth_dense:
            return a.dense @ b.dense.T
        out = np.empty((len(a), len(b)), a.dtype)
        self.fill(a, b, out, np.arange(len(a)))
        return out

    def fill(self, a, b, cache, slots):
        if b.worth_dense:
            super().fill(a, b, cache, slots)
            return
        vocabulary, begins, rows, amounts = b.index
        terms = a.codes
        if vocabulary is not None:
            terms = np.searchsorted(vocabulary, a.codes)
            terms[terms == len(vocabulary)] = 0
            terms[vocabulary[terms] != a.codes if len(vocabulary) else slice(None)] = -1
        kmer_products(a.indptr, terms, a.counts, begins, rows, amounts, cache, np.array(slots))

    def diagonal(self, a):
        squares = np.concatenate([[0.0], np.cumsum(a.counts.astype(np.float64) ** 2)])
        return squares[a.indptr[1:]] - squares[a.indptr[:-1]]

    def largest(self, a):
        return float(self.diagonal(a).max()) if len(a) else 0.0
