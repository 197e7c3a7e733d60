"""Alphabets: which letters of a sequence count, and the numbers that stand for them.

    name      letters
    dna       ACGT
    rna       ACGU
    protein   ACDEFGHIKLMNPQRSTVWY
    own       any ASCII characters, written in upper case: "HPX", "01"

Case is folded. A letter outside the alphabet (N for an unknown base, a gap) matches nothing, not even itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

ALPHABETS = {"dna": "ACGT", "rna": "ACGU", "protein": "ACDEFGHIKLMNPQRSTVWY"}
# Code of a letter outside the alphabet.
UNKNOWN = 255


def letters_of(alphabet: Any) -> str:
    """Sorted upper-case letters of an alphabet given by name or by its letters; equal alphabets give equal
    strings.

    >>> letters_of("dna"), letters_of("TGCA")
    ('ACGT', 'ACGT')
    """
    known = ", ".join(map(repr, ALPHABETS))
    if not isinstance(alphabet, str):
        raise TypeError(
            f"alphabet must be one of {known} or a string of letters, got {type(alphabet).__name__}"
        )
    if alphabet.lower() in ALPHABETS:
        return ALPHABETS[alphabet.lower()]
    if alphabet != alphabet.upper():
        raise ValueError(
            f"alphabet {alphabet!r} is unknown; known are {known}, and letters of your own are written in "
            "upper case"
        )
    if not alphabet:
        raise ValueError(
            f"alphabet is an empty string; it must be one of {known} or hold at least one letter"
        )
    if not all(32 < ord(letter) < 127 for letter in alphabet):
        raise ValueError(f"alphabet {alphabet!r} has a character that is not a printable ASCII character")
    return "".join(sorted(set(alphabet)))


@lru_cache(maxsize=64)
def code_table(letters: str) -> np.ndarray:
    """(256,) uint8: code 0..len(letters) - 1 of every byte, either case, and UNKNOWN for all others."""
    table = np.full(256, UNKNOWN, np.uint8)
    for code, letter in enumerate(letters):
        table[ord(letter.lower())] = code
        table[ord(letter)] = code
    table.flags.writeable = False
    return table


def bits_per_letter(letters: str) -> int:
    """Bits that tell the letters of an alphabet apart."""
    return max(1, (len(letters) - 1).bit_length())
