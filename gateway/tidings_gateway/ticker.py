"""The one timer of a gateway: a wheel that a single loop callback turns.

Every deadline of every connection (hello, heartbeat, token expiry, slow client) is an entry here, so that an idle
connection costs no timer handle and no task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from tidings_gateway.core.heartbeat import Wheel

log = logging.getLogger("tidings.ticker")

TICK_MS = 100
"""Resolution of all deadlines: each comes at most this late, never early."""


def _ignore(_: float) -> None:
    pass


class Timed(Protocol):
    def __hash__(self) -> int: ...

    def due(self, now: float) -> float | None:
        """Called at the deadline with `Ticker.now`. Returns the next deadline, or None for none."""
        ...

    def fault(self) -> None:
        """`due` raised: end this item. Nothing else may suffer from it."""
        ...


class Ticker:
    """Made anywhere; started, and from then on used, in the event loop.

    Its clock is the loop's, which sockets note their last byte by too. Another one, however monotonic, would not do:
    uvloop's has a resolution of 1 ms, so an answer could seem older than the question.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wheel: Wheel[Timed] = Wheel(TICK_MS, 0)
        self._handle: asyncio.TimerHandle | None = None
        self._expected = 0.0
        self.on_late: Callable[[float], None] = _ignore
        """Told at each tick how late it came, in seconds: that long the event loop had no time for anything."""

    def now(self) -> float:
        """What every deadline is measured by: monotonic, in seconds."""
        assert self._loop is not None
        return self._loop.time()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wheel = Wheel(TICK_MS, self.now() * 1000)
        self._arm(self.now())

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def schedule(self, item: Timed, at: float) -> None:
        """(Re)schedule the item's one deadline: `at` is in seconds, as `now` gives them."""
        self._wheel.schedule(item, at * 1000)

    def cancel(self, item: Timed) -> None:
        self._wheel.cancel(item)

    def _tick(self) -> None:
        assert self._loop is not None
        # Re-armed first: a fault in one item must never stop the clock of all others.
        now = self.now()
        late_s = now - self._expected
        self._arm(now)
        try:
            self.on_late(max(0.0, late_s))
        except Exception:
            log.exception("a late tick could not be noted")
        for item in self._wheel.advance(now * 1000):
            try:
                again = item.due(self.now())
                if again is not None:
                    self.schedule(item, again)
            except Exception:
                log.exception("a deadline failed")
                self._fault(item)

    def _arm(self, now: float) -> None:
        assert self._loop is not None
        self._expected = now + TICK_MS / 1000
        self._handle = self._loop.call_at(self._expected, self._tick)

    def _fault(self, item: Timed) -> None:
        try:
            item.fault()
        except Exception:
            log.exception("and its item could not be ended")
