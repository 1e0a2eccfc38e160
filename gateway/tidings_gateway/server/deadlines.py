"""One deadline for many: everything here has the same time to live, so one timer serves all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What is needed of an event loop."""

    def time(self) -> float: ...
    def call_at(self, when: float, callback: Callable[[], None], /) -> Any: ...


class Deadlines(Generic[T]):
    """Calls `expire(item)` for each item that is not stopped within `timeout_s` of its start.

    Since all have the same timeout, the order of starting is the order of expiry: starting and stopping cost one entry
    of a dict, and there is a single timer handle however many connections there are.
    """

    __slots__ = ("_due", "_expire", "_loop", "_timeout_s", "_timer")

    def __init__(self, loop: Timers, timeout_s: float, expire: Callable[[T], None]) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._expire = expire
        self._due: dict[T, float] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._due)

    def start(self, item: T) -> None:
        """From the beginning, when it was started already."""
        self._due.pop(item, None)
        self._due[item] = due = self._loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._sweep)

    def stop(self, item: T) -> None:
        self._due.pop(item, None)

    def close(self) -> None:
        """Nothing expires any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        late: list[T] = []
        for item, due in self._due.items():
            if due > now:
                self._timer = self._loop.call_at(due, self._sweep)
                break
            late.append(item)
        for item in late:
            if self._due.pop(item, None) is not None:
                self._expire(item)
