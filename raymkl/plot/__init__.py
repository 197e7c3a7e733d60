"""Pictures of fitted models in the manner of scikit-learn:
`SomethingDisplay.from_estimator(model).plot(ax=ax)`.

matplotlib is loaded when a picture is drawn. Colours are safe for colour-blind readers: the palette of Okabe
and Ito for lines and bars, cividis for heat maps. The report of a model is drawn by the same displays.
"""

from .base import head_names, kernel_names, weight_rows
from .clusters import ClustersDisplay, ScalesDisplay
from .drawing import shorten
from .matrices import AlignmentDisplay, SpectraDisplay
from .weights import ConvergenceDisplay, KernelWeightsDisplay

__all__ = [
    "AlignmentDisplay",
    "ClustersDisplay",
    "ConvergenceDisplay",
    "KernelWeightsDisplay",
    "ScalesDisplay",
    "SpectraDisplay",
    "head_names",
    "kernel_names",
    "shorten",
    "weight_rows",
]
