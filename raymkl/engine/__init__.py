"""The engine: shards that hold rows and gradients, a coordinator that runs rounds, and pools that connect the
two.

Only plain descriptions are imported here: a shard actor starts quicker without the optimiser. `run.train` is
the way in.
"""

from .params import RayParams
from .problem import Head, Problem

__all__ = ["Head", "Problem", "RayParams"]
