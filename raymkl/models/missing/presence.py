"""Which views the rows of a model have: s_m(x) = 1 if x has every view that kernel m reads, else 0.

A row that lacks a view is read as a copy of one that has it (see `data.multiview`), so that nothing is read
of what stands there; gates then take the copy out of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...data.store import is_store
from ...data.views import is_dict, is_views, view_name, view_of
from ...kernels.base import Kernel
from ...kernels.given import Absence

# What an estimator may do about rows that lack a view.
CHOICES = ("error", "zero", "neutral", "scaled", "pattern")
# The name of the one view of a container whose views have no names.
UNNAMED = "X"


@dataclass(frozen=True, eq=False)
class Presence:
    """What n rows have of the V views that a bank reads.

    names : (V,), in the order of the container. there : (n, V) bool.
    """

    names: list[str]
    there: np.ndarray

    @classmethod
    def of(cls, X: Any, kernels: Sequence[Kernel], n: int, names: list[str] | None = None) -> Presence:
        """names : those of a fitted model; None for those that the kernels read.

        Rows of anything but a `Views` have all of them.
        """
        if names is None:
            names = _names_of(X)
            read = {name for kernel in kernels for name in names_read(kernel, names)}
            names = [name for name in names if name in read]
        if not is_views(X):
            return cls(names, np.ones((n, len(names)), bool))
        if (
            names == [UNNAMED] and UNNAMED not in X
        ):  # fitted to one array: a row is there if all is there that the kernels read
            read = dict.fromkeys(name for kernel in kernels for name in names_read(kernel, X.names))
            return cls(names, np.stack([X.has(name) for name in read], axis=1).all(axis=1, keepdims=True))
        return cls(names, np.stack([X.has(name) for name in names], axis=1))

    @property
    def complete(self) -> bool:
        """Whether every row has every view."""
        return bool(self.there.all())

    def has(self, views: Sequence[str]) -> np.ndarray:
        """(n,) s_m(x) of a kernel that reads these views; all rows have one that reads none."""
        return self.there[:, [self.names.index(name) for name in views]].all(axis=1)

    @property
    def stretch(self) -> np.ndarray:
        """(n,) sqrt(V / V_x), V_x of V views being there."""
        return np.sqrt(len(self.names) / np.maximum(self.there.sum(axis=1), 1))

    @property
    def patterns(self) -> np.ndarray:
        """(R, V) the different rows of `there`, the most frequent first."""
        found, counts = np.unique(self.there, axis=0, return_counts=True)
        return found[np.lexsort((-np.arange(len(found)), -counts))]

    def clusters(self, patterns: np.ndarray) -> np.ndarray:
        """(n, 1 + R) one for every row, then one for the rows of each pattern."""
        return np.stack(
            [np.ones(len(self.there)), *((self.there == row).all(axis=1).astype(float) for row in patterns)],
            axis=1,
        )

    def check(self, used: np.ndarray) -> None:
        """Raise ValueError for a row that counts, used (n,), without any view, and for a view that none of
        them has.
        """
        empty = np.flatnonzero(used & ~self.there.any(axis=1))
        if len(empty):
            more = f" (nor have {len(empty) - 1} others)" if len(empty) > 1 else ""
            raise ValueError(
                f"row {empty[0]} of X has none of the views that the kernels read, {self.names}{more}; there "
                "is nothing to learn from it: "
                "leave such rows out of the training (predicting takes them)"
            )
        nobody = [
            name
            for name, rows in zip(self.names, (self.there & used[:, None]).any(axis=0), strict=True)
            if not rows
        ]
        if nobody:
            raise ValueError(
                f"view {nobody[0]!r} is absent in all training rows, so that nothing can be learned about "
                "it; leave out its kernels"
            )


class RowsOfViews(dict):
    """Rows by view key, as everywhere in the engine, that know which views they have."""

    def __init__(self, rows: Mapping, presence: Presence):
        super().__init__(rows)
        self.presence = presence


def presence_of(rows: Mapping) -> Presence | None:
    """Which views rows by view key have; None where nothing was said about it."""
    return getattr(rows, "presence", None)


def names_read(kernel: Kernel, names: Sequence[str]) -> list[str]:
    """Names of the views that a kernel reads, of those that a container has; the indicators of absence are no
    view of it.
    """
    if isinstance(kernel, Absence):
        return []
    if list(names) == [UNNAMED]:
        return [UNNAMED]
    # A kernel store that is read beside the container is no view of it.
    keys = [key for key in kernel.views if key in names or not is_store(key)]
    return list(dict.fromkeys(view_name(dict.fromkeys(names), view_of(key)) for key in keys))


def _names_of(X: Any) -> list[str]:
    return list(X.names) if is_views(X) else list(X) if is_dict(X) else [UNNAMED]


def check_choice(missing: Any) -> None:
    """Raise ValueError for what is no way to treat absent rows."""
    if not (isinstance(missing, str) and missing in CHOICES):
        raise ValueError(f"missing must be one of {', '.join(map(repr, CHOICES))}; got {missing!r}")


def refuse(X: Any, kernels: Sequence[Kernel], who: str | None) -> None:
    """Raise ValueError for rows that lack a view that a kernel reads.

    who : the kind of model, where it has no parameter `missing`.
    """
    if not is_views(X) or X.is_complete:
        return
    read = {name for kernel in kernels for name in names_read(kernel, X.names)}
    absent = {name: int((~X.has(name)).sum()) for name in X.names if name in read}
    absent = {name: count for name, count in absent.items() if count}
    if not absent:
        return
    told = ", ".join(f"{name!r} in {count}" for name, count in absent.items())
    hint = (
        f"{who} takes rows that have all views"
        if who
        else (
            'missing="error" takes rows that have all views; missing may also be '
            f"{', '.join(map(repr, CHOICES[1:-1]))} or {CHOICES[-1]!r}"
        )
    )
    raise ValueError(
        f"X has {len(X)} rows, some of which lack views that the kernels read: {told} are absent; {hint}"
    )
