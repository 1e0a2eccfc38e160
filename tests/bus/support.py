"""What the tests of the bus share: a listener that remembers, a bus with short times, and an append."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.log.eventlog import append_command, new_epoch, new_tag
from tidings.log.names import Names
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.limits import BusLimits

FAST = BusLimits(redis_timeout_ms=600, canary_interval_ms=200, canary_timeout_ms=600, linger_ms=50)
"""A link that looks ten times as often, so that a test need not wait."""

STEADY = BusLimits(linger_ms=50)
"""The times of production, for tests in which a link that is given up would be a failure."""

NOTICED_S = (FAST.canary_interval_ms + FAST.canary_timeout_ms) / 1000
"""A dead link is noticed within this, by `FAST`."""

HEALED_S = 5
"""Users have their events within this after Redis is back."""

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""A Redis that has what it acknowledged, also after `kill -9`."""

RNG = random.SystemRandom()


class Listener:
    """Remembers what the bus told it, and checks that it is told in an order that makes sense."""

    def __init__(self) -> None:
        self.on: dict[bytes, int] = {}
        self.generations: list[int] = []
        self.records: list[tuple[bytes, bytes]] = []
        self.lost = 0
        self.off: list[bytes] = []

    def record_received(self, channel: bytes, payload: bytes) -> None:
        self.records.append((channel, payload))

    def channel_on(self, channel: bytes, generation: int) -> None:
        assert channel not in self.on, "confirmed twice"
        assert not self.generations or generation >= self.generations[-1], "a generation went back"
        self.on[channel] = generation
        self.generations.append(generation)

    def channel_off(self, channel: bytes) -> None:
        self.off.append(channel)
        del self.on[channel]

    def link_lost(self) -> None:
        self.lost += 1
        self.on.clear()

    def last_active(self, channel: bytes) -> int:
        return 0

    def bodies(self, channel: bytes) -> list[bytes]:
        return [payload.partition(b"\n")[2] for heard, payload in self.records if heard == channel]


@asynccontextmanager
async def running(
    url: str, prefix: str, listener: Listener | None = None, limits: BusLimits = FAST, *, up: bool = True
) -> AsyncIterator[Bus]:
    """A bus that is up, unless `up` is False: then it was only started."""
    bus = Bus(url, Names(prefix), listener or Listener(), limits)
    await bus.start()
    try:
        if up:
            await until(lambda: bus.up, what="the bus is up")
        yield bus
    finally:
        await bus.close()


def append(server: ValkeyProcess, names: Names, user: str, body: bytes) -> None:
    """Store and publish one event, as a publisher does."""
    command = append_command(names, user, body, epoch=new_epoch(RNG), tag=new_tag(RNG))
    server.cli("EVAL", command.script.text, len(command.keys), *command.keys, *command.args)


async def heard(server: ValkeyProcess, listener: Listener, names: Names, user: str, body: bytes) -> None:
    """What is published now arrives."""
    await until(lambda: names.channel(user) in listener.on, HEALED_S, "the channel is back")
    append(server, names, user, body)
    await until(lambda: body in listener.bodies(names.channel(user)), what=f"{body!r} is heard")


async def several_attempts(bus: Bus) -> None:
    """Long enough to see that each says no more than the one before."""
    after = bus._primary.attempts + 3
    await until(lambda: bus._primary.attempts >= after, 15, "three more attempts")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def numsub(server: ValkeyProcess, channels: list[bytes]) -> list[int]:
    """How many subscribers Redis counts for each channel."""
    return list(server.cli("PUBSUB", "NUMSUB", *channels)[1::2])


def clients(server: ValkeyProcess) -> dict[str, dict[str, str]]:
    """CLIENT LIST by name; unnamed clients are left out."""
    lines = [dict(word.partition("=")[::2] for word in line.split()) for line in raw_clients(server)]
    return {line["name"]: line for line in lines if line.get("name")}


def raw_clients(server: ValkeyProcess) -> list[str]:
    listed: bytes = server.cli("CLIENT", "LIST")
    return listed.decode().splitlines()


def kill_pubsub(server: ValkeyProcess, gateway_id: str) -> None:
    """Redis cuts the subscribed connection of this gateway, and nobody else's."""
    for line in raw_clients(server):
        if f"name=tidings-{gateway_id}-pubsub" in line:
            server.cli("CLIENT", "KILL", "ID", line.split()[0].removeprefix("id="))


async def turn(times: int = 1) -> None:
    """Let the event loop go round."""
    for _ in range(times):
        await asyncio.sleep(0)


__all__ = [
    "DURABLE",
    "FAST",
    "HEALED_S",
    "NOTICED_S",
    "STEADY",
    "Listener",
    "append",
    "clients",
    "heard",
    "kill_pubsub",
    "numsub",
    "raw_clients",
    "replace",
    "running",
    "several_attempts",
    "turn",
    "warnings",
]
