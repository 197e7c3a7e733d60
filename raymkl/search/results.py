"""The table of a search, `cv_results_`, with scikit-learn's names: a row per setting."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import FitFailedWarning


def results_of(
    settings: list[dict], out: list[list[dict]], parts: Iterable[str], scorers: Iterable[str]
) -> dict[str, Any]:
    """Columns by name, (n_settings,) each.

    out : per setting and fold a record with fit_time, score_time, and {part}_{scorer} for all parts ("test",
    "train") and scorers.
    """
    results: dict[str, Any] = {}
    for name in ("fit_time", "score_time"):
        times = np.array([[record[name] for record in folds] for folds in out])
        results[f"mean_{name}"], results[f"std_{name}"] = times.mean(axis=1), times.std(axis=1)
    for name in sorted({name for setting in settings for name in setting}):
        column = np.ma.MaskedArray(np.empty(len(settings), object), mask=True)
        for position, setting in enumerate(settings):
            if name in setting:
                column[position] = setting[name]
        results[f"param_{name}"] = column
    results["params"] = settings
    for part in parts:
        for name in scorers:
            key = f"{part}_{name}"
            scores = np.array([[record[key] for record in folds] for folds in out])
            for fold in range(scores.shape[1]):
                results[f"split{fold}_{key}"] = scores[:, fold]
            results[f"mean_{key}"], results[f"std_{key}"] = scores.mean(axis=1), scores.std(axis=1)
            if part == "test":
                results[f"rank_{key}"] = _ranks(results[f"mean_{key}"])
    return results


def _ranks(means: np.ndarray) -> np.ndarray:
    """(n_settings,) 1 for the best mean score; those without one come last."""
    worst = np.nanmin(means) - 1 if np.isfinite(means).any() else 0.0
    return rankdata(-np.where(np.isnan(means), worst, means), method="min").astype(np.int32)


def check_failures(out: list[list[dict]], error_score: Any) -> None:
    """Raise ValueError where no fit was possible, warn where some were not; called by `fit` itself."""
    records = [record for folds in out for record in folds]
    errors = [record["failed"] for record in records if "failed" in record]
    if len(errors) == len(records):
        raise ValueError(f"all {len(errors)} fits failed; the first one said: {errors[0]}")
    if errors:
        warnings.warn(
            f"{len(errors)} of {len(records)} fits failed, their score is set to {error_score}; "
            f"what they said: {'; '.join(dict.fromkeys(errors))}",
            FitFailedWarning,
            stacklevel=3,
        )


def number(score: Any) -> float:
    """What a scorer has returned, as a number."""
    try:
        return float(score)
    except (TypeError, ValueError):
        raise ValueError(
            f"scoring must return a number, got {score!r}; several scores come as a dict of scorers"
        ) from None
