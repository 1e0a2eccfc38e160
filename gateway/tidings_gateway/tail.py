"""One user's log as lines, by the very parts that a page is served with: bus, hub, feed, session.

Subscribed first, then read; a lost link is healed from the log; what cannot be proved gapless is a `resync` line. There
is no second implementation of any of it here: only a sink that makes lines.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidings.errors import StoreUnavailable, TidingsError
from tidings_gateway.core.feed import Feed
from tidings_gateway.core.frames import Frame
from tidings_gateway.session import Session
from tidings_gateway.wiring import create_bus, create_hub, session_limits

if TYPE_CHECKING:
    from tidings.log.page import Page
    from tidings_gateway.settings import Settings

HIGH_WATER_BYTES: Final = 65_536
"""Lines that wait for who reads our output. Above it, events stay in the log until there is room."""
FLUSH_S: Final = 1.0
"""At the end: how long what is waiting may take."""

RETRY_S: Final = 0.02
"""Between two questions to a store that is not reached yet."""

_RESYNC: Final = b'{"type":"resync"'


class Lines:
    """Writes lines to a descriptor in a thread of its own: a pipe that nobody reads, or a slow terminal, must not stop
    the event loop, or Redis would cut us off. `on_room` and `on_gone` are called in the loop: there is room again; who
    reads went away."""

    def __init__(self, descriptor: int, *, on_room: Callable[[], None], on_gone: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_room = on_room
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # bounded by who asks `full`
        self._thread = threading.Thread(target=self._write, name="lines", daemon=True)
        self._thread.start()
        self.waiting_bytes = 0

    @property
    def full(self) -> bool:
        return self.waiting_bytes > HIGH_WATER_BYTES

    def put(self, line: bytes) -> None:
        self.waiting_bytes += len(line) + 1
        self._queue.put(line + b"\n")

    async def close(self) -> None:
        """Write what waits, for `FLUSH_S` at most: who reads may have stopped reading."""
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join, FLUSH_S)

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            left = memoryview(line)
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self._tell(self._on_gone)
                return
            self._tell(self._written, len(line))

    def _tell(self, what: Callable[..., None], *args: int) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *args)

    def _written(self, size: int) -> None:
        was_full = self.full
        self.waiting_bytes -= size
        if was_full and not self.full:
            self._on_room()


class Tail:
    """The sink of a session whose client is a stream of lines: events, skips and resyncs, as they are on the wire.
    `ended` is done when nobody reads any more; it fails when the session did."""

    def __init__(self, descriptor: int) -> None:
        self.ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.lines = Lines(descriptor, on_room=self._room, on_gone=self.end)
        self.session: Session | None = None

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _room(self) -> None:
        if self.session is not None:
            self.session.writable()

    # What a session asks of its transport.

    @property
    def paused(self) -> bool:
        return self.lines.full

    def send(self, frame: Frame) -> None:
        if frame.position is not None or frame.coalesce is not None or frame.payload.startswith(_RESYNC):
            self.lines.put(frame.payload)

    def buffered(self) -> int:
        return self.lines.waiting_bytes

    def open_frame(self, session: Session, *, resumed: bool, position: bytes) -> Frame:  # noqa: ARG002 - not shown
        return Frame(b"{}")

    def welcomed(self) -> None: ...
    def waiting(self) -> None: ...
    def drained(self) -> None: ...

    def overrun(self) -> None:
        self.failed()

    def failed(self) -> None:
        if not self.ended.done():
            self.ended.set_exception(TidingsError("the session failed; the lines before say why"))


async def follow(
    settings: Settings, user: str, *, position: bytes | None, last: int, descriptor: int, stop: asyncio.Event
) -> None:
    """Until `stop`, or until nobody reads. `position` and `last` as in a page's hello. Never gives up on Redis: the log
    says in words what is wrong with it."""
    hub = create_hub(settings)
    bus = create_bus(settings, hub)
    hub.attach(bus)
    tail = Tail(descriptor)
    feed = Feed(position, last=last, held_max_events=settings.held_events, held_max_bytes=settings.held_bytes)
    session = tail.session = Session(hub, user, tail, feed, session_limits(settings))
    await bus.start()
    stopping: asyncio.Future[Any] = asyncio.ensure_future(stop.wait())
    try:
        session.open()
        await asyncio.wait({tail.ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        session.close()
        await bus.close()
        await tail.lines.close()
    if tail.ended.done():
        tail.ended.result()


async def read_page(settings: Settings, user: str, position: bytes | None) -> Page:
    """What the log says to a position, without entries. Raises `StoreUnavailable` when nobody answers in time."""
    bus = create_bus(settings, create_hub(settings))
    loop = asyncio.get_running_loop()
    gives_up = loop.time() + 2 * settings.redis_timeout_ms / 1000
    await bus.start()
    try:
        while True:
            # Asked again, not only until a link is up: of a Cluster's links, it takes the one to this user's primary.
            try:
                return await bus.read(user, position, limit=0)
            except StoreUnavailable:
                if loop.time() >= gives_up:
                    raise
            await asyncio.sleep(RETRY_S)
    finally:
        await bus.close()
