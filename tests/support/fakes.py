"""Stand-ins for the neighbours of a session: a bus whose answers the test gives, a transport whose room it controls."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from tidings.log.names import Names
from tidings.log.page import Page
from tidings.log.record import DurableRecord, encode_durable
from tidings_gateway.core import frames
from tidings_gateway.core.feed import Feed
from tidings_gateway.core.frames import Frame
from tidings_gateway.hub import HEAL_READS, Hub
from tidings_gateway.session import Limits, Session

EPOCH = "epoch0001"


def position(seq: int, tag: int | None = None, epoch: str = EPOCH) -> bytes:
    return f"{epoch}.{seq}-{seq * 7 if tag is None else tag}".encode()


def body(seq: int, size: int = 0) -> bytes:
    return json.dumps({"event": "n", "data": {"n": seq, "pad": "x" * size}, "time": 1}, separators=(",", ":")).encode()


def entry(seq: int, size: int = 0) -> DurableRecord:
    return DurableRecord(position(seq - 1), position(seq), body(seq, size))


def page(after: int, top: int, upto: int | None = None, size: int = 0) -> Page:
    last = top if upto is None else upto
    return Page(position(after), position(top), tuple(entry(seq, size) for seq in range(after + 1, last + 1)))


class FakeBus:
    """Subscriptions and reads, each confirmed or answered when the test says so."""

    def __init__(self) -> None:
        self.up = True
        self.down_ms = 0.0
        self.reached = True
        self.generations: dict[bytes, int] = {}
        self.wanted: list[bytes] = []
        self.log: list[str] = []
        self.reads: list[tuple[bytes | None, int, asyncio.Future[Page]]] = []
        self.asked: list[str] = []
        """Whose log was read, in order."""

    def want(self, channel: bytes) -> None:
        self.wanted.append(channel)
        self.log.append(f"want {channel.decode()}")

    def unwant(self, channel: bytes) -> None:
        self.wanted.remove(channel)
        self.log.append(f"unwant {channel.decode()}")

    def age_s(self) -> float:
        return 0.001

    def confirmed(self, channel: bytes) -> int | None:
        return self.generations.get(channel)

    def read(self, user: str, position: bytes | None, *, last: int, limit: int, max_bytes: int) -> asyncio.Future[Page]:
        future: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        self.reads.append((position, last, future))
        self.asked.append(user)
        return future

    async def answer(self, answer: Page | Exception) -> None:
        """Answer the oldest unanswered read, and let the callbacks run."""
        future = next(future for _, _, future in self.reads if not future.done())
        if isinstance(answer, Page):
            future.set_result(answer)
        else:
            future.set_exception(answer)
        await turn()

    @property
    def unanswered(self) -> int:
        return sum(not future.done() for _, _, future in self.reads)


class FakeSink:
    """A transport. `paused` and `held` are the test's to set; `sent` is what was handed over."""

    def __init__(self) -> None:
        self.paused = False
        self.held = 0
        self.sent: list[Frame] = []
        self.calls: list[str] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)

    def buffered(self) -> int:
        return self.held

    def open_frame(self, session: Session, *, resumed: bool, position: bytes) -> Frame:
        return frames.welcome(
            session="s-1",
            user=session.user,
            resumed=resumed,
            position=position,
            heartbeat_ms=20_000,
            timeout_ms=10_000,
            server_time_ms=0,
            expires_in_ms=None,
        )

    def welcomed(self) -> None:
        pass

    def waiting(self) -> None:
        self.calls.append("waiting")

    def drained(self) -> None:
        self.calls.append("drained")

    def overrun(self) -> None:
        self.calls.append("overrun")

    def failed(self) -> None:
        self.calls.append("failed")

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(frame.payload) for frame in self.sent]

    def types(self) -> list[str]:
        return [frame["type"] for frame in self.said()]

    def numbers(self) -> list[int]:
        return [frame["data"]["n"] for frame in self.said() if frame["type"] == "event" and "id" in frame]


class Desk:
    """A hub with one fake bus, and sessions on it."""

    def __init__(self, *, heal_reads: int = HEAL_READS, **limits: int) -> None:
        values = {"queue_events": 16, "queue_bytes": 16_384, "page_events": 8, "page_bytes": 4096} | limits
        self.limits = Limits(rng=random.Random(1), **values)
        self.bus = FakeBus()
        self.hub = Hub(
            Names("tidings"),
            max_event_bytes=65_536,
            heal_reads=heal_reads,
        )
        self.hub.attach(self.bus)

    def session(self, at: bytes | None = None, user: str = "ann", last: int = 0) -> tuple[Session, FakeSink]:
        sink = FakeSink()
        feed = Feed(at, last=last, held_max_events=64, held_max_bytes=65_536)
        session = Session(self.hub, user, sink, feed, self.limits)
        session.open()
        return session, sink

    async def live(self, at: int = 0, user: str = "ann") -> tuple[Session, FakeSink]:
        session, sink = self.session(position(at), user)
        self.confirm(user)
        await self.bus.answer(Page(position(at), position(at)))
        assert sink.types() == ["welcome", "synced"]
        return session, sink

    def confirm(self, user: str = "ann", generation: int = 1) -> None:
        channel = self.hub.channel(user)
        self.bus.generations[channel] = generation
        self.hub.channel_on(channel, generation)

    def hear(self, record: DurableRecord, user: str = "ann") -> None:
        self.hub.record_received(self.hub.channel(user), encode_durable(*record))


async def turn() -> None:
    """Let everything run that is ready to run."""
    for _ in range(5):
        await asyncio.sleep(0)
