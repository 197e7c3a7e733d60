"""Where a fit runs: everything about the place, nothing about the problem."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RayParams:
    """Where and how shards run.

    Parameters
    ----------
    num_shards : shards the rows are split into; None chooses one per free CPU (Ray) or per core (local).
    cpus_per_shard : CPUs that each shard actor reserves; fractions are allowed.
    memory_per_shard : bytes that a shard's caches may take; None takes a share of what is free.
    max_shard_failures : shard losses that a run survives.
    timeout_s : seconds after which a shard or a placement that does not answer is given up.
    checkpoint_dir, checkpoint_every_s : where and how often the state of a run is written; None writes nothing.
    """

    num_shards: int | None = None
    cpus_per_shard: float = 1
    memory_per_shard: int | None = None
    max_shard_failures: int = 3
    timeout_s: float = 600.0
    checkpoint_dir: str | None = None
    checkpoint_every_s: float = 60.0

    def __post_init__(self) -> None:
        if self.num_shards is not None and (int(self.num_shards) != self.num_shards or self.num_shards < 1):
            raise ValueError(f"num_shards must be a whole number >= 1 or None, got {self.num_shards!r}")
        for name in ("cpus_per_shard", "timeout_s", "checkpoint_every_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        if self.memory_per_shard is not None and not self.memory_per_shard > 0:
            raise ValueError(f"memory_per_shard must be a positive number of bytes or None, got {self.memory_per_shard!r}")
        if int(self.max_shard_failures) != self.max_shard_failures or self.max_shard_failures < 0:
            raise ValueError(f"max_shard_failures must be a whole number >= 0, got {self.max_shard_failures!r}")
