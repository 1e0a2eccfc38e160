"""The owner of the link: what it notices, how fast, what it says, and that it comes back."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from tests.bus.support import (
    DURABLE,
    FAST,
    HEALED_S,
    NOTICED_S,
    Listener,
    heard,
    kill_pubsub,
    numsub,
    running,
    several_attempts,
    warnings,
)
from tests.support.proxy import FaultProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until
from tidings.errors import StoreUnavailable
from tidings.log.names import Names
from tidings_gateway.bus.trouble import Kind


async def test_all_channels_come_back_after_three_cuts_in_a_second(valkey: ValkeyProcess, prefix: str) -> None:
    """2,000 channels, the subscribed connection killed three times at 100 to 300 ms, in the middle of re-subscribing:
    each channel is subscribed exactly once and heard (StackExchange/StackExchange.Redis #517; centrifugal/centrifugo PR
    #163)."""
    names, listener = Names(prefix), Listener()
    channels = [names.channel(f"u{n}") for n in range(2000)]
    async with running(valkey.url, prefix, listener) as bus:
        for channel in channels:
            bus.want(channel)
        await until(lambda: len(listener.on) == 2000)
        for pause_s in (0.1, 0.3, 0.2):
            kill_pubsub(valkey, bus.gateway_id)
            await asyncio.sleep(pause_s)
        await until(lambda: len(listener.on) == 2000 and bus.up, HEALED_S)
        assert numsub(valkey, channels) == [1] * 2000
        assert listener.lost >= 2
        assert set(listener.on.values()) == {bus.generation}
        for user in ("u0", "u999", "u1999"):
            await heard(valkey, listener, names, user, b"back")


async def test_a_frozen_redis_is_noticed_and_healed(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """SIGSTOP raises nothing on any connection: the canary notices within its bound, reads fail instead of hanging, and
    after SIGCONT everything is back by itself."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess() as server:
        async with running(server.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(server, listener, names, "ann", b"before")
            server.freeze()
            frozen = time.monotonic()
            stuck = bus.read("ann", None)
            await until(lambda: not bus.up, what="noticed", deadline_s=10)
            assert time.monotonic() - frozen < NOTICED_S + BUSY_S
            assert listener.lost == 1
            with pytest.raises(StoreUnavailable) as raised:
                await stuck
            assert raised.value.retry_after_s is not None
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await bus.read("ann", None)
            bus.want(names.channel("bob"))
            await several_attempts(bus)
            server.thaw()
            await until(lambda: bus.up, HEALED_S, "healed")
            assert bus.generation == 2
            await heard(server, listener, names, "ann", b"after")
            await heard(server, listener, names, "bob", b"after")
    assert len([line for line in warnings(caplog) if "does not answer" in line]) == 1


async def test_half_open_connections_are_noticed(valkey: ValkeyProcess, prefix: str) -> None:
    """A network that swallows everything and tells nobody, for both connections."""
    names, listener = Names(prefix), Listener()
    async with FaultProxy(valkey.port) as proxy, running(proxy.url, prefix, listener) as bus:
        bus.want(names.channel("ann"))
        await until(lambda: listener.on)
        proxy.blackhole()
        begun = time.monotonic()
        await until(lambda: not bus.up, what="noticed")
        assert time.monotonic() - begun < NOTICED_S + BUSY_S
        proxy.pass_all()
        await heard(valkey, listener, names, "ann", b"after")


async def test_a_deaf_subscriber_is_noticed(valkey: ValkeyProcess, prefix: str) -> None:
    """Only the subscribed connection is swallowed: every command works, and still the link is replaced."""
    names, listener = Names(prefix), Listener()
    async with FaultProxy(valkey.port) as proxy, running(proxy.url, prefix, listener) as bus:
        bus.want(names.channel("ann"))
        await until(lambda: listener.on)
        first = bus._primary.link
        assert first is not None
        # As a socket that never becomes readable: what Redis sends stays in the kernel.
        assert first._pubsub._transport is not None
        first._pubsub._transport.pause_reading()
        assert await bus.ping() >= 0
        await until(lambda: listener.lost == 1, what="noticed")
        assert first.trouble is not None
        assert first.trouble.kind is Kind.DEAF
        await heard(valkey, listener, names, "ann", b"after")


async def test_killed_and_restarted(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """kill -9, some time of nothing, start: said once each, back by itself, what was stored is read."""
    caplog.set_level(logging.INFO)
    names, listener = Names(prefix), Listener()
    with ValkeyProcess(*DURABLE) as server:
        async with running(server.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(server, listener, names, "ann", b"before")
            await until(lambda: "is reached" in caplog.text)
            position = (await bus.read("ann", None)).top
            server.kill()
            await until(lambda: "nothing listens" in bus.why_down)
            await several_attempts(bus)
            server.restart()
            await until(lambda: bus.up, HEALED_S)
            await heard(server, listener, names, "ann", b"after")
            page = await bus.read("ann", position)
            assert [entry.body for entry in page.entries] == [b"after"]
            await until(lambda: caplog.text.count("is reached") == 2)
    said = warnings(caplog)
    assert len(said) == len(set(said)) <= 2, said


async def test_started_before_redis(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """The bus starts, says once what is missing, refuses reads, and is up soon after Redis appears."""
    names, listener = Names(prefix), Listener()
    server = ValkeyProcess()
    try:
        async with running(server.url, prefix, listener, up=False) as bus:
            bus.want(names.channel("ann"))
            await until(lambda: "nothing listens" in bus.why_down)
            assert not bus.up
            assert not bus.reached
            assert bus.lag_ms is None
            with pytest.raises(StoreUnavailable, match="nothing listens"):
                await bus.read("ann", None)
            with pytest.raises(StoreUnavailable):
                await bus.ping()
            await several_attempts(bus)
            assert len(warnings(caplog)) == 1
            server.start()
            await until(lambda: bus.up, HEALED_S)
            await heard(server, listener, names, "ann", b"first")
        assert listener.lost == 1, "only by closing: no link was ever lost"
    finally:
        server.close()


async def test_a_stalled_process_does_not_take_redis_for_dead(valkey: ValkeyProcess, prefix: str) -> None:
    """This process stands still for longer than every deadline while commands are under way: the answers are in the
    sockets, and the link stays."""
    listener = Listener()
    async with running(valkey.url, prefix, listener) as bus:
        for _ in range(3):
            link = bus._primary.link
            assert link is not None
            link._sing()
            reading = bus.read("ann", None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(FAST.canary_timeout_ms / 1000 + 0.2)  # time: a loop that stands still is the subject
            assert (await reading).top
        assert listener.lost == 0
