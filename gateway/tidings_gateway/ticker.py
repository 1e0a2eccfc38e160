"""The one timer of a gateway: a wheel that a single loop callback turns.

Every deadline of every connection (hello, heartbeat, token expiry, slow client) is an entry here, so that an idle
connection costs no timer handle and no task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from tidings_gateway.core.heartbeat import Wheel

log = logging.getLogger("tidings.ticker")

TICK_MS = 100
"""Resolution of all deadlines: each comes at most this late, never early."""


class Timed(Protocol):
    def __hash__(self) -> int: ...

    def due(self, now: float) -> float | None:
        """Called at the deadline with the loop's time (s). Returns the next deadline, or None for none."""
        ...

    def fault(self) -> None:
        """`due` raised: end this item. Nothing else may suffer from it."""
        ...


class Ticker:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wheel: Wheel[Timed] = Wheel(TICK_MS, loop.time() * 1000)
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(TICK_MS / 1000, self._tick)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def schedule(self, item: Timed, at: float) -> None:
        """(Re)schedule the item's one deadline at the loop's time `at`, in seconds."""
        self._wheel.schedule(item, at * 1000)

    def cancel(self, item: Timed) -> None:
        self._wheel.cancel(item)

    def _tick(self) -> None:
        # Re-armed first: a fault in one item must never stop the clock of all others.
        self._handle = self._loop.call_later(TICK_MS / 1000, self._tick)
        for item in self._wheel.advance(self._loop.time() * 1000):
            now = self._loop.time()
            try:
                again = item.due(now)
                if again is not None:
                    self.schedule(item, again)
            except Exception:
                log.exception("a deadline failed")
                item.fault()
