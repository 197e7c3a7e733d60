"""How many threads BLAS may start.

Looking for the BLAS libraries of a process takes milliseconds, so it is done once.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=4)
def _controller(loaded: tuple[bool, ...]) -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> Any:
    """Let BLAS work with one thread, until `restore_original_limits` of what is returned is called."""
    # SciPy brings a BLAS of its own.
    return _controller(tuple(name in sys.modules for name in ("numpy", "scipy.linalg", "torch"))).limit(
        limits=1
    )
