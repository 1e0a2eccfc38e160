"""A session: one reader of one user's log, the same for every transport.

It joins a feed (what to send next, proved), an outbox (what the transport cannot take yet, bounded) and a sink (the
transport). An idle session is three small objects and nothing else: the outbox and its writer task exist only while
there is something to drain.

Order of a session's frames: `welcome` first, then whatever the feed says, in the feed's order; ephemerals are offered
at once, between them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidings.errors import StoreUnavailable
from tidings.log.page import Page
from tidings.log.record import DurableRecord
from tidings_gateway.core import frames
from tidings_gateway.core.feed import Effects, Feed, Opened, ReadAfter, Resync, RetryLater, Send, Synced
from tidings_gateway.core.outbox import Budget, Outbox
from tidings_gateway.core.pacing import full_jitter

if TYPE_CHECKING:
    from tidings_gateway.core.frames import Frame
    from tidings_gateway.hub import Hub

log = logging.getLogger("tidings.session")

WRITE_BATCH_BYTES = 65536
"""One turn of the writer: the transport's own high-water mark, so that a turn never overfills it twice."""

READ_RETRY_BASE_MS = 250
READ_RETRY_CAP_MS = 5_000
"""After a read that failed while the link stayed up (a busy script, an overloaded reader)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session may cost. Built once from the settings and shared by all sessions."""

    queue_events: int
    queue_bytes: int
    """Counts what waits here and what the transport holds."""
    page_events: int
    page_bytes: int
    """Of one read of the log."""
    rng: random.Random
    """Spreads retried reads."""
    failover_refetch_ms: int = 0
    """The window given to pages when every page has to refetch."""


class Sink(Protocol):
    """What a transport is to a session."""

    @property
    def paused(self) -> bool:
        """The transport holds more than its high-water mark; `Session.writable` is called when it no longer does."""
        ...

    def send(self, frame: Frame) -> None: ...
    def buffered(self) -> int:
        """Bytes that the transport has accepted from us and not yet given to the kernel."""
        ...

    def open_frame(self, session: Session, *, resumed: bool, position: bytes) -> Frame:
        """The log answered: the `welcome` of this transport."""
        ...

    def welcomed(self) -> None:
        """The `welcome` was handed on: what had to stand behind it may follow."""
        ...

    def waiting(self) -> None:
        """Data waits that the transport does not take: watch that it makes progress."""
        ...

    def drained(self) -> None:
        """Nothing waits any more in the session."""
        ...

    def overrun(self) -> None:
        """More waits than a client that reads can make wait: let it go."""
        ...

    def failed(self) -> None:
        """Our own fault; the session cannot go on."""
        ...


