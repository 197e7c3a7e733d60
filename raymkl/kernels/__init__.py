"""Kernels: formulas, views, composition, normalisation, and (in `pairs`) the families that make many of them
cost as much as one.

Names are loaded when they are used: a shard that computes kernels needs no code that writes stores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; `_HOMES` below is what happens
    from ..data.store import KernelStore as KernelStore
    from .base import Kernel as Kernel
    from .base import Product as Product
    from .base import Scaled as Scaled
    from .base import Sum as Sum
    from .formulas import RBF as RBF
    from .formulas import Chi2 as Chi2
    from .formulas import HistogramIntersection as HistogramIntersection
    from .formulas import Laplacian as Laplacian
    from .formulas import Linear as Linear
    from .formulas import Polynomial as Polynomial
    from .formulas import rbf as rbf
    from .given import Absence as Absence
    from .given import Custom as Custom
    from .given import Precomputed as Precomputed
    from .given import stored as stored
    from .normalize import TailSum as TailSum
    from .store_writer import write_store as write_store
    from .strings import Spectrum as Spectrum
    from .strings import WeightedDegree as WeightedDegree

_HOMES = {
    "RBF": "formulas",
    "Absence": "given",
    "Chi2": "formulas",
    "Custom": "given",
    "HistogramIntersection": "formulas",
    "Kernel": "base",
    "KernelStore": ".data.store",
    "Laplacian": "formulas",
    "Linear": "formulas",
    "Polynomial": "formulas",
    "Precomputed": "given",
    "Product": "base",
    "Scaled": "base",
    "Spectrum": "strings",
    "Sum": "base",
    "TailSum": "normalize",
    "WeightedDegree": "strings",
    "rbf": "formulas",
    "stored": "given",
    "write_store": "store_writer",
}

__all__ = list(_HOMES)


if not TYPE_CHECKING:  # a checker that sees it would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'raymkl.kernels' has no attribute {name!r}")
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
