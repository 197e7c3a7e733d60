"""How loops are compiled: one decorator for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable:
    """Compile a loop when it first meets arrays of some types, without the interpreter lock, and keep the
    result in a file.
    """
    options = {"nogil": True, "error_model": "numpy", **options}

    def decorate(loop: Callable) -> Callable:
        try:
            return njit(cache=True, **options)(loop)
        except RuntimeError:  # nowhere to write to
            return njit(**options)(loop)

    return decorate
