"""Figures of a run for Ray's metrics (Prometheus, dashboard): gap, rounds, cached columns, bytes, failures,
per job.
"""

from __future__ import annotations

import ray
from ray.util.metrics import Counter, Gauge


class RunMetrics:
    """Records rows of the history under names that begin with `raymkl_`, tagged with the job."""

    def __init__(self) -> None:
        tags = {"job": ray.get_runtime_context().get_job_id()}
        self.gap = Gauge("raymkl_gap", "Largest relative duality gap of the heads at work", ("job",))
        self.rounds = Counter("raymkl_rounds", "Rounds", ("job",))
        self.columns = Gauge("raymkl_cached_columns", "Columns in the shards' caches", ("job",))
        self.hits = Counter("raymkl_cache_hits", "Columns that a round found in the caches", ("job",))
        self.bytes = Gauge("raymkl_shard_bytes", "Planned bytes of a shard's caches and gradients", ("job",))
        self.failures = Gauge("raymkl_shard_failures", "Shards and coordinators lost so far", ("job",))
        for metric in (self.gap, self.rounds, self.columns, self.hits, self.bytes, self.failures):
            metric.set_default_tags(tags)

    def record(self, rows: list[dict], failures: int) -> None:
        """The newest rows of the history, one per head."""
        if rows:
            self.gap.set(max(row.get("gap", 0.0) for row in rows))
            self.rounds.inc()
            if "cached_columns" in rows[-1]:
                self.columns.set(rows[-1]["cached_columns"])
                self.bytes.set(rows[-1]["expected_peak_bytes"])
                if rows[-1].get("cache_hits"):
                    self.hits.inc(rows[-1]["cache_hits"])
        self.failures.set(failures)

    def close(self) -> None:
        """A gap of zero says that nothing is being trained."""
        self.gap.set(0.0)
