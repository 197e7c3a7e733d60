"""Cases: learning problems over one set of kernel blocks, in batches that keep memory small whatever their
number.

A case is a mask (the training rows of a fold, a half of the data), targets (the labels, or a permutation of
them), a setting, a path over C and the kernels that it learns over. Every case becomes a head, or one per
class; a batch of them is one run of the engine. Which cases share a batch changes nothing about their
results.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from ..data.progress import progress_of
from ..data.rows import row_count
from ..data.views import n_rows
from ..engine.plan import HEAD_BLOCK_BYTES
from ..engine.problem import put_beside
from ..engine.run import choose_engine, train
from ..engine.session import Session, SessionRows
from ..models.base import BaseMKL
from ..models.checks import check_lengths
from . import checkpoints
from .settings import key_of

# Heads of one batch: their state takes about this much memory, and there are at most so many.
BATCH_BYTES = 64 * 2**20
MOST_IN_BATCH = 256
# Numbers per row that the coordinator and the shards keep of a head besides its gradients.
NUMBERS_PER_ROW = 16
# Rows of a working set at most (see `engine.plan`), whose blocks limit the heads of a batch.
LARGEST_WORKING_SET = 2048


@dataclass(frozen=True, eq=False)
class Case:
    """One learning problem.

    y : (n,) targets of all rows. train, watch : numbers of the rows to learn from, and of those whose
    decision values are wanted (None: of none). setting : of the head's parameters, without C. path : values
    of C. entries : (M,) bool of the kernels to learn over, or None for all. mark : what the caller knows it
    by. calibrated : whether an estimator with `probability` is to have its probabilities, by folds within.
    """

    y: np.ndarray
    train: np.ndarray
    watch: np.ndarray | None
    path: tuple[float, ...]
    setting: dict = field(default_factory=dict)
    entries: np.ndarray | None = None
    mark: Any = None
    calibrated: bool = False


@dataclass(frozen=True, eq=False)
class Solved:
    """A case, per stage of its path the results of its heads, and what turns decision values into an
    estimator to score.
    """

    case: Case
    stages: list[list]
    held_out: Any

    def scored_as(self, stage: int = 0) -> Any:
        """The held-out rows in the clothes of a fitted estimator, for scikit-learn's scorers."""
        return self.held_out.with_values([result.f for result in self.stages[stage]])

    @property
    def gap(self) -> float:
        """The worst relative duality gap of all its heads."""
        return max(result.certificate.gap for stage in self.stages for result in stage)


