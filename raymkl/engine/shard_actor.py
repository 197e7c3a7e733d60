"""The shard as a Ray actor: a process that has to be ready soon, as it comes and goes with a fit, and messages in pieces."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from .messages import Problem
from .parallel import RowThreads
from .pieces import cut, join
from .shard import Shard


class ShardActor(Shard):
    """A shard in a process of its own."""

    def __init__(self) -> None:
        # No arguments: to read one, Ray would set up its serialization before this line.
        leave_out_pydantic()
        super().__init__(warm=True)

    def load(self, block: pa.Table, first: int, problem: Problem, threads: int = 1) -> None:
        """Take rows first <= i < first + n, to be worked on by so many threads."""
        self.threads.close()
        self.threads = RowThreads(threads)
        super().load(block, first, problem)

    def advance_in_pieces(self, returns: int, *pieces: Any) -> Any:
        """A round. pieces : of the request, or the request itself as the only one.

        Returns as many values as asked for: the pieces of the reply, or (reply, its size) where these are too few; then None.
        """
        reply = self.advance(join(list(pieces)) if isinstance(pieces[0], bytes) else pieces[0])
        parts, size = cut(reply, returns if returns > 1 else 0)
        found = [(reply, size)] if parts is None else parts
        return [*found, *[None] * (returns - len(found))] if returns > 1 else found[0]


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
