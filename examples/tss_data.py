"""Windows of the study of promoters and their five views, and the published figures.

Not a program; see tss.py.
"""

from __future__ import annotations

import numpy as np

from raymkl import kernels
from raymkl.datasets import make_motif_sequences

START = 33  # index of the transcription start site in a window
NAMES = ("signal", "promoter", "exon", "energies", "angles")

# Stacking energies of neighbouring base pairs, kcal/mol: Ornstein, Rein, Breen, MacElroy, Biopolymers 17,
# 2341 (1978).
STACKING = {
    "AA": -5.37,
    "AC": -10.51,
    "AG": -6.78,
    "AT": -6.57,
    "CA": -6.57,
    "CC": -8.26,
    "CG": -9.69,
    "GA": -9.81,
    "GC": -14.59,
    "TA": -3.82,
}
# Twist angles between neighbouring base pairs of B-DNA, degrees: Kabsch, Sander, Trifonov, Nucleic Acids
# Research 10, 1097 (1982).
TWIST = {
    "AA": 35.6,
    "AC": 34.4,
    "AG": 27.7,
    "AT": 31.5,
    "CA": 34.5,
    "CC": 33.7,
    "CG": 29.8,
    "GA": 36.9,
    "GC": 40.0,
    "TA": 36.0,
}
SMOOTHED = 10  # steps that a profile is averaged over

# AUC in per cent by n and method: single kernels from Kloft, lp-norm multiple kernel learning (thesis, 2011),
# section 5.3; n = 1,000 from table 2 of Lei, Binder, Dogan, Kloft (ACML 2016), whose weights of norm 1 and 2
# are block norms 1 and 4/3.
PUBLISHED = {
    (1_000, "MKL, p=1"): 91.2,
    (1_000, "MKL, p=4/3"): 90.7,
    (1_000, "UNIF, p=2"): 89.8,
    (2_000, "only signal"): 89.0,
    (2_000, "only promoter"): 86.0,
    (2_000, "only exon"): 84.0,
    (2_000, "only energies"): 74.0,
    (2_000, "only angles"): 55.0,
}
WHAT_DIFFERS = (
    "Published: 2,000 nucleotides around 8,508 starts of dbTSS against 85,042 windows from the insides of "
    "genes, kernels tuned for them; "
    "here 70 nucleotides, balanced, with negatives that partly hold pieces of promoters, so figures differ, "
    "most of them downwards."
)


def read(path: str) -> dict[str, dict]:
    """Sequences, labels and kinds by split."""
    import pandas as pd

    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise SystemExit(f"--data {path}: {error}") from None
    missing = {"sequence", "label", "split"} - set(table.columns)
    if missing:
        raise SystemExit(
            f"--data {path} has no column {', '.join(sorted(missing))}; it has {', '.join(table.columns)}"
        )
    parts = {}
    for split in ("train", "dev", "test"):
        rows = table[table["split"] == split]
        if not len(rows):
            raise SystemExit(f"--data {path} has no rows with split = {split!r}")
        kinds = (
            rows["kind"].tolist()
            if "kind" in rows
            else ["promoter" if label > 0 else "nonprom" for label in rows["label"]]
        )
        parts[split] = {
            "sequence": rows["sequence"].tolist(),
            "label": rows["label"].to_numpy(),
            "kind": np.array(kinds),
        }
    return parts


def made_up(seed: int) -> dict[str, dict]:
    """Windows with a TATA box, an initiator and an element further down, all of them worn."""
    sequences, labels = make_motif_sequences(
        1200, 70, ["TATAAA", "TCAGTC", "AGACGT"], jitter=2, noise=0.5, flip=0.03, random_state=seed
    )
    kinds = np.where(labels > 0, "promoter", "nonprom")
    edges = {"train": (0, 600), "dev": (600, 800), "test": (800, 1200)}
    return {
        split: {"sequence": sequences[a:b], "label": labels[a:b], "kind": kinds[a:b]}
        for split, (a, b) in edges.items()
    }


def profile(sequences: list[str], steps: dict) -> np.ndarray:
    """(n, length - SMOOTHED) averages of a property of dinucleotides (standardised) over SMOOTHED steps;
    unknown letters count as 0.
    """
    pairing = str.maketrans("ACGT", "TGCA")
    steps = {
        **steps,
        **{pair[::-1].translate(pairing): value for pair, value in steps.items()},
    }  # the other strand reads the same
    values = np.array(list(steps.values()))
    table = np.zeros((256, 256))
    for pair, value in steps.items():
        table[ord(pair[0]), ord(pair[1])] = (value - values.mean()) / values.std()
    letters = np.frombuffer("".join(sequences).upper().encode(), np.uint8).reshape(len(sequences), -1)
    running = np.cumsum(table[letters[:, :-1], letters[:, 1:]], axis=1)
    running = np.concatenate([np.zeros((len(letters), 1)), running], axis=1)
    return (running[:, SMOOTHED:] - running[:, :-SMOOTHED]) / SMOOTHED


def views(sequences: list[str]) -> dict:
    """The five views of windows."""
    return {
        "signal": sequences,
        "promoter": [sequence[:START] for sequence in sequences],
        "exon": [sequence[START:] for sequence in sequences],
        "energies": profile(sequences, STACKING),
        "angles": profile(sequences, TWIST),
    }


def bank() -> list:
    """One kernel per view, in the order of NAMES."""
    return [
        kernels.WeightedDegree(degree=8, shift=4, view="signal"),
        kernels.Spectrum(k=3, view="promoter"),
        kernels.Spectrum(k=3, view="exon"),
        kernels.Linear(view="energies"),
        kernels.Linear(view="angles"),
    ]
