"""Which rows have which views, from what a user says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .columns import holds_nothing


def presence_of(present: Any, views: Mapping[str, Any], n: int) -> np.ndarray:
    """(n, V) bool, read-only.

    present : None (everything is there), "infer", a mask (n, V), or masks (n,) of some views by name.
    """
    names = list(views)
    if present is None:
        mask = np.ones((n, len(names)), bool)
    elif isinstance(present, str):
        if present != "infer":
            raise ValueError(
                f'present must be None, "infer", a mask (n, V) or a dict of masks (n,); got {present!r}'
            )
        mask = np.column_stack([~holds_nothing(views[name]) for name in names])
    elif isinstance(present, Mapping):
        unknown = [name for name in present if name not in views]
        if unknown:
            raise ValueError(
                f"present names the view {unknown[0]!r}, which is not there; the views are {names}"
            )
        mask = np.ones((n, len(names)), bool)
        for name, rows in present.items():
            mask[:, names.index(name)] = _bools(rows, (n,), f"present[{name!r}]")
    else:
        mask = _bools(present, (n, len(names)), "present").copy()
    mask.flags.writeable = False
    return mask


def _bools(given: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
    mask = np.asarray(given)
    if mask.shape != shape:
        each = "row and view" if len(shape) == 2 else "row"
        raise ValueError(f"{what} must have the shape {shape}, one entry for each {each}; got {mask.shape}")
    if mask.dtype != bool and not (mask.dtype.kind in "iuO" and np.isin(mask, [0, 1]).all()):
        raise ValueError(f"{what} must hold True (the row has the view) and False, got dtype {mask.dtype}")
    return mask.astype(bool)