class Session:
    """`position` None means "from the top", after `last` replayed events. All methods belong to the event loop."""

    __slots__ = (
        "__weakref__",
        "_counts",
        "_feed",
        "_hub",
        "_limits",
        "_outbox",
        "_retry",
        "_sink",
        "_stopped",
        "_wakeup",
        "_writer",
        "active",
        "channel",
        "user",
    )

    def __init__(self, hub: Hub, user: str, sink: Sink, feed: Feed, limits: Limits) -> None:
        self.user = user
        self.channel = hub.channel(user)
        self.active = 0
        """The hub's: when something last happened here, on its own count."""
        self._hub = hub
        self._counts = hub.counts
        self._sink = sink
        self._feed = feed
        self._limits = limits
        self._outbox: Outbox | None = None
        self._writer: asyncio.Task[None] | None = None
        self._wakeup: asyncio.Future[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    @property
    def opened(self) -> bool:
        return self._feed.opened

    @property
    def reading(self) -> bool:
        """Whether a read of the log is under way."""
        return self._feed.reading

    @property
    def position(self) -> bytes:
        """The position of the last durable frame that was handed on. Valid once `opened`."""
        return self._feed.position

    @property
    def queued(self) -> int:
        return len(self._outbox) if self._outbox is not None else 0

    @property
    def queued_bytes(self) -> int:
        return self._outbox.bytes if self._outbox is not None else 0

    def open(self) -> None:
        """Begin: what was missed, and then what comes."""
        self._hub.join(self)

    def open_once(self) -> None:
        """Begin, and hear of nothing that comes: the log is read to its top, and that is all. For one question, which
        need not wait for a subscription: the read is the proof. `close` it when it is `synced`."""
        self._run(self._feed.link_back(0, room=self._room()))

    def stop(self) -> None:
        """Take nothing new, also of what is being read; what is queued still goes out (a drain flushes before it
        closes). Nothing but `control` frames can follow. Safe to call twice."""
        self._stopped = True
        self._hub.leave(self)
        if self._retry is not None:
            self._retry.cancel()

    def close(self) -> None:
        """Stop, and drop what is queued. Safe to call twice and from every path."""
        self.stop()
        self._outbox = None
        if self._writer is not None:
            self._writer.cancel()

    def fail(self) -> None:
        """Something raised on this session's behalf: end it, since nobody can say what it has missed."""
        self._sink.failed()

    # What the hub brings.

    def durable(self, record: DurableRecord, frame: Frame) -> None:
        if self._stopped:
            return
        if self._outbox is None and not self._sink.paused:
            if self._feed.accept(record):
                self._counts.sent_durable += 1
                self._sink.send(frame)
            else:
                self._run(self._feed.record(record, room=True))
            return
        fits = self._fits(frame)
        if fits and self._feed.accept(record):
            self._put(frame)
        else:
            self._counts.fell_behind += not fits and self._feed.live
            self._run(self._feed.record(record, room=fits))

    def ephemeral(self, frame: Frame) -> None:
        if self._feed.opened and not self._stopped:
            self._put(frame)

    def link_back(self, generation: int) -> None:
        self._run(self._feed.link_back(generation, room=self._room()))

    def link_lost(self) -> None:
        self._run(self._feed.link_lost())

    # What the transport tells.

    def control(self, frame: Frame) -> None:
        """Send a frame of the transport's own (heartbeat, goodbye, auth) in its place behind what is queued."""
        self._put(frame)

    def writable(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
        elif self._outbox is None:
            self._run(())

    # The feed's wishes.

    def _run(self, effects: Effects) -> None:
        self._carry_out(effects)
        if self._feed.wants_room and not self._stopped and self._room():
            self._carry_out(self._feed.has_room())

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            if self._stopped:
                return
            match effect:
                case Send(record, replay):
                    self._put(self._hub.durable_frame(record, replay=replay))
                case ReadAfter(read_id, position, last):
                    self._read(read_id, position, last)
                case Opened(resumed, position):
                    self._count_opening(effects, resumed=resumed)
                    self._put(self._sink.open_frame(self, resumed=resumed, position=position))
                    self._sink.welcomed()
                case Resync(reason, position, missed, failed_over):
                    self._counts.resyncs[reason.value] += 1
                    refetch_ms = self._limits.failover_refetch_ms if failed_over else 0
                    self._put(frames.resync(reason, position, missed, refetch_ms=refetch_ms))
                case Synced(position, replayed):
                    self._put(frames.synced(position, replayed))
                case RetryLater(attempt):
                    self._retry_later(attempt)

    def _count_opening(self, effects: Effects, *, resumed: bool) -> None:
        why = next((effect.reason.value for effect in effects if isinstance(effect, Resync)), "start")
        self._counts.resumes["resumed" if resumed else why] += 1

    def _read(self, read_id: int, position: bytes | None, last: int) -> None:
        # The reader owns the command: when this session goes away the answer is dropped, never cut half-way.
        limits = self._limits
        future = self._hub.read(self.user, position, last=last, limit=limits.page_events, max_bytes=limits.page_bytes)
        future.add_done_callback(lambda done: self._read_done(read_id, done))

    def _read_done(self, read_id: int, done: asyncio.Future[Page]) -> None:
        # Looked at in any case: an error that nobody retrieves would be logged as ours.
        error = None if done.cancelled() else done.exception()
        if self._stopped:
            return
        if error is not None and not isinstance(error, StoreUnavailable):
            log.error("reading the log of %s failed: %r", self.user, error)
        with self._guarded():
            if error is None and not done.cancelled():
                self._counts.pages += 1
                self._run(self._feed.page(done.result(), read_id, budget=self._budget()))
            else:
                self._counts.pages_failed += 1
                self._run(self._feed.read_failed(read_id))
        if not self._feed.reading:
            self._hub.caught_up(self)

    def _retry_later(self, attempt: int) -> None:
        if self._retry is None:
            wait_ms = full_jitter(READ_RETRY_BASE_MS, READ_RETRY_CAP_MS, attempt, self._limits.rng)
            self._retry = asyncio.get_running_loop().call_later(wait_ms / 1000, self._retry_read)

    def _retry_read(self) -> None:
        self._retry = None
        with self._guarded():
            self._run(self._feed.retry(self._room()))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """For what the event loop calls directly: an error must not leave a session that only seems to be open."""
        try:
            yield
        except Exception:
            log.exception("a session of %s failed", self.user)
            self.fail()

    # The queue in front of the transport.

    def _room(self) -> bool:
        """Whether a whole page would fit beside what already waits."""
        limits = self._limits
        outbox = self._outbox or self._new_outbox()
        return outbox.room_for_page(limits.page_events, limits.page_bytes, self._sink.buffered())

    def _budget(self) -> Budget:
        return (self._outbox or self._new_outbox()).budget(self._sink.buffered())

    def _new_outbox(self) -> Outbox:
        return Outbox(self._limits.queue_events, self._limits.queue_bytes)

    def _fits(self, frame: Frame) -> bool:
        return self._outbox is None or self._outbox.fits(frame, self._sink.buffered())

    def _put(self, frame: Frame) -> None:
        if self._outbox is None:
            if not self._sink.paused:
                self._send(frame)
                return
            self._outbox = self._new_outbox()
            self._sink.waiting()
        outbox, counts = self._outbox, self._counts
        coalesced, dropped = outbox.coalesced, outbox.dropped
        taken = outbox.put(frame, self._sink.buffered())
        counts.coalesced += outbox.coalesced - coalesced
        counts.queue_full += outbox.dropped - dropped
        if not taken and frame.coalesce is None:
            # Even a control frame found no place: this client asks and does not read.
            self._sink.overrun()
        elif self._writer is None:
            self._start_writer()

    def _send(self, frame: Frame) -> None:
        if frame.position is not None:
            self._counts.sent_durable += 1
        elif frame.coalesce is not None:
            self._counts.sent_ephemeral += 1
        self._sink.send(frame)

    def _start_writer(self) -> None:
        self._writer = asyncio.get_running_loop().create_task(self._write(), name="session writer")
        self._writer.add_done_callback(self._writer_done)

    async def _write(self) -> None:
        """Drain the outbox as the transport takes more. Lives only while there is something to drain."""
        loop = asyncio.get_running_loop()
        while (outbox := self._outbox) is not None:
            if self._sink.paused:
                self._wakeup = loop.create_future()
                await self._wakeup
                self._wakeup = None
                continue
            for frame in outbox.take(WRITE_BATCH_BYTES):
                self._send(frame)
            if not len(outbox):
                self._outbox = None
                break
            # Others' turn: one session's backlog must not hold the loop.
            await asyncio.sleep(0)

    def _writer_done(self, task: asyncio.Task[None]) -> None:
        self._writer = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("the writer of a session of %s died", self.user, exc_info=error)
            self.fail()
        elif self._outbox is not None:
            # Something was queued after the writer's last look, while it still counted as running.
            self._start_writer()
        else:
            with self._guarded():
                self._sink.drained()
                self._run(())
