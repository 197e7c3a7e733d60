"""The shard as a Ray actor: a process that has to be ready soon, as it comes and goes with a fit, and answers calls directly."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pyarrow as pa

from ..problem import Problem
from ..shard.shard import Shard
from ..shard.threads import RowThreads
from .direct import Door


class ShardActor(Shard):
    """A shard in a process of its own."""

    def __init__(self) -> None:
        # No arguments: to read one, Ray would set up its serialization before this line.
        leave_out_pydantic()
        super().__init__(warm=True)
        self.at_work = threading.Lock()

    def load(self, block: pa.Table, first: int, problem: Problem, threads: int = 1, key: bytes | None = None) -> tuple[str, int] | None:
        """Take rows first <= i < first + n, to be worked on by so many threads.

        key : of the coordinator's connection. Returns the address to connect to, or None when calls are to come through Ray.
        """
        self.threads.close()
        self.threads = RowThreads(threads)
        super().load(block, first, problem)
        if key is None:
            return None
        import ray

        try:
            return Door(ray.util.get_node_ip_address(), key, self.call).address
        except OSError:
            return None

    def call(self, method: str, *arguments: Any) -> Any:
        """Result of a method. Calls come over the connection and through Ray, in threads of their own: one at a time is worked on."""
        with self.at_work:
            return getattr(self, method)(*arguments)


def leave_out_pydantic() -> None:
    """Have Ray's serialization do without pydantic in this process, as it does where pydantic is not installed.

    Ray imports it in every new process to register serializers for two of its classes, which no message of ours holds: 80 of the 700 ms
    that a shard takes to start. Code that imports pydantic itself still finds it.
    """
    name = "ray._common.pydantic_compat"
    if "ray" not in sys.modules or name in sys.modules or "pydantic" in sys.modules:
        return
    sys.modules["pydantic"] = None  # type: ignore[assignment]  # an import of it fails now
    try:
        __import__(name)
    except ImportError:
        pass  # other versions of Ray have it elsewhere, and start as slowly as they do
    finally:
        del sys.modules["pydantic"]
