"""The engine: shards that hold rows and gradients, a coordinator that runs rounds, and pools that connect the two.

Only plain descriptions are imported here: a shard actor starts quicker without the optimiser. `train` is the way in.
"""

from .messages import Head, Problem
from .params import RayParams

__all__ = ["Head", "Problem", "RayParams"]
