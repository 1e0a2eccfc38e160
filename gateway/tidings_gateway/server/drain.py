"""The drain: how every socket gets its goodbye between the first SIGTERM and the end of the process.

    grace    readiness is off and everything else as usual: balancers notice before anybody is sent away
    window   upgrades under way are refused; sockets are let go evenly spread, so that they do not return as a herd
    settle   what is still there is closed by the server, and given a moment to answer
    abort    the rest is cut off

The window ends early when nobody is left. Time and chance are arguments, so tests need neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

from tidings_gateway.core.closing import DRAINING
from tidings_gateway.core.pacing import drain_schedule
from tidings_gateway.server.draining import Draining, Phase

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidings_gateway.core.pacing import Uniform
    from tidings_gateway.server.settings import ServerSettings

log = logging.getLogger("tidings.server")

POLL_S = 0.05
"""How often the drain looks whether it can end early."""


class DrainedSocket(Protocol):
    @property
    def closing(self) -> bool: ...
    def drain(self, retry_ms: int) -> None: ...
    def close(self, code: int, reason: str = "") -> None: ...
    def abort(self) -> None: ...


class Drained(Protocol):
    """What there is to drain."""

    def sockets(self) -> Collection[DrainedSocket]:
        """Those open now."""

    def start_refusing(self) -> None:
        """Refuse the handshakes under way, end keep-alive, and let go at once of sockets attached from now on."""

    def busy(self) -> bool:
        """Whether requests are still being answered, or answers still being sent."""


class Clock(Protocol):
    def time(self) -> float: ...
    async def sleep(self, delay_s: float) -> None: ...


class LoopClock:
    def time(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class Drain:
    """Run once. May be cancelled at any point; then nothing more is promised than what `abort` does."""

    def __init__(
        self, drained: Drained, draining: Draining, settings: ServerSettings, *, clock: Clock, rng: Uniform
    ) -> None:
        self._drained = drained
        self._draining = draining
        self._clock = clock
        self._rng = rng
        self._grace_s = settings.drain_grace_ms / 1000
        self._window_ms = settings.drain_window_ms
        self._settle_s = settings.drain_settle_ms / 1000
        self._flush_s = settings.close_timeout_ms / 1000
        self._retry_ms = settings.retry_ms
        self._asked: deque[tuple[float, DrainedSocket]] = deque()

    async def run(self) -> None:
        await self._grace()
        await self._window()
        await self._settle()
        self.abort()

    async def _grace(self) -> None:
        self._draining.enter(Phase.GRACE)
        log.info("draining: %d sockets, readiness is off", len(self._drained.sockets()))
        await self._clock.sleep(self._grace_s)

    async def _window(self) -> None:
        opens = self._clock.time()
        self._draining.enter(Phase.WINDOW)
        self._drained.start_refusing()
        sockets = list(self._drained.sockets())
        log.info("draining: letting go of %d sockets within %d ms", len(sockets), self._window_ms)
        for offset_ms, socket in zip(drain_schedule(len(sockets), self._window_ms, self._rng), sockets, strict=True):
            await self._sleep_until(opens + offset_ms / 1000)
            if not socket.closing:
                self._asked.append((self._clock.time() + self._flush_s, socket))
                socket.drain(self._retry_ms)
        await self._until_left_or(opens + self._window_ms / 1000)

    async def _settle(self) -> None:
        ends = self._clock.time() + self._settle_s
        self._asked.clear()
        for socket in self._drained.sockets():
            socket.close(DRAINING.code, DRAINING.reason)
        await self._until_left_or(ends)

    def abort(self) -> None:
        """Cut off whatever is left."""
        self._draining.enter(Phase.STOPPING)
        left = list(self._drained.sockets())
        if left:
            log.warning("draining: %d sockets did not close in time and are cut off", len(left))
        for socket in left:
            socket.abort()

    async def _until_left_or(self, ends: float) -> None:
        while (self._drained.sockets() or self._drained.busy()) and (now := self._clock.time()) < ends:
            await self._sleep_until(min(ends, now + POLL_S))

    async def _sleep_until(self, moment: float) -> None:
        """Meanwhile close those that were asked to go and did not start closing in time."""
        while self._asked and self._asked[0][0] <= moment:
            due, socket = self._asked.popleft()
            await self._sleep(due)
            socket.close(DRAINING.code, DRAINING.reason)
        await self._sleep(moment)

    async def _sleep(self, until: float) -> None:
        delay_s = until - self._clock.time()
        if delay_s > 0:
            await self._clock.sleep(delay_s)
