"""Kernels: formulas, views, composition, normalisation, and the families that make many of them cost as much as one.

Names are loaded when they are used: a shard that computes kernels needs no code that writes stores.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "RBF": "formulas",
    "Chi2": "formulas",
    "Custom": "formulas",
    "HistogramIntersection": "formulas",
    "Kernel": "base",
    "KernelStore": "store",
    "Laplacian": "formulas",
    "Linear": "formulas",
    "Polynomial": "formulas",
    "Precomputed": "formulas",
    "Product": "base",
    "Scaled": "base",
    "Spectrum": "strings",
    "Sum": "base",
    "WeightedDegree": "strings",
    "rbf": "formulas",
    "stored": "formulas",
    "write_store": "store_writer",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'raymkl.kernels' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
