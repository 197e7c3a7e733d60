"""Where a fit runs: everything about the place, nothing about the problem."""

from __future__ import annotations

import os
from dataclasses import dataclass
from numbers import Integral, Real

PLACEMENTS = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")


@dataclass(frozen=True)
class RayParams:
    """Where and how shards run.

    Parameters
    ----------
    num_shards : shards the rows are split into; None chooses one per free CPU (Ray) or per core (local).
    cpus_per_shard : CPUs that each shard actor reserves; fractions are allowed.
    memory_per_shard : bytes that a shard's caches may take; None takes a share of what is free.
    max_shard_failures : losses of shards (or of the coordinator) that a run may survive. A lost shard is replaced and brought up to date.
    timeout_s : seconds after which a shard that answers no ping, or a placement, is given up.
    checkpoint_dir : directory (a path, or a URI that `pyarrow.fs` opens) for the state of the run, or None. The next fit with the
        same directory, data and parameters goes on from there. Kept for the local engine too; a finished run removes its files.
    checkpoint_every_s : seconds between two checkpoints.
    placement : "SPREAD" puts shards on different nodes where it can, "PACK" on as few as possible.
    """

    num_shards: int | None = None
    cpus_per_shard: float = 1
    memory_per_shard: int | None = None
    max_shard_failures: int = 3
    timeout_s: float = 600.0
    checkpoint_dir: str | None = None
    checkpoint_every_s: float = 60.0
    placement: str = "SPREAD"

    def __post_init__(self) -> None:
        for name, least in (("num_shards", 1), ("max_shard_failures", 0)):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) >= least) and not (name == "num_shards" and value is None):
                raise ValueError(f"{name} must be a whole number >= {least}{' or None' if name == 'num_shards' else ''}, got {value!r}")
        for name in ("cpus_per_shard", "timeout_s", "checkpoint_every_s", "memory_per_shard"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and float(value) > 0) and not (name == "memory_per_shard" and value is None):
                raise ValueError(f"{name} must be a positive number{' or None' if name == 'memory_per_shard' else ''}, got {value!r}")
        if self.checkpoint_dir is not None and not isinstance(self.checkpoint_dir, str | os.PathLike):
            raise ValueError(f"checkpoint_dir must be a path, a URI or None, got {self.checkpoint_dir!r}")
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {', '.join(map(repr, PLACEMENTS))}, got {self.placement!r}")
