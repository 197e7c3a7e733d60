"""Direct connections: the calls of a run go from the coordinator to its shards over one TCP connection each.

Ray starts, places, watches and ends shards, and brings them their rows. But a call of two shards takes 5 ms through Ray, 8 ms with a few
hundred KB and 10 ms with 3 MB, and keeps processors busy that the shards need; over connections it takes 2, 2 and 4 ms. A fit makes one
call per round.

A frame is

    number of parts, bytes that follow | length of every part | the parts: the pickled message, then the arrays that were left out of it

with every part padded to a multiple of 16 bytes. Before anything is unpickled, both ends prove that they know a key, which Ray has
carried. Where there is no way through (a firewall, or a cluster whose traffic is encrypted) calls go through Ray.
"""

from __future__ import annotations

import hmac
import os
import pickle
import secrets
import socket
import struct
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ...kernels.pairs.memory import untouched

# Arrays begin at multiples of so many bytes.
ALIGNED = 16
# A frame up to this size is sent in one go; larger ones part by part, without a copy.
JOINED_BYTES = 2**20
# How long the two ends take at most to meet.
GREETING_SECONDS = 5.0
KEY_BYTES = 32
HEADER = struct.Struct("<qq")


class Unreadable(Exception):
    """A message came that could not be unpickled, say for a module that is not there."""


class Frame:
    """A message ready to be sent, to one shard or to several. size : in bytes."""

    def __init__(self, message: Any, dumps: Callable = pickle.dumps):
        """dumps : how to pickle; functions of a notebook need cloudpickle."""
        buffers: list[pickle.PickleBuffer] = []
        head = dumps(message, protocol=5, buffer_callback=buffers.append)
        parts = [head, *(buffer.raw() for buffer in buffers)]
        lengths = np.array([len(part) for part in parts], np.int64)
        body = [lengths.tobytes(), *parts]
        size = sum(_padded(len(part)) for part in body)
        self.parts = [HEADER.pack(len(parts), size)]
        for part in body:
            self.parts += [part, bytes(-len(part) % ALIGNED)]
        self.size = HEADER.size + size
        if self.size <= JOINED_BYTES:
            self.parts = [b"".join(self.parts)]


def _padded(length: int) -> int:
    return length + -length % ALIGNED


def _message(count: int, body: np.ndarray) -> Any:
    """The message of a frame of so many parts, given all that follows its header."""
    whole = memoryview(body)
    at, parts = _padded(8 * count), []
    for length in np.frombuffer(whole, np.int64, count).tolist():
        parts.append(whole[at : at + length])
        at += _padded(length)
    head, *buffers = parts
    try:
        return pickle.loads(head, buffers=buffers)
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


class Connection:
    """One end of a connection. Time-outs count from the last byte that moved; after one, the same call may be made again and goes on."""

    def __init__(self, end: socket.socket):
        self.end = end
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # rounds may take longer than routers remember
        self.header = bytearray(HEADER.size)
        self.body: np.ndarray | None = None
        self.filled = 0
        self.sending: Frame | None = None
        self.unsent: list[memoryview] = []

    def send(self, frame: Frame, timeout: float | None) -> None:
        """Send a message."""
        if frame is not self.sending:
            self.sending, self.unsent = frame, [memoryview(part) for part in reversed(frame.parts)]
        self.end.settimeout(timeout)
        while self.unsent:
            self.unsent[-1] = self.unsent[-1][self.end.send(self.unsent[-1]) :]
            if not len(self.unsent[-1]):
                self.unsent.pop()
        self.sending = None

    def receive(self, timeout: float | None) -> Any:
        """The next message."""
        self.end.settimeout(timeout)
        if self.body is None:
            self._fill(memoryview(self.header))
            self.body = untouched((HEADER.unpack(self.header)[1],), np.uint8)
        self._fill(memoryview(self.body))
        body, self.body = self.body, None
        return _message(HEADER.unpack(self.header)[0], body)

    def _fill(self, space: memoryview) -> None:
        while self.filled < len(space):
            count = self.end.recv_into(space[self.filled :])
            if count == 0:
                raise ConnectionError("the other end is gone")
            self.filled += count
        self.filled = 0

    def close(self) -> None:
        self.end.close()


# -- meeting ----------------------------------------------------------------------------------------------------------


def wanted() -> bytes | None:
    """A key for the connections of a run, or None where the cluster encrypts its traffic, which these connections do not."""
    return None if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true") else secrets.token_bytes(KEY_BYTES)


def connect(address: tuple[str, int], key: bytes) -> Connection | None:
    """A connection to a shard that waits at this address, or None when there is no way."""
    try:
        end = socket.create_connection(address, timeout=GREETING_SECONDS)
    except OSError:
        return None
    return _greet(end, key, b"coordinator", b"shard")


def _greet(end: socket.socket, key: bytes, own: bytes, other: bytes) -> Connection | None:
    """Let both ends prove that they know the key, without sending it. own, other : roles, so that no proof can be sent back."""
    try:
        end.settimeout(GREETING_SECONDS)
        challenge = secrets.token_bytes(KEY_BYTES)
        end.sendall(challenge)
        end.sendall(_proof(key, own, _exactly(end, KEY_BYTES)))
        if hmac.compare_digest(_exactly(end, KEY_BYTES), _proof(key, other, challenge)):
            return Connection(end)
    except OSError:
        pass
    end.close()
    return None


def _proof(key: bytes, role: bytes, challenge: bytes) -> bytes:
    return hmac.digest(key, role + challenge, "sha256")


def _exactly(end: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = end.recv(count - len(found))
        if not more:
            raise ConnectionError("the other end is gone")
        found += more
    return found


class Door:
    """Where a shard answers calls: messages (number, method, arguments) are answered by (number, fine, result or exception).

    The number is None in answers to what was unreadable.
    """

    def __init__(self, host: str, key: bytes, call: Callable):
        """call(method, *arguments) : does the work."""
        self.listener = socket.create_server((host, 0))
        self.address = self.listener.getsockname()[:2]
        threading.Thread(target=self._answer, args=(key, call), daemon=True, name="calls").start()

    def _answer(self, key: bytes, call: Callable) -> None:
        connection = None
        with self.listener:
            while connection is None:
                connection = _greet(self.listener.accept()[0], key, b"shard", b"coordinator")
        try:
            while True:
                connection.send(_answer_to(connection, call), None)
        except OSError:
            pass  # the coordinator is gone
        finally:
            connection.close()


def _answer_to(connection: Connection, call: Callable) -> Frame:
    try:
        number, method, arguments = connection.receive(None)
    except Unreadable as error:
        return _failure(None, error)
    try:
        return Frame((number, True, call(method, *arguments)))
    except Exception as error:
        return _failure(number, error)


def _failure(number: int | None, error: Exception) -> Frame:
    """The answer to a call that failed. What happened here is noted in the exception."""
    told = "".join(traceback.format_exception(error))
    try:
        error.add_note(told)
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(told)
    return Frame((number, False, error))
