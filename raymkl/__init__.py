"""raymkl: multiple kernel learning, exact and certified, from a laptop to a Ray cluster.

Names are loaded when they are used, so that importing the package is quick.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ConvexLocalizedMKLClassifier": "raymkl.models.localized_convex",
    "ConvexLocalizedMKLRegressor": "raymkl.models.localized_convex",
    "LocalizedMKLClassifier": "raymkl.models.localized_gated",
    "MKLRegressor": "raymkl.models.regressor",
    "MKLClassifier": "raymkl.models.classifier",
    "RayParams": "raymkl.engine.params",
    "load": "raymkl.io",
    "metrics": None,
    "report": "raymkl.reporting.page",
    "diagnostics": None,
    "kernels": None,
    "norms": "raymkl.optim.norms",
    "plot": None,
    "search": None,
}

__all__ = [
    "ConvexLocalizedMKLClassifier",
    "ConvexLocalizedMKLRegressor",
    "LocalizedMKLClassifier",
    "MKLClassifier",
    "MKLRegressor",
    "RayParams",
    "diagnostics",
    "kernels",
    "load",
    "metrics",
    "norms",
    "plot",
    "report",
    "search",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'raymkl' has no attribute {name!r}")
    if _HOMES[name] is None:
        value = import_module(f"raymkl.{name}")
    elif name == "norms":
        value = import_module("raymkl.optim.norms")
    else:
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
