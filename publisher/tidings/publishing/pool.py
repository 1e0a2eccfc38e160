"""The idle connections of a blocking publisher, shared by its threads. What one is, is the caller's business."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Connection = TypeVar("Connection")


class Pool(Generic[Connection]):
    """At most `size` calls at once, each holding one of `slots`; so there are never more connections than that.

    `is_good` tells whether an idle connection can still be used; `end` closes one, and must not raise.
    """

    def __init__(self, size: int, is_good: Callable[[Connection], bool], end: Callable[[Connection], None]) -> None:
        self.slots = threading.BoundedSemaphore(size)
        self.closed = False
        self._is_good = is_good
        self._end = end
        self._idle: list[Connection] = []  # append and pop are atomic

    def take(self) -> Connection | None:
        """An idle connection that is still good, or None. The one used last comes first, so that the others can age."""
        while (connection := self._pop()) is not None:
            if self._is_good(connection):
                return connection
            self._end(connection)
        return None

    def give(self, connection: Connection) -> bool:
        """Keep it for the next call. False: the pool is closed, and the connection still the caller's to end."""
        if not self.closed:
            self._idle.append(connection)
        return not self.closed

    def drain(self) -> None:
        """End every idle connection."""
        while (connection := self._pop()) is not None:
            self._end(connection)

    def _pop(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:  # empty, or another thread was faster
            return None
