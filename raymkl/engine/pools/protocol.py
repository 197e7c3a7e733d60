"""What the engine asks of a pool of shards, wherever they live."""

from __future__ import annotations

from typing import Any, Protocol


class Pool(Protocol):
    """Shards over contiguous ranges of rows.

    ranges : (first, last) row of every shard. generation : how often shards were replaced. members : who they
    are; equal while no shard was replaced, also from one run to the next. Calls raise `ShardsLost` for shards
    that do not answer.
    """

    ranges: list[tuple[int, int]]
    generation: int

    @property
    def members(self) -> tuple: ...

    def load(self, shards: list[int]) -> None:
        """Have shards read their rows."""

    def call_all(self, method: str, *arguments: Any) -> list:
        """Result of a shard method from every shard, in the order of the shards."""

    def call_some(self, calls: list[tuple[int, str, tuple]]) -> list:
        """Results of calls (shard, method, arguments), at most one per shard."""

    def replace(self, shards: list[int]) -> None:
        """New shards in the place of lost ones, with their rows."""

    def close(self) -> None:
        """End what belongs to this run."""
