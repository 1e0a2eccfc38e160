"""A socket whose operations must all be over by one moment."""

from __future__ import annotations

import io
import selectors
import socket
import time
from typing import Any

_BUFFER_BYTES = 65_536


def left(end: float) -> float:
    """Seconds until `end` (of `time.monotonic`). Raises `TimeoutError` when it has passed."""
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds


class DeadlineSocket:
    """Stands in for `sock`. A timeout per operation, which is all that the clients above know, lets an answer that
    comes byte by byte take for ever. `end` None: no deadline, the socket's own timeout counts."""

    def __init__(self, sock: socket.socket, end: float | None = None) -> None:
        self.sock = sock
        self.end = end

    def sendall(self, data: Any) -> None:
        self._limit()
        self.sock.sendall(data)

    def recv(self, *arguments: Any) -> bytes:
        self._limit()
        return self.sock.recv(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        self._limit()
        return self.sock.recv_into(*arguments)

    def makefile(self, *_: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self), _BUFFER_BYTES)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sock, name)

    def _limit(self) -> None:
        if self.end is not None:
            self.sock.settimeout(left(self.end))


class _Reader(io.RawIOBase):
    def __init__(self, owner: DeadlineSocket) -> None:
        self._owner = owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._owner.recv_into(buffer)


def is_readable(sock: Any) -> bool:
    """Whether there is something to read, the end of the connection included. Never waits."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))
