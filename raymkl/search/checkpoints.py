"""Checkpoints of searches: every run of a search has a sub-directory of `RayParams.checkpoint_dir`.

    <dir>/search-0, search-1, ...   settings that share kernel blocks, one run each; kept until the whole
                                    search is over
    <dir>/refit                     the best setting on all rows

So a search that was killed goes on where it was, and runs that were over are not done again. A search with a
name (`RayParams.name`) has these among the checkpoints of that name, and leaves its best model there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..engine.faults.checkpoint import clear
from ..engine.params import RayParams

# The last part of a search.
REFIT = "refit"


def part_of(params: RayParams | None, name: str | None) -> RayParams | None:
    """The same parameters with a sub-directory for checkpoints, or none; unchanged where no checkpoints are
    written.
    """
    if params is None or params.checkpoint_place is None:
        return params
    if name == REFIT and params.checkpoint_dir is None:
        return params  # what a search leaves under its name is its best model
    place = None if name is None else f"{params.checkpoint_place.rstrip('/')}/{name}"
    named = {} if name == REFIT else {"name": None, "storage_path": None}
    return replace(params, checkpoint_dir=place, **named)


def directories(model: Any) -> list[str]:
    """Checkpoint directories of an estimator and of those inside it (a pipeline's steps, say)."""
    found = [value.checkpoint_place for value in model.get_params().values() if isinstance(value, RayParams)]
    return [directory for directory in found if directory is not None]


@contextmanager
def redirected(model: Any, name: str | None) -> Iterator[None]:
    """Checkpoints of an estimator, and of those inside it, go to a sub-directory, or nowhere; afterwards its
    parameters are as before.
    """
    before = (
        {key: value for key, value in model.get_params().items() if isinstance(value, RayParams)}
        if hasattr(model, "get_params")
        else {}
    )
    model_params = {key: part_of(value, name) for key, value in before.items()}
    if before:
        model.set_params(**model_params)
    try:
        yield
    finally:
        if before:
            model.set_params(**before)


def remove(model: Any, names: list[str]) -> None:
    """Remove the checkpoints of all parts of a search."""
    for directory in directories(model):
        for name in names:
            clear(f"{directory.rstrip('/')}/{name}")
    for value in model.get_params().values():
        if isinstance(value, RayParams) and value.name is not None and value.checkpoint_dir is None:
            clear(value.checkpoint_place)  # the folder above, which nobody has asked for by itself
