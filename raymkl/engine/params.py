"""Where a fit runs: everything about the place, nothing about the problem."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real


@dataclass(frozen=True)
class RayParams:
    """Where and how shards run.

    Parameters
    ----------
    num_shards : shards the rows are split into; None chooses one per free CPU (Ray) or per core (local).
    cpus_per_shard : CPUs that each shard actor reserves; fractions are allowed.
    memory_per_shard : bytes that a shard's caches may take; None takes a share of what is free.
    max_shard_failures : shard losses that a run may survive. Recovery is not built yet: a lost shard ends the fit with an error.
    timeout_s : seconds after which a shard or a placement that does not answer is given up.
    checkpoint_dir, checkpoint_every_s : where and how often the state of a run is written. Not built yet: only None is accepted.
    """

    num_shards: int | None = None
    cpus_per_shard: float = 1
    memory_per_shard: int | None = None
    max_shard_failures: int = 3
    timeout_s: float = 600.0
    checkpoint_dir: str | None = None
    checkpoint_every_s: float = 60.0

    def __post_init__(self) -> None:
        for name, least in (("num_shards", 1), ("max_shard_failures", 0)):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and value >= least) and not (name == "num_shards" and value is None):
                raise ValueError(f"{name} must be a whole number >= {least}{' or None' if name == 'num_shards' else ''}, got {value!r}")
        for name in ("cpus_per_shard", "timeout_s", "checkpoint_every_s", "memory_per_shard"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and value > 0) and not (name == "memory_per_shard" and value is None):
                raise ValueError(f"{name} must be a positive number{' or None' if name == 'memory_per_shard' else ''}, got {value!r}")
        if self.checkpoint_dir is not None:
            raise ValueError(f"checkpoint_dir must be None: this version writes no checkpoints yet; got {self.checkpoint_dir!r}")
