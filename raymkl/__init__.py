"""raymkl: multiple kernel learning, exact and certified, from a laptop to a Ray cluster.

Names are loaded when they are used, so that importing the package is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see; `_HOMES` below is what happens
    from . import baselines as baselines
    from . import diagnostics as diagnostics
    from . import evaluate as evaluate
    from . import kernels as kernels
    from . import metrics as metrics
    from . import norms as norms
    from . import plot as plot
    from . import search as search
    from . import serve as serve
    from .data.multiview.container import Views as Views
    from .engine.params import RayParams as RayParams
    from .engine.session import Session as Session
    from .inspection.report.page import report as report
    from .io import load as load
    from .models.classifier import MKLClassifier as MKLClassifier
    from .models.localized.convex import ConvexLocalizedMKLClassifier as ConvexLocalizedMKLClassifier
    from .models.localized.convex import ConvexLocalizedMKLRegressor as ConvexLocalizedMKLRegressor
    from .models.localized.gated import LocalizedMKLClassifier as LocalizedMKLClassifier
    from .models.mixtures.clustered import ClusteredMKLClassifier as ClusteredMKLClassifier
    from .models.mixtures.mixture import DirichletProcessMixture as DirichletProcessMixture
    from .models.one_class import MKLOneClass as MKLOneClass
    from .models.regressor import MKLRegressor as MKLRegressor
    from .models.runs.ray_report import RayReport as RayReport
    from .models.stochastic import StochasticMKLClassifier as StochasticMKLClassifier
    from .models.views.per_view import PerView as PerView

__version__ = "0.2.0"

_HOMES = {
    "ClusteredMKLClassifier": "raymkl.models.mixtures.clustered",
    "ConvexLocalizedMKLClassifier": "raymkl.models.localized.convex",
    "ConvexLocalizedMKLRegressor": "raymkl.models.localized.convex",
    "DirichletProcessMixture": "raymkl.models.mixtures.mixture",
    "LocalizedMKLClassifier": "raymkl.models.localized.gated",
    "MKLOneClass": "raymkl.models.one_class",
    "MKLRegressor": "raymkl.models.regressor",
    "MKLClassifier": "raymkl.models.classifier",
    "PerView": "raymkl.models.views.per_view",
    "RayParams": "raymkl.engine.params",
    "RayReport": "raymkl.models.runs.ray_report",
    "Session": "raymkl.engine.session",
    "StochasticMKLClassifier": "raymkl.models.stochastic",
    "Views": "raymkl.data.multiview.container",
    "load": "raymkl.io",
    "metrics": None,
    "report": "raymkl.inspection.report.page",
    "baselines": None,
    "diagnostics": None,
    "evaluate": None,
    "kernels": None,
    "norms": None,
    "plot": None,
    "search": None,
    "serve": None,
}

__all__ = [
    "ClusteredMKLClassifier",
    "ConvexLocalizedMKLClassifier",
    "ConvexLocalizedMKLRegressor",
    "DirichletProcessMixture",
    "LocalizedMKLClassifier",
    "MKLClassifier",
    "MKLOneClass",
    "MKLRegressor",
    "PerView",
    "RayParams",
    "RayReport",
    "Session",
    "StochasticMKLClassifier",
    "Views",
    "baselines",
    "diagnostics",
    "evaluate",
    "kernels",
    "load",
    "metrics",
    "norms",
    "plot",
    "report",
    "search",
    "serve",
]


if not TYPE_CHECKING:  # a checker that sees it would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'raymkl' has no attribute {name!r}")
        home = _HOMES[name]
        value = import_module(f"raymkl.{name}") if home is None else getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
