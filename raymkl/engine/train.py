"""The one way into the engine: rows, a problem and heads go in, results and a history come out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from .coordinator import Coordinator, HeadResult
from .messages import Head, Problem
from .params import RayParams
from .pools import LocalPool

ENGINES = ("auto", "local", "ray")
# With engine="auto", a running Ray cluster is used from this many rows on (starting actors takes seconds), and Ray is
# started for a problem from this many rows on.
WORTH_ACTORS = 5_000
WORTH_A_CLUSTER = 200_000


@dataclass
class Trained:
    """Result of a training run: per head one result for each stage of its path, the history of the rounds, and which engine ran."""

    results: list[list[HeadResult]]
    history: list[dict]
    engine: str


def choose_engine(engine: str, n_rows: int) -> str:
    """Resolve "auto"."""
    if engine != "auto":
        return engine
    ray = sys.modules.get("ray")
    running = ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized()
    return "ray" if (running and n_rows >= WORTH_ACTORS) or n_rows >= WORTH_A_CLUSTER else "local"


def train(
    rows: dict,
    problem: Problem,
    heads: list[Head],
    engine: str = "auto",
    params: RayParams | None = None,
    report: Callable[[dict], None] | None = None,
) -> Trained:
    """Train all heads over the rows (dict view key -> array)."""
    params = params or RayParams()
    engine = choose_engine(engine, problem.n_rows)
    if engine == "ray":
        from .ray_pool import train_on_ray

        results, history = train_on_ray(rows, problem, heads, params, report)
        return Trained(results, history, engine)
    pool = LocalPool(rows, problem, params.num_shards)
    try:
        coordinator = Coordinator(pool, problem, params.memory_per_shard, report)
        return Trained(coordinator.run(heads), coordinator.history, engine)
    finally:
        pool.close()
