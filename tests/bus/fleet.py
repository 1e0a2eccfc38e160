"""Many sessions of one gateway over a real bus, without sockets: what is measured is the bus, the hub and the feeds.

`python -m tests.bus.fleet` cuts the link under 20,000 of them and prints how long everybody was away, and how long the
event loop stood still meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.bus.support import STEADY, kill_pubsub
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher
from tidings.log.eventlog import Failover
from tidings.log.names import Names
from tidings.redis_url import Address
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.cluster import ClusterBus
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.link import Link
from tidings_gateway.core import frames
from tidings_gateway.core.feed import Feed
from tidings_gateway.core.frames import Frame
from tidings_gateway.hub import HEAL_READS, Hub
from tidings_gateway.session import Limits, Session

LIMITS = Limits(queue_events=256, queue_bytes=262_144, page_events=128, page_bytes=131_072, rng=random.Random(1))

BACK_S = 10
"""Everybody has events again within this, seconds, whatever was done to a Cluster."""


class CountingSink:
    """A transport that takes everything; `sent_at` is when the last frame came."""

    __slots__ = ("frames", "sent_at", "synced")

    paused = False

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.sent_at = 0.0
        self.synced = False

    def send(self, frame: Frame) -> None:
        self.frames.append(frame.payload)
        self.sent_at = time.monotonic()
        self.synced = self.synced or frame.payload.startswith(b'{"type":"synced"')

    def buffered(self) -> int:
        return 0

    def open_frame(self, session: Session, *, resumed: bool, position: bytes) -> Frame:
        return frames.synced(position, 0)

    def welcomed(self) -> None: ...
    def waiting(self) -> None: ...
    def drained(self) -> None: ...
    def overrun(self) -> None: ...
    def failed(self) -> None:
        raise AssertionError("a session failed")


class Stall:
    """How long the event loop did not come round, at most: a task that sleeps for 5 ms sees each pause. Measured in CPU
    time of this thread, so that a busy machine is not taken for a slow loop."""

    EVERY_S = 0.005

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(self.EVERY_S)
            now = time.thread_time()
            self.longest_s = max(self.longest_s, now - last)
            last = now


@asynccontextmanager
async def stalls() -> AsyncIterator[Stall]:
    stall = Stall()
    task = asyncio.create_task(stall.run(), name="stall")
    try:
        yield stall
    finally:
        task.cancel()
        await asyncio.wait([task])


class Fleet:
    """`count` sessions of as many users: those named, then `u…` with their number."""

    def __init__(
        self,
        url: str,
        prefix: str,
        count: int,
        limits: BusLimits = STEADY,
        *,
        heal_reads: int = HEAL_READS,
        failover: Failover = "trust",
        users: Sequence[str] = (),
    ) -> None:
        self.names = Names(prefix)
        self.hub = Hub(
            self.names,
            max_event_bytes=65_536,
            heal_reads=heal_reads,
        )
        kind = ClusterBus if url.startswith("redis+cluster") else Bus
        self.bus: Bus | ClusterBus = kind(url, self.names, self.hub, limits, failover=failover)
        self.hub.attach(self.bus)
        self.count = count
        self.users = [*users, *(f"u{number}" for number in range(len(users), count))]
        self.sinks = [CountingSink() for _ in range(count)]
        self.sessions: list[Session] = []

    @property
    def channels(self) -> list[bytes]:
        return [self.names.channel(user) for user in self.users]

    async def open(self, deadline_s: float = 60) -> None:
        await self.bus.start()
        for user, sink in zip(self.users, self.sinks, strict=True):
            feed = Feed(None, held_max_events=512, held_max_bytes=262_144)
            session = Session(self.hub, user, sink, feed, LIMITS)
            session.open()
            self.sessions.append(session)
        await self.until_live(deadline_s)

    @property
    def live(self) -> int:
        return sum(session._feed.live for session in self.sessions)

    @property
    def confirmed(self) -> int:
        return sum(self.bus.confirmed(channel) is not None for channel in self.channels)

    async def until_live(self, deadline_s: float = 30) -> None:
        await until(lambda: self.live == self.count, deadline_s, "all sessions are live", every_s=0.02)

    def kill_link(self, server: ValkeyProcess) -> None:
        """Redis cuts our subscribed connection, and nobody else's."""
        kill_pubsub(server, self.bus.gateway_id)

    async def __aenter__(self) -> Fleet:
        try:
            await self.open()
        except BaseException:
            await self.bus.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in self.sessions:
            session.close()
        await self.bus.close()


def numbers(fleet: Fleet, user: int) -> list[int]:
    frames = [json.loads(payload) for payload in fleet.sinks[user].frames]
    return [frame["data"] for frame in frames if frame["type"] == "event"]


def resyncs(fleet: Fleet, user: int) -> list[bytes]:
    return [payload for payload in fleet.sinks[user].frames if b'"type":"resync"' in payload]


async def everybody_gets(fleet: Fleet, publisher: AsyncPublisher, number: int, deadline_s: float = BACK_S) -> None:
    """One event to each user, and each session has it as its last."""
    begun = time.monotonic()
    for user in range(fleet.count):
        await publisher.publish(fleet.users[user], "n", number)
    left = max(0.1, deadline_s - (time.monotonic() - begun))
    await until(
        lambda: all(numbers(fleet, user)[-1:] == [number] for user in range(fleet.count)),
        left,
        f"all have event {number}",
        every_s=0.05,
    )


def bus_of(fleet: Fleet) -> ClusterBus:
    assert isinstance(fleet.bus, ClusterBus)
    return fleet.bus


def links_of(fleet: Fleet) -> dict[Address, Link | None]:
    return {address: member.primary.link for address, member in bus_of(fleet)._members.items()}


@dataclass
class Measured:
    """Seconds. `subscribed_s` and `live_s` count from the moment the link was lost."""

    subscribed_s: float
    live_s: float
    stall_s: float


async def cut_and_measure(fleet: Fleet, server: ValkeyProcess) -> Measured:
    """Cut the link once and wait until everybody is live."""
    channels = fleet.channels
    generation = fleet.bus.generation
    async with stalls() as stall:
        fleet.kill_link(server)
        await until(lambda: not fleet.bus.up, what="the loss is noticed", every_s=0.001)
        lost = time.monotonic()
        await until(lambda: fleet.bus.generation > generation, 10, every_s=0.001)
        # The last of the table is confirmed last, or nearly: looking at all of them all the time would be the stall.
        assert isinstance(fleet.bus, Bus)
        table = fleet.bus._primary._parts.channels
        await until(lambda: table.on == len(channels), 30, "all channels are confirmed", every_s=0.005)
        subscribed = time.monotonic()
        await fleet.until_live()
        live = time.monotonic()
    return Measured(subscribed - lost, live - lost, stall.longest_s)


async def _main(count: int, rounds: int) -> None:
    with ValkeyProcess() as server:
        async with Fleet(server.url, "fleet", count) as fleet:
            for _ in range(rounds):
                found = await cut_and_measure(fleet, server)
                print(
                    f"{count} channels: subscribed again after {found.subscribed_s:.2f} s, all live after "
                    f"{found.live_s:.2f} s, longest stall {found.stall_s * 1000:.0f} ms"
                )


if __name__ == "__main__":
    import uvloop

    parser = argparse.ArgumentParser(prog="python -m tests.bus.fleet", description=__doc__)
    parser.add_argument("--channels", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    uvloop.run(_main(given.channels, given.rounds))
