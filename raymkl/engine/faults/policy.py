"""What to do when shards are lost: decisions only, no cluster.

A shard is lost when its process or node died, or when it answers no ping in time. The coordinator replaces it and brings the new one
up to date, as long as the policy allows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


class ShardFailure(RuntimeError):
    """Shards (or the coordinator) were lost more often than `max_shard_failures` allows, or found no place."""


class ShardsLost(Exception):
    """Some shards did not answer a call. lost : cause by shard number."""

    def __init__(self, lost: dict[int, str]):
        super().__init__("; ".join(f"shard {shard}: {cause}" for shard, cause in sorted(lost.items())))
        self.lost = lost

    def __reduce__(self):
        return (ShardsLost, (self.lost,))


@dataclass
class FailurePolicy:
    """Counts failures of a run. most : failures it may survive. failures : so far, by shard number, or -1 for the coordinator.

    news : what happened since it was last asked for, in words.
    """

    most: int
    failures: Counter = field(default_factory=Counter)
    last_cause: str = ""
    news: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.failures.values())

    def note(self, lost: dict[int, str]) -> None:
        """Count the loss of shards. Raises ShardFailure when the run may not go on."""
        for shard, cause in sorted(lost.items()):
            self.failures[shard] += 1
            self.last_cause = cause
            self.news.append(f"{_name(shard)} lost ({cause or 'unknown cause'}), replaced")
        if self.total > self.most:
            who = ", ".join(f"{_name(shard)} {count} time{'s' if count > 1 else ''}" for shard, count in sorted(self.failures.items()))
            raise ShardFailure(
                f"lost {who}, more than max_shard_failures={self.most} allows; the last cause: {self.last_cause or 'unknown'}"
            )

    def take_news(self) -> list[str]:
        """The news, which are none afterwards."""
        taken, self.news = self.news, []
        return taken


def _name(shard: int) -> str:
    return "the coordinator" if shard < 0 else f"shard {shard}"
