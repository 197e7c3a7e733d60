"""The shard as a Ray actor: a process that holds the shards of all runs of a session."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from ...kernels.loops.compiled import warm_up
from ..problem import Problem
from ..resources import free_memory, this_node, usable_cpus
from ..shard.shard import Shard


class ShardActor:
    """Shards of several runs, each with its own rows and heads.

    Caches over rows that were put into the session stand between runs.
    """

    def __init__(self) -> None:
        warm_up()
        self.shards: dict[str, Shard] = {}
        self.at_work: dict[str, threading.Lock] = {}
        self.kept: dict[int, list] = {}  # caches that stand, by serial number

    def load(self, run: str, block: pa.Table | dict, first: int, problem: Problem, threads: int = 1) -> None:
        """Take rows first <= i < first + n for a run, to be worked on by so many threads."""
        shard = Shard(threads, self.kept)
        shard.load(block, first, problem)
        self.end(run)
        self.shards[run], self.at_work[run] = shard, threading.Lock()

    def call(self, run: str, method: str, *arguments: Any) -> Any:
        """Result of a method of a run's shard. Calls of several runs come in threads of their own."""
        with self.at_work[run]:
            return getattr(self.shards[run], method)(*arguments)

    def end(self, run: str) -> None:
        """Forget a run."""
        shard = self.shards.pop(run, None)
        self.at_work.pop(run, None)
        if shard is not None:
            shard.threads.close()

    def forget(self, serials: list[int]) -> None:
        """Let go of caches that stand."""
        for serial in serials:
            self.kept.pop(serial, None)

    def resources(self) -> tuple[str, int, int]:
        """Node, CPUs and free bytes of this process."""
        return this_node(), usable_cpus(), free_memory()

    def ping(self) -> str:
        """Where this process is alive; answered also while a round is being worked on."""
        return this_node()