class SharedRows:
    """Rows and kernels that all cases share. estimator : with the parameters that they have in common; X is
    read and checked here.
    """

    def __init__(self, estimator: BaseMKL, X: Any, sample_weight: Any = None):
        estimator._check_params()
        self.estimator = estimator
        _, self.rows, self.kernels = estimator._read(X, reset=True)
        self.n = row_count(self.rows)
        self.sample_weight = None if sample_weight is None else np.asarray(sample_weight, float)
        if self.sample_weight is not None and self.sample_weight.shape != (self.n,):
            raise ValueError(
                f"sample_weight must have one number for each of the {self.n} rows, got shape "
                f"{self.sample_weight.shape}"
            )
        self.tails: dict = {}  # tail sums of the kernels over the training rows of cases
        self.configured: dict[
            Hashable, tuple[BaseMKL, dict]
        ] = {}  # settings are kept, since some are told apart as objects

    def check_targets(self, y: Any) -> np.ndarray:
        """y as an array, one for every row."""
        if y is None and is_classifier(self.estimator):
            raise ValueError("requires y to be passed, but the target y is None")
        y = np.asarray(y)
        check_lengths(self.n, len(y))
        return y

    def with_setting(self, setting: dict) -> BaseMKL:
        """The estimator with a setting, checked."""
        key = tuple((name, key_of(value)) for name, value in sorted(setting.items()))
        if key not in self.configured:
            estimator = clone(self.estimator).set_params(**clone(setting, safe=False))
            estimator._check_params()
            estimator._norm_of(len(self.kernels))
            self.configured[key] = estimator, setting
        return self.configured[key][0]

    def heads(self, case: Case) -> tuple[list, Any]:
        """Heads of a case, and the maker of what is to be scored."""
        estimator = self.with_setting(case.setting)
        make = estimator._fold_to_score if case.calibrated else estimator._fold
        heads, held_out = make(case.y, self.sample_weight, case.train)
        for head in heads:
            head.path, head.entries = case.path, case.entries
            if head.watch is None and case.watch is not None:  # else it belongs to a fold within this case
                head.watch = np.asarray(case.watch, np.int64)
        estimator._set_constants(self.rows, self.kernels, heads, self.tails)
        return heads, held_out

    def problem(self, heads: list) -> tuple[Any, dict]:
        """The engine's problem, and its rows."""
        problem, working, _ = self.estimator._describe(self.rows, self.kernels, heads, constants=False)
        for head in heads:
            if head.entries is not None and len(head.entries) != problem.n_entries:
                head.entries = self._over_entries(head.entries, problem.n_entries)
        return problem, working

    def _over_entries(self, members: np.ndarray, n_entries: int) -> np.ndarray:
        """A part (M,) of the bank over the entries (E,) of a model with several per kernel, or with kernels
        of its own.

        Those of missing="pattern" come once per cluster; the kernel of absence (missing="neutral") stays.
        """
        if getattr(self.estimator, "missing", None) == "pattern":
            return np.tile(members, n_entries // len(members))
        return np.concatenate([members, np.ones(n_entries - len(members), bool)])

    @property
    def most_heads(self) -> int:
        """Heads of one batch at most; by sizes alone, so that no result depends on how many cases there
        are.
        """
        state = 8 * self.n * (NUMBERS_PER_ROW + 2 * min(len(self.kernels), 24))
        blocks = 8 * min(self.n, LARGEST_WORKING_SET) ** 2
        return int(max(2, min(MOST_IN_BATCH, BATCH_BYTES // state, HEAD_BLOCK_BYTES // blocks)))


def solved(shared: SharedRows, cases: Iterable[Case], count: int, each: int, name: str) -> Iterator[Solved]:
    """Every case with what its heads have learned, in their order; what a batch has learned is forgotten with
    it.

    cases : may be made while they are asked for. count : of them. each : heads of a case at most. name : of
    this run among the checkpoints; a batch that is over keeps its own, until `checkpoints.remove` is told of
    `parts_of` the run.
    """
    cases, estimator = iter(cases), shared.estimator
    short: list[float] = []
    for number, size in enumerate(batch_sizes(shared, count, each)):
        batch, heads, parties = list(islice(cases, size)), [], []
        for case in batch:
            more, held_out = shared.heads(case)
            parties.append((put_beside(heads, more), held_out))
        problem, rows = shared.problem(heads)
        params = checkpoints.part_of(estimator.ray_params, f"{name}-{number}")
        trained = train(rows, problem, heads, estimator.engine, params, progress_of(estimator.verbose), True)
        for case, (part, held_out) in zip(batch, parties, strict=True):
            stages = [list(results) for results in zip(*trained.results[part], strict=True)]
            short += [result.certificate.gap for stage in stages for result in stage if not result.converged]
            yield Solved(case, stages, held_out)
        del heads, problem, rows, trained, parties, batch
    if short:
        warnings.warn(
            f"{len(short)} problems stopped above tol, the worst at a relative gap of {max(short):.3g}; "
            "raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=3,
        )


def batch_sizes(shared: SharedRows, count: int, each: int) -> list[int]:
    """Cases of every batch: as equal as can be, since a head that is alone has other threads than several
    have.
    """
    if count == 0:
        return []
    batches = -(-count // max(shared.most_heads // each, 1))
    return [len(part) for part in np.array_split(np.arange(count), batches)]


def parts_of(name: str, shared: SharedRows, count: int, each: int) -> list[str]:
    """Names of all batches of a run among the checkpoints."""
    return [f"{name}-{number}" for number in range(len(batch_sizes(shared, count, each)))]


@contextmanager
def standing(estimator: BaseMKL, X: Any) -> Iterator[tuple[BaseMKL, Any]]:
    """Estimator and rows for several runs one after the other, over shards that stand meanwhile with what
    they have computed.
    """
    if isinstance(estimator.engine, Session) or isinstance(X, SessionRows):
        yield estimator, X
        return
    with Session(choose_engine(estimator.engine, n_rows(X)), estimator.ray_params) as session:
        yield clone(estimator).set_params(engine=session), session.put(X)
