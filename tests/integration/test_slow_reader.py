"""Clients that do not read: each costs its bound and nobody else anything."""

from __future__ import annotations

import asyncio
import time
from statistics import quantiles

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.rawsocket import Ended, RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher, Message

SLOW = {
    **FAST_DRAIN,
    "TIDINGS_SLOW_TIMEOUT_MS": "1500",
    "TIDINGS_SEND_BUFFER_BYTES": "16384",
    "TIDINGS_CLOSE_TIMEOUT_MS": "500",
}
"""The kernel takes megabytes for a loopback peer that has stopped reading; with a small SO_SNDBUF the test need not
send that much."""


async def stalled(gateway: GatewayProcess, user: str) -> RawSocket:
    """A client that says hello, hears synced, and then never reads again."""
    raw = await RawSocket.connect(gateway.ws_url, receive_buffer=4096)
    await raw.hello(mint(user))
    await raw.recv_until("synced")
    return raw


async def ending(raw: RawSocket, deadline_s: float = 10) -> tuple[int, str]:
    """What a stalled client finds when it reads at last."""
    try:
        return await raw.recv_close(deadline_s)
    except Ended:
        return 1006, ""


def p99(latencies: list[float]) -> float:
    return quantiles(latencies, n=100)[98]


async def test_a_stopped_reader_is_closed_1013_and_misses_nothing(valkey: ValkeyProcess, prefix: str) -> None:
    """It costs at most its bound and ends after the slow timeout; its other tab and its neighbour hear everything; back
    again, it has everything (dotnet/aspnetcore #33582)."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=SLOW) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
        Client(gateway.ws_url, mint("ann")) as other_tab,
        Client(gateway.ws_url, mint("bob")) as neighbour,
    ):
        await other_tab.until_synced()
        await neighbour.until_synced()
        position = other_tab.stored
        descriptors = gateway.descriptors()
        raw = await stalled(gateway, "ann")
        before = gateway.rss_bytes()
        pad = "x" * 2000
        begin = time.monotonic()
        for number in range(900):
            await publisher.publish("ann", "n", {"n": number, "pad": pad})
            if number % 9 == 0:
                await publisher.publish("bob", "n", number)
        await other_tab.until_events(900)
        await neighbour.until_events(100)
        await until(lambda: gateway.descriptors() <= descriptors, 10, "the stalled client is let go")
        assert gateway.rss_bytes() - before < 16_000_000
        code, reason = await ending(raw)
        assert (code, reason) in [(1013, "too slow"), (1006, "")]
        assert time.monotonic() - begin < 15
        raw.close()
        other_tab.check()
        neighbour.check()
        async with Client(gateway.ws_url, mint("ann"), position=position) as back:
            await back.until_synced()
            assert [event.data["n"] for event in back.events] == list(range(900))
            back.check()


async def test_the_1013_reaches_a_client_that_reads_late(valkey: ValkeyProcess, prefix: str) -> None:
    """Goodbye and Close stand behind what the kernel had taken, so a client that wakes in time learns why."""
    env = {**SLOW, "TIDINGS_CLOSE_TIMEOUT_MS": "8000", "TIDINGS_SUBSCRIPTION_LINGER_MS": "100"}
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        raw = await stalled(gateway, "ann")
        for number in range(400):
            await publisher.publish("ann", "n", {"n": number, "pad": "x" * 2000})
        await until(lambda: _gone(valkey, prefix, "ann"), 10, "it is let go")
        frames = []
        while True:
            frame = await raw.recv_frame(8)
            if frame.opcode == 8:
                break
            frames.append(frame.json)
        assert frame.close == (1013, "too slow")
        assert frames[-1]["type"] == "goodbye"
        assert frames[-1]["code"] == 1013
        raw.close()


def _gone(valkey: ValkeyProcess, prefix: str, user: str) -> bool:
    """Nobody of the user is connected any more: the channel is let go after the linger."""
    return bool(valkey.cli("PUBSUB", "NUMSUB", f"{prefix}:{{{user}}}")[1] == 0)


async def latencies_of(publisher: AsyncPublisher, healthy: list[Client], rounds: int, user: str) -> list[float]:
    """Seconds from publish to reception, over all healthy clients of `user`."""
    found: list[float] = []
    for number in range(rounds):
        counts = [len(client.events) for client in healthy]
        begin = time.monotonic()
        await publisher.publish(user, "n", {"n": number, "pad": "x" * 8000})
        await until(
            lambda counts=counts: all(len(client.events) > count for client, count in zip(healthy, counts, strict=True))
        )
        found += [client.events[-1].at - begin for client in healthy]
    return found


@pytest.mark.timeout(180)
async def test_stalled_readers_do_not_slow_the_healthy(valkey: ValkeyProcess, prefix: str) -> None:
    """Of many clients of a user some stop reading: the healthy get everything in time, the stalled are closed and can
    resume without loss, the publisher never waits for them (dotnet/aspnetcore #20282).

    The bound on latency is loose on purpose: these machines are shared. It catches a gateway that waits for the slow.
    """
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=SLOW) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        healthy = [Client(gateway.ws_url, mint("ann"), name=f"healthy {n}").start() for n in range(20)]
        try:
            for client in healthy:
                await client.until_synced()
            position = healthy[0].stored
            quiet = await latencies_of(publisher, healthy, 40, "ann")
            descriptors = gateway.descriptors()
            raws = [await stalled(gateway, "ann") for _ in range(5)]
            loud = await latencies_of(publisher, healthy, 200, "ann")
            await until(lambda: gateway.descriptors() <= descriptors, 10, "the stalled ones are let go")
            assert p99(loud) <= max(4 * p99(quiet), 0.5), f"p99 {p99(quiet) * 1e3:.1f} -> {p99(loud) * 1e3:.1f} ms"
            for raw in raws:
                assert (await ending(raw))[0] in (1013, 1006)
                raw.close()
            async with Client(gateway.ws_url, mint("ann"), position=position) as back:
                await back.until_synced()
                assert [event.data["n"] for event in back.events] == [*range(40), *range(200)]
                back.check()
            for client in healthy:
                client.check()
        finally:
            await asyncio.gather(*(client.close() for client in healthy))


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("sockets", "seconds"), [(30, 4), pytest.param(200, 60, marks=pytest.mark.full)])
async def test_memory_for_frozen_peers_is_bounded(
    valkey: ValkeyProcess, prefix: str, sockets: int, seconds: int
) -> None:
    """Sockets that never read after the handshake while 5 MB/s are aimed at them: memory rises by no more than the
    documented bound for each, and all are closed (aio-libs/aiohttp #1367)."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=SLOW) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix, log_max_events=100) as publisher,
    ):
        raws = [await stalled(gateway, f"user-{n}") for n in range(sockets)]
        before = gateway.rss_bytes()
        peak = before
        users = [f"user-{n}" for n in range(sockets)]
        end = time.monotonic() + seconds
        pad = "x" * 5000
        while time.monotonic() < end:
            turn = time.monotonic()
            await publisher.publish_many([Message(user, "n", pad) for user in users])
            peak = max(peak, gateway.rss_bytes())
            await asyncio.sleep(max(0.0, sockets * 5000 / 5e6 - (time.monotonic() - turn)))
        bound = sockets * (262_144 + 65_536 + 32_768) + 24_000_000
        assert peak - before <= bound, f"rose by {(peak - before) / 1e6:.1f} MB, bound {bound / 1e6:.1f} MB"
        for raw in raws:
            assert (await ending(raw))[0] in (1013, 1006, 4408)
            raw.close()


async def test_a_burst_to_a_healthy_client_arrives_whole(valkey: ValkeyProcess, prefix: str) -> None:
    """5,000 events of 200 bytes at once, five times what the log keeps by default: in order, no 1013, no resync."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=FAST_DRAIN) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
        Client(gateway.ws_url, mint("ann")) as client,
    ):
        await client.until_synced()
        pad = "x" * 150
        for start in range(0, 5000, 500):
            await publisher.publish_many([Message("ann", "n", [number, pad]) for number in range(start, start + 500)])
        await client.until_events(5000, 20)
        assert [event.data[0] for event in client.events] == list(range(5000))
        assert client.connections == 1
        assert client.resyncs == []
        client.check()
