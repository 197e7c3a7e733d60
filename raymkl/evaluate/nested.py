"""Scores of models on the splits of a cross-validation, with settings that inner folds choose.

    for every outer split:  for every setting, inner folds of its training rows score it;
                            the best one learns from all its training rows and is scored on the rows held out

which is cross_val_score(GridSearchCV(...)). Inner and outer folds, settings and models made from one
estimator are heads over one set of kernel blocks: a fold is a mask, a setting another norm or path over C, a
model over fewer kernels a head that leaves some out. Other estimators are fitted fold by fold.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..data.views import subset
from ..search import MKLSearchCV, checkpoints
from ..search.cases import Case, SharedRows, Solved, parts_of, solved, standing
from ..search.folds import FoldByFold, are_masks, splits_of
from ..search.results import number
from ..search.settings import blocks_key, of_heads, paths_of, template_of
from .checks import final_step
from .contenders import Candidate, Contender

Splits = list[tuple[np.ndarray, np.ndarray]]


@dataclass
class Plan:
    """Rows, targets and folds of a comparison. inner : of every outer split, numbers of rows of X. scorers :
    by name.
    """

    X: Any
    y: np.ndarray
    outer: Splits
    inner: list[Splits]
    scorers: Mapping[str, Any]
    gap: float = float("nan")
    last: tuple = field(default=(None, None))

    def saw(self, gap: float) -> None:
        """Remember the worst relative duality gap."""
        self.gap = float(np.fmax(self.gap, gap))

    def score(self, model: Any, rows: np.ndarray) -> dict[str, float]:
        """Scores of a model on some rows, by name."""
        if self.last[0] is not rows:  # many models are scored on the same rows, one after the other
            self.last = (rows, (subset(self.X, rows), self.y[rows]))
        X, y = self.last[1]
        return {name: number(scorer(model, X, y)) for name, scorer in self.scorers.items()}


def inner_splits(
    cv: Any, X: Any, y: np.ndarray, groups: np.ndarray | None, outer: Splits, classifier: bool
) -> list[Splits]:
    """Folds of the training rows of every outer split, as numbers of rows of X."""
    found = []
    for train, _ in outer:
        own = splits_of(cv, subset(X, train), y[train], None if groups is None else groups[train], classifier)
        found.append([(train[a], train[b]) for a, b in own])
    return found


def records_of(plan: Plan, contenders: list[Contender]) -> list[dict]:
    """One record per model, metric and outer split: score and the setting that was chosen."""
    masks = are_masks(plan.outer) and all(map(are_masks, plan.inner))
    together = [contender for contender in contenders if contender.by_heads and masks]
    found: dict[str, list[dict]] = {}
    if together:
        found.update(_Together(plan, together).records())
    for contender in contenders:
        if contender.name not in found:
            found[contender.name] = list(_one_by_one(plan, contender))
    return [record for contender in contenders for record in found[contender.name]]


def _record(
    plan: Plan, contender: Contender, split: int, metric: str, score: float, candidate: Candidate
) -> dict:
    train, test = plan.outer[split]
    return {
        "model": contender.name,
        "metric": metric,
        "split": split,
        "score": score,
        "params": dict(candidate.shown),
        "n_train": len(train),
        "n_test": len(test),
    }


def best_of(scores: np.ndarray) -> int:
    """The first of the settings with the largest mean score. scores : (settings, folds)."""
    means = scores.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))


@dataclass
class _Blocks:
    """Candidates that share one set of kernel blocks, as (contender, candidate) numbers."""

    template: Any
    members: list[tuple[int, int]]
    shared: SharedRows | None = None


class _Together:
    """Contenders whose folds are heads. chosen : by contender, outer split and metric, the candidate."""

    def __init__(self, plan: Plan, contenders: list[Contender]):
        self.plan, self.contenders = plan, contenders
        found: dict[Hashable, _Blocks] = {}
        for c, contender in enumerate(contenders):
            for k, candidate in enumerate(contender.candidates):
                key = id(contender.estimator), blocks_key(contender.estimator, candidate.setting)
                if key not in found:
                    found[key] = _Blocks(template_of(contender.estimator, candidate.setting), [])
                found[key].members.append((c, k))
        self.blocks = list(found.values())
        n_classes = len(np.unique(plan.y)) if is_classifier(contenders[0].estimator) else 1
        self.each = n_classes if n_classes > 2 else 1
        self.parts: list[str] = []  # names of runs among the checkpoints

    def records(self) -> dict[str, list[dict]]:
        """Records by name of the contender."""
        with ExitStack() as stack:
            for blocks in self.blocks:
                blocks.shared = SharedRows(*stack.enter_context(standing(blocks.template, self.plan.X)))
                blocks.shared.check_targets(self.plan.y)
                for c, k in blocks.members:  # all settings are checked before the first run
                    blocks.shared.with_setting(self._setting(blocks, c, k))
            chosen = self._choose()
            found = self._outer(chosen)
        for estimator in {
            id(contender.estimator): contender.estimator for contender in self.contenders
        }.values():
            checkpoints.remove(estimator, self.parts)
        return found

    def _setting(self, blocks: _Blocks, c: int, k: int) -> dict:
        """What heads of a candidate differ in from others over the same blocks, but for C."""
        setting = of_heads(blocks.template, self.contenders[c].candidates[k].setting)
        return {name: value for name, value in setting.items() if name != "C"}

    def _solved(self, blocks: _Blocks, cases: list[Case], name: str) -> Iterator[Solved]:
        name = f"{name}-{self.blocks.index(blocks)}"
        self.parts += parts_of(name, blocks.shared, len(cases), self.each)
        for one in solved(blocks.shared, cases, len(cases), self.each, name):
            self.plan.saw(one.gap)
            yield one

    def _paths(self, blocks: _Blocks) -> list[tuple[int, list[int]]]:
        """Candidates of contenders that have a choice, grouped so that only C differs, in ascending order of
        C.
        """
        found = []
        template = blocks.template
        for c in dict.fromkeys(c for c, _ in blocks.members):
            candidates = self.contenders[c].candidates
            if len(candidates) == 1:
                continue
            settings, parts = [candidate.setting for candidate in candidates], {}
            for k in (k for other, k in blocks.members if other == c):
                entries = candidates[k].entries
                parts.setdefault(None if entries is None else entries.tobytes(), []).append(k)
            for members in parts.values():
                found += [
                    (c, path)
                    for path in paths_of(settings, members, template.C, getattr(template, "beta", 0.0))
                ]
        return found

    def _case(
        self, blocks: _Blocks, c: int, path: list[int], train: np.ndarray, test: np.ndarray, mark: Any
    ) -> Case:
        candidates = self.contenders[c].candidates
        bounds = tuple(float(candidates[k].setting.get("C", blocks.template.C)) for k in path)
        return Case(
            self.plan.y,
            train,
            test,
            bounds,
            self._setting(blocks, c, path[0]),
            candidates[path[0]].entries,
            mark,
        )

    def _choose(self) -> dict[tuple[int, int, str], int]:
        """The candidate of every contender, outer split and metric."""
        plan, scores = self.plan, {}
        for c, contender in enumerate(self.contenders):
            for split, folds in enumerate(plan.inner):
                for metric in plan.scorers:
                    scores[c, split, metric] = np.full((len(contender.candidates), len(folds)), np.nan)
        for blocks in self.blocks:
            paths = self._paths(blocks)
            cases = [
                self._case(blocks, c, path, train, test, (c, path, split, fold))
                for split, folds in enumerate(plan.inner)
                for fold, (train, test) in enumerate(folds)
                for c, path in paths
            ]
            for one in self._solved(blocks, cases, "compare-inner"):
                c, path, split, fold = one.case.mark
                for stage, k in enumerate(path):
                    for metric, score in plan.score(one.scored_as(stage), one.case.watch).items():
                        scores[c, split, metric][k, fold] = score
        splits = range(len(plan.outer))
        return {
            (c, split, metric): best_of(scores[c, split, metric]) if len(contender.candidates) > 1 else 0
            for c, contender in enumerate(self.contenders)
            for split in splits
            for metric in plan.scorers
        }

    def _outer(self, chosen: dict[tuple[int, int, str], int]) -> dict[str, list[dict]]:
        plan, found = self.plan, {}
        wanted: dict[
            tuple[int, int, int], list[str]
        ] = {}  # contender, candidate and split, and the metrics that ask for it
        for (c, split, metric), k in chosen.items():
            wanted.setdefault((c, k, split), []).append(metric)
        for blocks in self.blocks:
            members = set(blocks.members)
            mine = sorted(
                ((c, k, split) for c, k, split in wanted if (c, k) in members), key=lambda one: one[2]
            )
            cases = [self._case(blocks, c, [k], *plan.outer[split], (c, k, split)) for c, k, split in mine]
            for one in self._solved(blocks, cases, "compare-outer"):
                c, k, split = one.case.mark
                scores, contender = plan.score(one.scored_as(), one.case.watch), self.contenders[c]
                for metric in wanted[c, k, split]:
                    found[c, metric, split] = _record(
                        plan, contender, split, metric, scores[metric], contender.candidates[k]
                    )
        return {
            contender.name: [
                found[c, metric, split] for metric in plan.scorers for split in range(len(plan.outer))
            ]
            for c, contender in enumerate(self.contenders)
        }


def _one_by_one(plan: Plan, contender: Contender) -> list[dict]:
    """Estimators whose folds are no heads: fitted and scored fold by fold."""
    folds, found = FoldByFold(contender.estimator, plan.X, plan.y, plan.outer), {}
    for split in range(len(plan.outer)):
        chosen = _chosen_one_by_one(plan, contender, folds, split)
        for k in dict.fromkeys(chosen.values()):
            model = folds.fit(contender.fitted_with(contender.candidates[k]), split)
            plan.saw(float(np.max(getattr(final_step(model), "duality_gap_", np.nan))))
            for metric, scorer in plan.scorers.items():
                if chosen[metric] == k:
                    score = number(folds.score(scorer, model, split))
                    found[metric, split] = _record(
                        plan, contender, split, metric, score, contender.candidates[k]
                    )
    return [found[metric, split] for metric in plan.scorers for split in range(len(plan.outer))]


def _chosen_one_by_one(plan: Plan, contender: Contender, folds: FoldByFold, split: int) -> dict[str, int]:
    """The candidate by metric that the inner folds of a split choose."""
    if len(contender.candidates) == 1:
        return dict.fromkeys(plan.scorers, 0)
    train = plan.outer[split][0]
    place = np.full(len(plan.y), -1)
    place[train] = np.arange(len(train))
    inner = [(place[a], place[b]) for a, b in plan.inner[split]]
    grid = [
        {name: [value] for name, value in candidate.setting.items()} for candidate in contender.candidates
    ]
    search = MKLSearchCV(
        contender.estimator, grid, cv=inner, scoring=dict(plan.scorers), refit=False, error_score="raise"
    )
    results = search.fit(*folds.rows(split, "train")).cv_results_
    return {metric: int(results[f"rank_test_{metric}"].argmin()) for metric in plan.scorers}
