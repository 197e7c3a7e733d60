"""Windows of the study of splice sites, and the published figures.

Not a program; see splice.py.
"""

from __future__ import annotations

import numpy as np

from raymkl.datasets import make_motif_sequences

SITE = 197  # index of the A of AG
VALIDATION, TEST = 500, 2_000  # windows, half of them sites
LARGE_TEST = 20_000

# AUC in per cent, means and standard deviations of 50 splits: table 1 of Lei, Binder, Dogan, Kloft, ACML
# 2016. Its p is the norm of the weights, 1, 1.33 and 2; here p is the block norm that goes with it, 1, 8/7
# and 4/3.
PUBLISHED_SIZES = (50, 100, 200, 400, 800)
PUBLISHED = {
    "UNIF": ((79.5, 2.8), (84.2, 2.2), (88.0, 1.7), (91.6, 1.5), (93.8, 2.3)),
    "MKL, p=1": ((80.2, 2.8), (85.2, 2.0), (89.2, 1.6), (92.5, 1.5), (94.2, 2.1)),
    "MKL, p=8/7": ((79.7, 2.9), (84.6, 2.1), (88.6, 1.7), (92.0, 1.5), (93.8, 2.1)),
    "MKL, p=4/3": ((79.6, 2.8), (84.3, 2.2), (88.3, 1.7), (91.8, 1.5), (93.8, 2.2)),
    "HLMKL, p=1": ((84.9, 2.0), (87.7, 1.8), (90.4, 1.6), (93.0, 1.3), (95.0, 2.0)),
    "HLMKL, p=8/7": ((85.4, 1.9), (88.5, 1.7), (90.1, 1.6), (92.7, 1.2), (94.4, 2.1)),
    "HLMKL, p=4/3": ((84.9, 2.0), (87.0, 1.7), (90.4, 1.4), (92.6, 1.4), (94.4, 2.2)),
    "CLMKL, p=1": ((90.9, 1.6), (91.3, 1.4), (93.3, 1.2), (94.3, 1.0), (95.2, 2.0)),
    "CLMKL, p=8/7": ((90.9, 1.5), (90.1, 1.3), (92.7, 1.2), (94.8, 1.1), (95.4, 1.9)),
    "CLMKL, p=4/3": ((90.5, 1.6), (92.3, 1.2), (93.0, 1.2), (94.4, 1.1), (95.6, 1.9)),
    "LMKL": ((79.8, 2.7), (84.2, 2.3), (88.4, 1.7), (91.9, 1.5), (94.3, 2.2)),
}
WHAT_DIFFERS = (
    "What differs: the published figures are from 1,000 windows with ready-made kernels (mkl-splice), split "
    "at random into training, "
    "validation and test; here windows (398 letters) come from one part of the genome and are tested on "
    "another, sites and decoys in "
    "equal numbers, with fewer splits and values to choose from. The published p is the norm of the weights, "
    "here it is the block norm: published 1, 1.33, 2 are 1, 8/7, 4/3 here."
)


def published(method: str, n: int) -> tuple[float | None, float | None]:
    """Mean and standard deviation that were published for a method and n training windows, if any."""
    if method not in PUBLISHED or n not in PUBLISHED_SIZES:
        return None, None
    return PUBLISHED[method][PUBLISHED_SIZES.index(n)]


class Windows:
    """Windows of two parts of a genome, by part and label.

    first, last : {1: sites, -1: decoys}, lists of strings of one length.
    """

    def __init__(self, first: dict, last: dict, degrees: int):
        self.first, self.last, self.degrees = first, last, degrees

    @classmethod
    def read(cls, path: str, around: int | None):
        """From a table; of every window `around` letters on both sides of AG, or all."""
        import pandas as pd

        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise SystemExit(f"--data {path}: {error}") from None
        missing = {"sequence", "label", "part"} - set(table.columns)
        if missing:
            raise SystemExit(
                f"--data {path} has no column {', '.join(sorted(missing))}; it has {', '.join(table.columns)}"
            )
        if around is not None:
            if not 10 <= around <= SITE:
                raise SystemExit(f"--around must be from 10 to {SITE}, got {around}")
            table["sequence"] = table["sequence"].str.slice(SITE - around, SITE + 2 + around)
        groups = {key: rows["sequence"].tolist() for key, rows in table.groupby(["part", "label"])}
        absent = [
            key for part in ("first", "last") for label in (1, -1) if (key := (part, label)) not in groups
        ]
        if absent:
            raise SystemExit(f"--data {path} has no rows with part, label = {absent[0]}")
        return cls(
            *({label: groups[part, label] for label in (1, -1)} for part in ("first", "last")), degrees=20
        )

    @classmethod
    def made_up(cls, seed: int):
        """Windows in which a worn motif stands near the middle."""
        parts = []
        for part in range(2):
            X, y = make_motif_sequences(400, 30, ["TTTTCAG"], jitter=0, noise=0.4, random_state=[seed, part])
            parts.append(
                {label: [x for x, own in zip(X, y, strict=True) if own == label] for label in (1, -1)}
            )
        return cls(*parts, degrees=8)

    def draw(self, split: int, n: int, seed: int) -> tuple:
        """(sequences, labels) to train with, to validate with and to test with, in equal parts; larger n
        contain smaller ones.
        """
        rng = np.random.default_rng([seed, split])
        first = {label: rng.permutation(len(self.first[label])) for label in (1, -1)}
        last = {label: rng.permutation(len(self.last[label])) for label in (1, -1)}
        held_out = min(VALIDATION, min(map(len, first.values())) // 2) // 2
        room = min(map(len, first.values())) - held_out
        if n > 2 * room:
            raise SystemExit(
                f"{n} windows were asked for; there are {2 * room} in equal numbers of sites and decoys"
            )
        train = self._taken(self.first, {label: order[: n // 2] for label, order in first.items()})
        valid = self._taken(
            self.first, {label: order[len(order) - held_out :] for label, order in first.items()}
        )
        return (
            train,
            valid,
            self._taken(self.last, {label: order[: TEST // 2] for label, order in last.items()}),
        )

    def draw_large(self, n: int, seed: int) -> tuple:
        """(sequences, labels) to train with, with as many sites as there are (half of n at most), and to test
        with.
        """
        rng = np.random.default_rng([seed, 1_000_003])
        parts = []
        for part, size in ((self.first, n), (self.last, LARGE_TEST)):
            sites = min(len(part[1]), size // 2)
            decoys = min(len(part[-1]), size - sites)
            parts.append(
                self._taken(
                    part,
                    {1: rng.permutation(len(part[1]))[:sites], -1: rng.permutation(len(part[-1]))[:decoys]},
                )
            )
        return tuple(parts)

    @staticmethod
    def _taken(part: dict, rows: dict) -> tuple[list[str], np.ndarray]:
        return [part[label][i] for label in (1, -1) for i in rows[label]], np.repeat(
            [1, -1], [len(rows[1]), len(rows[-1])]
        )
