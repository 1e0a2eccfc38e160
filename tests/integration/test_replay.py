"""Long replays: paged, in order, and never overtaken by what is live."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher, Message, PublishError


async def fill(publisher: AsyncPublisher, user: str, count: int, size: int) -> None:
    pad = "x" * size
    for start in range(0, count, 200):
        batch = [Message(user, "n", [number, pad]) for number in range(start, min(count, start + 200))]
        results = await publisher.publish_many(batch)
        assert not [result for result in results if isinstance(result, PublishError)]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.full)])
async def test_live_never_overtakes_replay(valkey: ValkeyProcess, prefix: str, rounds: int) -> None:
    """A backlog of 5,000, two publishers at 500/s together during the whole resume, two gateways; the connection is
    torn in the middle of the replay. Strictly ascending, none missing, none twice (purplefish-ai/factory-factory PR
    #1425)."""
    env = {**FAST_DRAIN, "TIDINGS_LOG_MAX_EVENTS": "100000"}
    rng = random.Random(5)
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env, name="one") as one,
        GatewayProcess(valkey.url, prefix=prefix, env=env, name="two") as two,
        AsyncPublisher(valkey.url, prefix=prefix, log_max_events=100_000) as publisher,
    ):
        await fill(publisher, "ann", 5000, 20)
        start = await publisher.position("ann")
        stop = asyncio.Event()
        acknowledged: list[str] = []

        async def publish(name: int) -> None:
            while not stop.is_set():
                receipt = await publisher.publish("ann", "live", name)
                acknowledged.append(str(receipt.position))
                await asyncio.sleep(0.004)  # time: the pace of the publisher

        publishing = [asyncio.create_task(publish(name)) for name in (1, 2)]
        urls = [one.ws_url, two.ws_url]
        for _ in range(rounds):
            async with Client(urls, mint("ann"), replay=5000, base_ms=1, rng=rng) as client:
                for _ in range(2):
                    seen = len(client.events)
                    await until(lambda seen=seen: len(client.events) > seen + 500, 20)
                    client.cut()
                await client.until_synced(20, connection=3)
                seqs = [int(event.id.split(".")[1].split("-")[0]) for event in client.events]
                assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
                client.check()
        stop.set()
        await asyncio.gather(*publishing)
        async with Client(urls, mint("ann"), position=start) as client:
            await client.until_synced(20)
            order = sorted(acknowledged, key=lambda position: int(position.split(".")[1].split("-")[0]))
            assert [event.id for event in client.events] == order
            client.check()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.full)])
async def test_a_huge_backlog_is_paged(valkey: ValkeyProcess, prefix: str, count: int) -> None:
    """Thousands of events of 10 kB: no reply of megabytes, memory of the gateway stays near two pages, everything
    arrives in order, and another user's live events are not held up (socketio/socket.io-redis-streams-adapter PR
    #47)."""
    env = {**FAST_DRAIN, "TIDINGS_LOG_MAX_EVENTS": "20000"}
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix, log_max_events=20_000) as publisher,
        Client(gateway.ws_url, mint("bob")) as bob,
    ):
        await bob.until_synced()
        start = await publisher.position("ann")
        await fill(publisher, "ann", count, 10_000)
        async with Client(gateway.ws_url, mint("warm-up"), replay=1) as warm:
            await warm.until_synced()
        before, peak, slowest = gateway.rss_bytes(), 0, 0.0
        async with Client(gateway.ws_url, mint("ann"), position=start) as ann:
            while len(ann.events) < count:
                peak = max(peak, gateway.rss_bytes())
                heard = len(bob.events)
                await publisher.publish("bob", "n", 1)
                begin = asyncio.get_running_loop().time()
                await bob.until_events(heard + 1)
                slowest = max(slowest, asyncio.get_running_loop().time() - begin)
            await ann.until_synced()
            assert [event.data[0] for event in ann.events] == list(range(count))
            ann.check()
        assert peak - before < 16_000_000, f"rose by {(peak - before) / 1e6:.1f} MB"
        assert slowest < 2, "another user waited for the replay"
        bob.check()
