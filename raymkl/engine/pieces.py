"""Messages of a round in pieces that travel with the call itself.

Ray sends an argument or a result of less than 100 KB along with the call; a larger one goes through the object store, where both sides
wait for it twice (2 to 3 ms per round, as much as all the rest of a call). So a message of some hundred KB is cut into pieces, each a
value of its own. Still larger ones are better off in the object store, which does not copy them for every shard.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

# Bytes of a piece: Ray's limit of 100 KiB with room for what it adds.
PIECE = 95_000
# A request goes to every shard and is copied for each; a reply only once.
REQUEST_PIECES, REPLY_PIECES = 4, 8
# Arrays begin at multiples of so many bytes.
ALIGNED = 16
# A reply may be larger than the last one by this factor and still find enough pieces.
GROWTH = 1.1


def cut(message: Any, most: int) -> tuple[list[bytes] | None, int]:
    """The message in at most `most` pieces, or None when it is too large for them; and its size in bytes."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    size = size_of(head, buffers)
    if size > most * PIECE:
        return None, size
    # A table of lengths, then what they are of, each where an array may begin.
    parts = [head, *(buffer.raw() for buffer in buffers)]
    table = np.array([len(parts), *map(len, parts)], np.int64).tobytes()
    whole = b"".join(value for part in (table, *parts) for value in (part, bytes(-len(part) % ALIGNED)))
    if len(whole) > most * PIECE:
        return None, size
    return [whole[start : start + PIECE] for start in range(0, len(whole), PIECE)], size


def size_of(head: bytes, buffers: list[pickle.PickleBuffer]) -> int:
    """Bytes of a pickled message and of the arrays that were left out of it."""
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def join(pieces: list[bytes]) -> Any:
    """The message out of all its pieces; its arrays are read-only, as those out of the object store are."""
    whole = memoryview(b"".join(pieces))
    count = int(np.frombuffer(whole, np.int64, 1)[0])
    at, parts = 8 * (count + 1), []
    for length in np.frombuffer(whole, np.int64, count, offset=8).tolist():
        at += -at % ALIGNED
        parts.append(whole[at : at + length])
        at += length
    head, *buffers = parts
    return pickle.loads(head, buffers=buffers)


def pieces_for(size: int) -> int:
    """Pieces to expect of a reply when the last one had so many bytes; 1 where it had better not be cut."""
    count = int(GROWTH * size / PIECE) + 1
    return count if count <= REPLY_PIECES else 1
