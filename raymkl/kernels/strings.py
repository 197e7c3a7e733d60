"""String kernels: sequences compared by the pieces that they share."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ..data.alphabet import letters_of
from ..data.views import view_key
from .base import Kernel
from .pairs.string_statistics import LARGEST_CODE, KmerCounts, MatchRuns


def _whole(kernel: Kernel, name: str, low: int) -> None:
    value = getattr(kernel, name)
    if not (isinstance(value, Integral) and not isinstance(value, bool | np.bool_) and int(value) >= low):
        raise ValueError(f"{type(kernel).__name__}: {name} must be a whole number >= {low}, got {value!r}")


class Spectrum(Kernel):
    """Spectrum kernel: pieces of k letters (k-mers) that two sequences share, wherever they are.

        k(x, z) = sum over all strings u of k letters of  #(u in x) * #(u in z)

    where #(u in x) is how often u occurs in x. Sequences may have any length. Places with a letter outside
    the alphabet are not counted.

    Parameters
    ----------
    k : int
        Length of the pieces (k-mers), >= 1. The number of possible pieces, (letters in the alphabet)^k, may
        be up to 4e18 (k = 31 for dna).
    view : str, int, list, tuple or None
        Column or key that holds the strings; None for a plain list.
    alphabet : {"dna", "rna", "protein"} or str
        Letters that count; letters of your own in upper case.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.Spectrum(k=2)(["ACGACG", "CGCG"])
    array([[9., 4.],
           [4., 5.]])

    References
    ----------
    Leslie, Eskin, Noble: The spectrum kernel: a string kernel for SVM protein classification. PSB 2002.
    """

    def __init__(self, k: int, view: Any = None, alphabet: str = "dna"):
        self.k = k
        self.view = view
        self.alphabet = alphabet
        self._check()

    def _check(self):
        _whole(self, "k", 1)
        if self.k > 10_000:  # before the power below, which takes its time for huge numbers
            raise ValueError(f"Spectrum: k={self.k} is too large; at most 10000")
        letters = letters_of(self.alphabet)
        if len(letters) ** int(self.k) > LARGEST_CODE:
            most = 1
            while len(letters) > 1 and len(letters) ** (most + 1) <= LARGEST_CODE:
                most += 1
            raise ValueError(
                f"Spectrum: k={self.k} is too large; with {len(letters)} letters k may be at most {most}"
            )

    def statistic(self):
        return KmerCounts(view_key(self.view), letters_of(self.alphabet), int(self.k))

    def powers(self):
        return np.array([0.0, 1.0])


class WeightedDegree(Kernel):
    """Weighted-degree kernel: pieces of up to `degree` letters that two sequences of one length share at the
    same place, or up to `shift` places apart.

        k(x, z) = sum_{d=1..D} beta_d sum_i sum_{s=0..S} 1 / (2 (s + 1)) m_ds(i)
        m_ds(i) = [x_{i+s..} = z_{i..}] + [x_{i..} = z_{i+s..}]
        beta_d  = 2 (D - d + 1) / (D (D + 1))

    where [ ] is 1 when the d letters from there on agree, else 0. A letter outside the alphabet agrees with
    nothing.

    Parameters
    ----------
    degree : int
        D, length of the longest pieces, >= 1 and at most the length of the sequences.
    shift : int
        S >= 0, places by which pieces may be displaced. 0 is the plain weighted-degree kernel.
    view : str, int, list, tuple or None
        Column or key that holds the strings; None for a plain list.
    alphabet : {"dna", "rna", "protein"} or str
        Letters that count; letters of your own in upper case.

    Examples
    --------
    >>> from raymkl import kernels
    >>> kernels.WeightedDegree(degree=2)(["ACGT", "ACTT"]).round(3)
    array([[3.667, 2.333],
           [2.333, 3.667]])

    References
    ----------
    Raetsch, Sonnenburg, Schoelkopf: RASE: recognition of alternatively spliced exons in C. elegans.
    Bioinformatics 21, 2005.
    """

    def __init__(self, degree: int, shift: int = 0, view: Any = None, alphabet: str = "dna"):
        self.degree = degree
        self.shift = shift
        self.view = view
        self.alphabet = alphabet
        self._check()

    def _check(self):
        _whole(self, "degree", 1)
        _whole(self, "shift", 0)
        letters_of(self.alphabet)

    def _scale(self) -> float:
        return 2.0 / (self.degree * (self.degree + 1))

    def statistic(self):
        return MatchRuns(view_key(self.view), letters_of(self.alphabet), int(self.shift), (int(self.degree),))

    def profile(self, t):
        return self._scale() * t

    def powers(self):
        return np.array([0.0, self._scale()])
