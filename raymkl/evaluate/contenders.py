"""Who is compared: estimators, and words that stand for what everybody asks an MKL model to beat.

    "average"       the plain sum of the kernels, p = 2
    "best_single"   one kernel, the one that inner folds choose
    "view:rna"      the kernels that read this view alone

Words are made from the first estimator of ours. Over its kernel blocks they are heads with another norm, or
heads that leave kernels out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from ..models.base import BaseMKL
from ..search.settings import key_of, learns_by_heads
from .checks import bank_of, check_estimator, final_step, prefix_of, scores_by_heads, views_read

WORDS = '"average", "best_single" or "view:<name of a view>"'


@dataclass(frozen=True, eq=False)
class Candidate:
    """A setting that inner folds may choose. entries : (M,) bool of the kernels that its heads learn over, or
    None for all.

    shown : what the table of scores says of it.
    """

    setting: dict = field(default_factory=dict)
    entries: np.ndarray | None = None
    shown: dict = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Contender:
    """A model to compare. by_heads : whether its folds are heads over one set of blocks; else it is fitted
    fold by fold.
    """

    name: str
    estimator: Any
    candidates: list[Candidate]
    by_heads: bool

    def fitted_with(self, candidate: Candidate) -> Any:
        """A fresh estimator with a setting."""
        return clone(self.estimator).set_params(**clone(candidate.setting, safe=False))


def contenders_of(models: Any, X: Any, param_grid: Any, scorers: Mapping[str, Any]) -> list[Contender]:
    """All models with their settings, checked."""
    if not isinstance(models, Mapping) or not models:
        raise ValueError(
            f"models must be a dict from names to estimators or words, at least one of them, got {models!r}"
        )
    for name, model in models.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"models must have names, got {name!r}")
        if not isinstance(model, str):
            check_estimator(model)
    grids = _grids(param_grid)
    _check_names(grids, models)
    base = next((model for model in models.values() if isinstance(final_step(model), BaseMKL)), None)
    found = []
    for name, model in models.items():
        if isinstance(model, str):
            if not (model in ("average", "best_single") or model.startswith("view:")):
                raise ValueError(f"models[{name!r}] is {model!r}; a model is an estimator, {WORDS}")
            if base is None:
                raise ValueError(
                    f"models[{name!r}] is {model!r}, which is made from an estimator of ours, but models has "
                    "no such estimator"
                )
        estimator = base if isinstance(model, str) else model
        by_heads = scores_by_heads(estimator, scorers)
        candidates = (
            _of_word(model, base, by_heads, X, grids)
            if isinstance(model, str)
            else _of_grids(estimator, grids)
        )
        for candidate in candidates:
            _check(estimator, candidate)
        by_heads = by_heads and all(learns_by_heads(estimator, candidate.setting) for candidate in candidates)
        found.append(Contender(name, estimator, candidates, by_heads))
    return found


def _grids(param_grid: Any) -> list[dict]:
    if param_grid is None:
        return [{}]
    grids = [param_grid] if isinstance(param_grid, Mapping) else list(param_grid)
    list(ParameterGrid(grids))  # scikit-learn's checks of what a grid is
    return [dict(grid) for grid in grids]


def _check_names(grids: list[dict], models: Mapping) -> None:
    """A name of the grid that no model knows is a mistake; one that some know is theirs."""
    known = set().union(*(model.get_params() for model in models.values() if not isinstance(model, str)))
    for name in (name for grid in grids for name in grid):
        if name not in known:
            raise ValueError(
                f"param_grid names {name!r}, which none of the models has; they have "
                f"{', '.join(sorted(known))}"
            )


def _of_grids(estimator: Any, grids: list[dict], without: tuple[str, ...] = ()) -> list[Candidate]:
    """The settings of that part of the grids that an estimator knows, each once. without : names that are not
    its own to choose.
    """
    known, seen, found = estimator.get_params(), set(), []
    for grid in grids:
        for setting in ParameterGrid(
            {name: values for name, values in grid.items() if name in known and name not in without}
        ):
            key = tuple((name, key_of(value)) for name, value in sorted(setting.items()))
            if key not in seen:
                seen.add(key)
                found.append(Candidate(setting, None, setting))
    return found


def _of_word(word: str, base: Any, by_heads: bool, X: Any, grids: list[dict]) -> list[Candidate]:
    """The settings that a word stands for, made from an estimator."""
    prefix = prefix_of(base)
    if word == "average":
        fixed = {f"{prefix}p": 2.0, f"{prefix}norm": None}
        fixed = {name: value for name, value in fixed.items() if name in base.get_params()}
        if f"{prefix}p" not in fixed:
            raise ValueError(
                f'"average" is the block norm p = 2, which {type(final_step(base)).__name__} does not have'
            )
        return [
            Candidate({**c.setting, **fixed}, None, c.shown) for c in _of_grids(base, grids, tuple(fixed))
        ]
    bank = bank_of(base, X)
    if word == "best_single":
        rest = _of_grids(base, grids, (f"{prefix}p", f"{prefix}norm", f"{prefix}kernels"))
        # In the order of scikit-learn's grids, whose first of equal settings is the one that is chosen.
        before = [c for c in rest if all(name < f"{prefix}kernels" for name in c.setting)] == rest
        pairs = (
            [(c, m) for c in rest for m in range(len(bank))]
            if before
            else [(c, m) for m in range(len(bank)) for c in rest]
        )
        return [
            _restricted(c, [m], bank, prefix, by_heads, {f"{prefix}kernels": [bank[m]]}) for c, m in pairs
        ]
    view = word.removeprefix("view:")
    members = [m for m, kernel in enumerate(bank) if views_read(kernel, X) == [view]]
    if not members:
        names = sorted({name for kernel in bank for name in views_read(kernel, X)})
        raise ValueError(
            f"{word!r} asks for kernels that read view {view!r} alone, of which there are none; the kernels "
            f"read {names}"
        )
    return [
        _restricted(c, members, bank, prefix, by_heads, {})
        for c in _of_grids(base, grids, (f"{prefix}kernels",))
    ]


def _restricted(
    candidate: Candidate, members: list[int], bank: list, prefix: str, by_heads: bool, shown: dict
) -> Candidate:
    """A candidate over some kernels alone: by heads that leave the others out, else with a smaller bank."""
    shown = {**candidate.shown, **shown}
    if by_heads:
        return Candidate(candidate.setting, np.isin(np.arange(len(bank)), members), shown)
    return Candidate({**candidate.setting, f"{prefix}kernels": [bank[m] for m in members]}, None, shown)


def _check(estimator: Any, candidate: Candidate) -> None:
    """Raise for a setting that an estimator of ours does not take."""
    configured = clone(estimator).set_params(**clone(candidate.setting, safe=False))
    last = final_step(configured)
    if isinstance(last, BaseMKL):
        last._check_params()
