"""Where a fit runs: everything about the place, nothing about the problem."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

PLACEMENTS = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
# What decides where shards live; in a session it is the session's.
PLACE = ("num_shards", "cpus_per_shard", "placement", "resources", "label_selector", "runtime_env")
# Resources that have a parameter of their own, or that a shard has no use for.
OWN_NAMES = {
    "CPU": "cpus_per_shard says how many",
    "memory": "memory_per_shard says how much",
    "GPU": "shards compute on CPUs",
    "TPU": "shards compute on CPUs",
    "object_store_memory": "Ray shares it out itself",
}
# As much of a kind of accelerator as Ray Train asks for: a mark of the node, not a device.
MARK_OF_NODE = 0.001


@dataclass(frozen=True)
class RayParams:
    """Where and how shards run.

    Parameters
    ----------
    num_shards : int, tuple of int, or None
        Shards (workers) that the rows are split into. None takes one per free CPU (Ray) or per core (local).
        A pair (least, most) starts with as many as find a place, and splits the rows anew when nodes join or
        leave, at most once a minute.
    cpus_per_shard : float
        CPUs that each shard reserves; fractions are allowed.
    memory_per_shard : int or None
        Bytes that a shard's caches and gradients may take. None takes a share of what is free. A shard on Ray
        reserves them, and what its rows take.
    max_shard_failures : int
        Losses that a run may survive, -1 for any number. Lost shards (or the coordinator) are replaced and
        brought up to date. All shards that are lost with a node count once.
    timeout_s : float
        Seconds after which a shard that does not answer, or a placement, is given up. A process that is being
        started has at least five minutes.
    checkpoint_dir : str or None
        Directory (a path, or a URI that `pyarrow.fs` opens) for the state of the run. The next fit with the
        same directory, data and parameters goes on from there. Kept for the local engine too; a finished run
        removes its files.
    checkpoint_every_s : float
        Seconds between two checkpoints.
    placement : {"SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK"}
        "SPREAD" puts shards on different nodes where it can, "PACK" on as few as possible; the strict ones
        must.
    max_preemptions : int
        As `max_shard_failures`, for nodes that Ray reports as preempted (spot machines, say), which are
        counted apart; -1 for any number.
    resources : dict or None
        Custom resources of Ray that each shard reserves, such as {"fast_disk": 1}.
    label_selector : dict or None
        Labels of the nodes that shards may live on, written as Ray does: {"ray.io/market-type": "!spot"}.
    name, storage_path : str or None
        Both or none. Where the run leaves its files: `<storage_path>/<name>` (a path or a URI) holds
        checkpoints while it runs, and at the end `model.raymkl`, `history.parquet` and `run.json`. A later
        run of the same name takes their place.
    runtime_env : dict or None
        Runtime environment of Ray for the actors, such as {"pip": ["mykernels"]}. It is not kept in model
        files.

    Examples
    --------
    >>> from raymkl import RayParams
    >>> params = RayParams(num_shards=8, cpus_per_shard=2, memory_per_shard=4 * 2**30)
    >>> params.num_shards
    8
    """

    num_shards: int | tuple[int, int] | None = None
    cpus_per_shard: float = 1
    memory_per_shard: int | None = None
    max_shard_failures: int = 3
    timeout_s: float = 600.0
    checkpoint_dir: str | None = None
    checkpoint_every_s: float = 60.0
    placement: str = "SPREAD"
    max_preemptions: int = -1
    resources: Mapping[str, float] | None = None
    label_selector: Mapping[str, str] | None = None
    runtime_env: Mapping[str, Any] | None = None
    name: str | None = None
    storage_path: str | None = None

    @property
    def run_directory(self) -> str | None:
        """Where a run with a name leaves its files, None for one without."""
        return None if self.name is None else f"{str(self.storage_path).rstrip('/')}/{self.name}"

    @property
    def checkpoint_place(self) -> str | None:
        """Where checkpoints go: `checkpoint_dir`, or a folder of a run with a name; None for nowhere."""
        named = None if self.name is None else f"{self.run_directory}/checkpoints"
        return named if self.checkpoint_dir is None else str(self.checkpoint_dir)

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_shards", _checked_shards(self.num_shards))
        for name in ("max_shard_failures", "max_preemptions"):
            value = getattr(self, name)
            if not (isinstance(value, Integral) and int(value) >= -1):
                raise ValueError(f"{name} must be a whole number >= -1, got {value!r}")
        for name in ("cpus_per_shard", "timeout_s", "checkpoint_every_s", "memory_per_shard"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and float(value) > 0) and not (
                name == "memory_per_shard" and value is None
            ):
                raise ValueError(
                    f"{name} must be a positive number{' or None' if name == 'memory_per_shard' else ''}, "
                    f"got {value!r}"
                )
        if self.checkpoint_dir is not None and not isinstance(self.checkpoint_dir, str | os.PathLike):
            raise ValueError(f"checkpoint_dir must be a path, a URI or None, got {self.checkpoint_dir!r}")
        _check_name(self.name, self.storage_path)
        for name in ("checkpoint_dir", "storage_path"):  # as texts, which files of models hold
            if getattr(self, name) is not None:
                object.__setattr__(self, name, os.fspath(getattr(self, name)))
        if self.placement not in PLACEMENTS:
            raise ValueError(
                f"placement must be one of {', '.join(map(repr, PLACEMENTS))}, got {self.placement!r}"
            )
        for name in ("resources", "label_selector", "runtime_env"):
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, Mapping) and all(isinstance(key, str) and key for key in value)
            ):
                raise ValueError(f"{name} must be a dict with names as keys, or None, got {value!r}")
        for key, amount in (self.resources or {}).items():
            if key in OWN_NAMES:
                raise ValueError(f"resources must not name {key!r}: {OWN_NAMES[key]}")
            if not (
                isinstance(amount, Real) and float(amount) > 0 and (amount < 1 or float(amount).is_integer())
            ):
                raise ValueError(
                    f"resources[{key!r}] must be a whole number or a positive fraction below 1, got "
                    f"{amount!r}"
                )
        for key, value in (self.label_selector or {}).items():
            if not isinstance(value, str) or not value:
                raise ValueError(
                    f"label_selector[{key!r}] must be a text, e.g. 'value', '!value' or 'in(a, b)', got "
                    f"{value!r}"
                )

    @property
    def bounds(self) -> tuple[int, int] | None:
        """(least, most) shards where their number may change, None where it is fixed or left open."""
        return self.num_shards if isinstance(self.num_shards, tuple) else None

    def shards_where(self, places: int) -> int | None:
        """Shards to start with where so many find a place; None where it is left open.

        Parameters
        ----------
        places : int
            Shards that find a place now.

        Returns
        -------
        shards : int or None
            As above.
        """
        if isinstance(self.num_shards, tuple):
            least, most = self.num_shards
            return max(least, min(most, places))
        return self.num_shards

    @classmethod
    def from_train(cls, scaling_config: Any, run_config: Any = None, **more: Any) -> RayParams:
        """What Ray Train's `ScalingConfig` and `RunConfig` say, for shards: a worker is a shard.

        num_workers, resources_per_worker (CPU, memory and custom ones), placement_strategy, label_selector
        and accelerator_type are taken from the one; failure_config, worker_runtime_env, and name with
        storage_path (unless it is Ray's default) from the other.
        What shards have no use for (GPUs, TPUs, callbacks) is refused.

        Parameters
        ----------
        scaling_config : ray.train.ScalingConfig
            Workers and their resources.
        run_config : ray.train.RunConfig or None
            Name, storage and failures.
        **more : object
            Fields of RayParams, which go before what the two say.

        Returns
        -------
        params : RayParams
            The same for shards.

        Examples
        --------
        >>> from ray.train import ScalingConfig  # doctest: +SKIP
        >>> RayParams.from_train(ScalingConfig(num_workers=8,
        ...     resources_per_worker={"CPU": 2}))  # doctest: +SKIP
        """
        found = {**_of_scaling(scaling_config), **({} if run_config is None else _of_run(run_config))}
        return cls(**{**found, **more})


def _check_name(name: Any, storage_path: Any) -> None:
    folder = (
        isinstance(name, str)
        and bool(name.strip())
        and name not in (".", "..")
        and not {"/", "\\"} & set(name)
    )
    if name is not None and not folder:
        raise ValueError(
            f"name must be a text without slashes, that of a folder in storage_path, or None; got {name!r}"
        )
    if storage_path is not None and not (
        isinstance(storage_path, str | os.PathLike) and os.fspath(storage_path)
    ):
        raise ValueError(f"storage_path must be a path, a URI or None, got {storage_path!r}")
    if (name is None) != (storage_path is None):
        raise ValueError(
            f"name and storage_path belong together, got name={name!r} and storage_path={storage_path!r}"
        )


def _checked_shards(value: Any) -> int | tuple[int, int] | None:
    """A number of shards as it is kept. Raises ValueError for what is none."""
    if value is None:
        return None
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    if isinstance(value, tuple | list):
        whole = len(value) == 2 and all(
            isinstance(one, Integral) and not isinstance(one, bool) for one in value
        )
        if whole and 1 <= value[0] <= value[1]:
            return (int(value[0]), int(value[1]))
        raise ValueError(
            f"num_shards must be two whole numbers 1 <= least <= most where it is a pair, got {value!r}"
        )
    raise ValueError(f"num_shards must be a whole number >= 1, a pair (least, most), or None, got {value!r}")


def _of_scaling(config: Any) -> dict[str, Any]:
    if not hasattr(config, "num_workers"):
        raise ValueError(f"scaling_config must be a ray.train.ScalingConfig, got {config!r}")
    for name in ("use_gpu", "use_tpu", "topology"):
        if getattr(config, name, None):
            raise ValueError(
                f"scaling_config has {name}={getattr(config, name)!r}, and shards compute on CPUs"
            )
    workers = config.num_workers
    if not isinstance(workers, Integral) or workers < 1:
        raise ValueError(f"num_workers of scaling_config must be a whole number >= 1, got {workers!r}")
    each = dict(config.resources_per_worker or {})
    found: dict[str, Any] = {"num_shards": int(workers), "placement": config.placement_strategy}
    found["cpus_per_shard"] = each.pop("CPU", 1)
    if "memory" in each:
        found["memory_per_shard"] = int(each.pop("memory"))
    custom = {name: amount for name, amount in each.items() if amount}
    if getattr(config, "accelerator_type", None):
        custom[f"accelerator_type:{config.accelerator_type}"] = MARK_OF_NODE
    labels = getattr(config, "label_selector", None)
    if isinstance(labels, list):
        if any(one != labels[0] for one in labels):
            raise ValueError(
                "label_selector of scaling_config must be the same for all workers: any shard may take the "
                "place of another"
            )
        labels = labels[0] if labels else None
    return {**found, "resources": custom or None, "label_selector": labels or None}


def _of_run(config: Any) -> dict[str, Any]:
    if not hasattr(config, "failure_config"):
        raise ValueError(f"run_config must be a ray.train.RunConfig, got {config!r}")
    for name in ("callbacks", "storage_filesystem"):
        if getattr(config, name, None):
            raise ValueError(f"run_config has {name}, which a fit has no use for")
    found: dict[str, Any] = {}
    failures = config.failure_config
    if failures is not None:
        found["max_shard_failures"] = failures.max_failures
        found["max_preemptions"] = getattr(failures, "max_preemption_failures", -1)
    environment = getattr(config, "worker_runtime_env", None)
    if environment:
        found["runtime_env"] = dict(environment)
    from ray.train.constants import (
        DEFAULT_STORAGE_PATH,
    )  # loads Ray, which only those need who have such a config

    if config.storage_path is not None and config.storage_path != DEFAULT_STORAGE_PATH and config.name:
        found.update(name=config.name, storage_path=str(config.storage_path))
    return found
