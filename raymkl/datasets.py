"""Sequence files, and made-up sequences whose labels are known.

read_fasta             names and sequences of a FASTA file, plain or gzip
make_motif_sequences   labelled sequences, one class of which has short motifs planted in it
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = ["make_motif_sequences", "read_fasta"]

GZIP_MARK = b"\x1f\x8b"


def read_fasta(path: Any) -> tuple[list[str], list[str]]:
    """Names and sequences of a FASTA file, which may be compressed by gzip (whatever its name).

    A record is a line `>name description` and the lines of letters up to the next one. The name is the whole
    line after `>`; sequences are what the lines hold, put together, in the case they are written in.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    names : list of str
        One per record, in the order of the file.
    sequences : list of str
        One per record, in the same order.

    Raises
    ------
    ValueError
        With the line, when the file does not start with `>`, a record has no name or no letters, or a line of
        a sequence holds something else than letters, `*`, `-` and `.`.

    Examples
    --------
    >>> import tempfile, os
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "two.fasta")
    ...     _ = open(file, "w").write(">first\\nACGT\\nAC\\n>second\\nTTTT\\n")
    ...     read_fasta(file)
    (['first', 'second'], ['ACGTAC', 'TTTT'])
    """
    names: list[str] = []
    parts: list[list[str]] = []
    for number, line in enumerate(_lines(path), start=1):
        line = line.strip()
        if not line or line.startswith(";"):  # blank lines, and comments of old files
            continue
        if line.startswith(">"):
            if parts and not parts[-1]:
                raise ValueError(f"{path}, line {number}: the record {names[-1]!r} before it has no sequence")
            if not line[1:].strip():
                raise ValueError(
                    f"{path}, line {number}: a record without a name; '>' is followed by the name"
                )
            names.append(line[1:].strip())
            parts.append([])
        elif not names:
            raise ValueError(
                f"{path}, line {number}: a FASTA file starts with '>name', not with {line[:40]!r}"
            )
        else:
            if not line.translate(_ALLOWED).isalpha() or not line.isascii():
                raise ValueError(f"{path}, line {number}: {line[:40]!r} is not a line of letters")
            parts[-1].append(line)
    if not names:
        raise ValueError(f"{path} holds no sequences; a FASTA file starts with '>name'")
    if not parts[-1]:
        raise ValueError(f"{path}: the last record {names[-1]!r} has no sequence")
    return names, ["".join(part) for part in parts]


_ALLOWED = str.maketrans("*-.", "XXX")  # stop codons and gaps stand among the letters


def _lines(path: Any) -> list[str]:
    """Text lines of a file, compressed or not."""
    with open(os.fspath(path), "rb") as file:
        data = file.read()
    if data[:2] == GZIP_MARK:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise ValueError(f"{path} is not a complete gzip file: {error}") from None
    try:
        return data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file: {error}") from None


def make_motif_sequences(
    n: int = 200,
    length: int = 60,
    motifs: Sequence[str] = ("TATAAA", "CAAT"),
    jitter: int = 2,
    noise: float = 0.1,
    flip: float = 0.0,
    alphabet: str = "ACGT",
    random_state: Any = None,
) -> tuple[list[str], np.ndarray]:
    """Random sequences, half of which (label 1) have motifs planted near fixed places; the others have label
    -1.

    Parameters
    ----------
    n : int
        Number of sequences.
    length : int
        Letters of each.
    motifs : list of str
        Planted one after the other at evenly spaced places.
    jitter : int
        Each motif is displaced by up to so many letters, at random.
    noise : float
        Probability that a letter of a planted motif is replaced by a random one.
    flip : float
        Probability that a label is wrong.
    alphabet : str
        Letters to draw from.
    random_state : int, numpy.random.Generator or None
        Seed.

    Returns
    -------
    sequences : list of str
        The n sequences.
    labels : ndarray of shape (n,)
        1 with motifs, -1 without.

    Examples
    --------
    >>> sequences, labels = make_motif_sequences(4, length=12, motifs=["GATTACA"], noise=0.0, jitter=0,
    ...     random_state=0)
    >>> [sequence[2:9] for sequence, label in zip(sequences, labels) if label == 1]
    ['GATTACA', 'GATTACA']
    """
    for name, value, low in (("n", n, 1), ("length", length, 1), ("jitter", jitter, 0)):
        if not (isinstance(value, Integral) and not isinstance(value, bool) and value >= low):
            raise ValueError(f"{name} must be a whole number >= {low}, got {value!r}")
    for name, value in (("noise", noise), ("flip", flip)):
        if not (isinstance(value, Real) and 0 <= value <= 1):
            raise ValueError(f"{name} must be a probability in [0, 1], got {value!r}")
    if (
        isinstance(motifs, str)
        or not len(motifs)
        or not all(isinstance(motif, str) and motif and motif.isascii() for motif in motifs)
    ):
        raise ValueError(f"motifs must be a list of strings, got {motifs!r}")
    if not isinstance(alphabet, str) or not alphabet or not alphabet.isascii():
        raise ValueError(f"alphabet must be a string of letters, got {alphabet!r}")
    # Every motif has its own stretch of the sequence and stands in the middle of it.
    edges = np.linspace(0, length, len(motifs) + 1).astype(int)
    for motif, first, last in zip(motifs, edges[:-1], edges[1:], strict=True):
        if len(motif) + 2 * jitter > last - first:
            raise ValueError(
                f"length={length} is too short for {len(motifs)} motifs such as {motif!r} with "
                f"jitter={jitter}"
            )
    rng = np.random.default_rng(random_state)
    letters = np.frombuffer(alphabet.encode("ascii"), np.uint8)
    rows = rng.choice(letters, (n, length))
    labels = rng.permutation(np.where(np.arange(n) % 2 == 0, 1, -1))
    planted = np.flatnonzero(labels == 1)
    for motif, first, last in zip(motifs, edges[:-1], edges[1:], strict=True):
        at = (first + last - len(motif)) // 2 + rng.integers(-jitter, jitter + 1, len(planted))
        copies = np.tile(np.frombuffer(motif.encode("ascii"), np.uint8), (len(planted), 1))
        wrong = rng.random(copies.shape) < noise
        copies[wrong] = rng.choice(letters, int(wrong.sum()))
        rows[planted[:, None], at[:, None] + np.arange(len(motif))] = copies
    labels = np.where(rng.random(n) < flip, -labels, labels)
    return [row.tobytes().decode("ascii") for row in rows], labels
