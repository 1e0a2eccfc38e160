"""The idle connections of a publisher, to one server or several. What one is, is the caller's business."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Hashable
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Idle(Generic[Connection]):
    """By server. Of each there are at most as many as calls go on at once, and there are only servers that are known;
    so they are bounded. Threads may share it: append and pop are atomic."""

    def __init__(self) -> None:
        self._by_server: dict[Hashable, list[Connection]] = {}
        self._known: Container[Hashable] | None = None

    def pop(self, server: Hashable) -> Connection | None:
        """The one used last, so that the others can age."""
        try:
            return self._by_server[server].pop()
        except (KeyError, IndexError):  # none, or another thread was faster
            return None

    def push(self, server: Hashable, connection: Connection) -> bool:
        """False: connections to that server are not kept, and it is still the caller's to end."""
        if self._known is not None and server not in self._known:
            return False
        self._by_server.setdefault(server, []).append(connection)
        return True

    def unknown(self, known: Container[Hashable] | None) -> list[Hashable]:
        """Servers there are connections to, although they are no longer known. `known` None: all are."""
        if known is self._known:
            return []
        self._known = known
        return [] if known is None else [server for server in list(self._by_server) if server not in known]

    def forget(self, server: Hashable) -> list[Connection]:
        """The connections to a server, which are the caller's to end."""
        return self._by_server.pop(server, [])

    @property
    def servers(self) -> list[Hashable]:
        return list(self._by_server)


class Pool(Generic[Connection]):
    """For threads. At most `size` calls at once, each holding one of `slots`; so there are never more connections in
    use than that.

    `is_good` tells whether an idle connection can still be used; `end` closes one, and must not raise.
    """

    def __init__(self, size: int, is_good: Callable[[Connection], bool], end: Callable[[Connection], None]) -> None:
        self.slots = threading.BoundedSemaphore(size)
        self.closed = False
        self._is_good = is_good
        self._end = end
        self._idle: Idle[Connection] = Idle()

    def take(self, server: Hashable = None, known: Container[Hashable] | None = None) -> Connection | None:
        """An idle connection that is still good, or None. Those to servers that are not `known` are ended."""
        for other in self._idle.unknown(known):
            self.drop(other)
        while (connection := self._idle.pop(server)) is not None:
            if self._is_good(connection):
                return connection
            self._end(connection)
        return None

    def give(self, connection: Connection, server: Hashable = None) -> bool:
        """Keep it for the next call. False: it is not kept, and still the caller's to end."""
        return not self.closed and self._idle.push(server, connection)

    def drop(self, server: Hashable) -> None:
        """End every idle connection to a server."""
        for connection in self._idle.forget(server):
            self._end(connection)

    def drain(self) -> None:
        """End every idle connection."""
        for server in self._idle.servers:
            self.drop(server)
