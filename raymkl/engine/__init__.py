"""The engine: shards that hold rows and gradients, a coordinator that runs rounds, and pools that connect the two."""

from .messages import Head, Problem
from .params import RayParams
from .train import ENGINES, train

__all__ = ["ENGINES", "Head", "Problem", "RayParams", "train"]
