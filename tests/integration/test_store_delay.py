"""A Redis that answers late: what happens between SUBSCRIBE, read and the draining of held events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.proxy import FaultProxy
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

DELAY_MS = 200


@asynccontextmanager
async def behind_a_proxy(
    valkey: ValkeyProcess, prefix: str, **env: str
) -> AsyncIterator[tuple[GatewayProcess, FaultProxy]]:
    """The gateway reaches its Redis through the proxy; publishers reach it directly."""
    async with (
        FaultProxy(valkey.port) as proxy,
        GatewayProcess(proxy.url.replace("http", "redis"), prefix=prefix, env={**FAST_DRAIN, **env}) as gateway,
    ):
        yield gateway, proxy


async def keep_publishing(publisher: AsyncPublisher, until_set: asyncio.Event, every_s: float = 0.005) -> list[str]:
    """Publish to ann until told to stop; the acknowledged positions, in order."""
    positions: list[str] = []
    while not until_set.is_set():
        receipt = await publisher.publish("ann", "n", len(positions))
        positions.append(str(receipt.position))
        await asyncio.sleep(every_s)
    return positions


async def test_events_around_subscribe_read_and_drain_arrive_once_in_order(
    valkey: ValkeyProcess, prefix: str, publisher: AsyncPublisher
) -> None:
    """Replies held 200 ms; the publisher never stops. Ten connections, each exact."""
    async with behind_a_proxy(valkey, prefix) as (gateway, proxy):
        stop = asyncio.Event()
        publishing = asyncio.create_task(keep_publishing(publisher, stop))
        proxy.delay(DELAY_MS, "down")
        async with Client(gateway.ws_url, mint("ann"), base_ms=1, cap_ms=1) as client:
            for connection in range(1, 11):
                await client.until_synced(connection=connection)
                client.cut()
            await client.until_synced(connection=11)
            stop.set()
            positions = await publishing
            await until(lambda: client.position == positions[-1])
            first = positions.index(client.events[0].id)
            assert [event.id for event in client.events] == positions[first:]
            assert client.resyncs == []
            client.check()


async def test_more_held_than_the_bound_is_read_from_the_log(
    valkey: ValkeyProcess, prefix: str, publisher: AsyncPublisher
) -> None:
    """While a page is under way more is heard than may be held: it is forgotten and read again, in order, once."""
    bounds = {"TIDINGS_HELD_EVENTS": "5", "TIDINGS_PAGE_EVENTS": "20"}
    async with behind_a_proxy(valkey, prefix, **bounds) as (gateway, proxy):
        earlier = [str((await publisher.publish("ann", "n", number)).position) for number in range(30)]
        proxy.delay(DELAY_MS, "down")
        async with Client(gateway.ws_url, mint("ann"), replay=30) as client:
            stop = asyncio.Event()
            publishing = asyncio.create_task(keep_publishing(publisher, stop))
            await until(lambda: len(client.events) >= 60, 20)
            stop.set()
            positions = await publishing
            await until(lambda: client.position == positions[-1])
            await client.until_synced()
            every = earlier + positions
            assert [event.id for event in client.events] == every[every.index(client.events[0].id) :]
            client.check()


@pytest.mark.parametrize("way", ["reset", "kill pubsub"])
async def test_a_link_cut_while_a_page_is_in_flight(
    valkey: ValkeyProcess, prefix: str, publisher: AsyncPublisher, way: str
) -> None:
    """The session is not closed, nothing is missed, nothing comes twice."""
    async with behind_a_proxy(valkey, prefix) as (gateway, proxy):
        stop = asyncio.Event()
        async with Client(gateway.ws_url, mint("ann")) as client:
            await client.until_synced()
            publishing = asyncio.create_task(keep_publishing(publisher, stop))
            proxy.delay(DELAY_MS, "down")
            for _ in range(4):
                if way == "reset":
                    proxy.reset()
                else:
                    for line in valkey.cli("CLIENT", "LIST", "TYPE", "pubsub").splitlines():
                        if b"prefix" not in line:
                            valkey.cli("CLIENT", "KILL", "ID", line.split(b" ")[0].removeprefix(b"id="))
                heard = len(client.events)
                # A read is on its way as soon as the subscription is confirmed again; the next cut meets it there.
                await until(lambda heard=heard: len(client.events) > heard, 15, "events flow again")
            stop.set()
            positions = await publishing
            await until(lambda: client.position == positions[-1], 15)
            assert [event.id for event in client.events] == positions
            assert client.connections == 1
            assert client.resyncs == []
            client.check()


async def test_a_session_that_opens_while_replies_are_held_waits_or_is_told(
    valkey: ValkeyProcess, prefix: str, publisher: AsyncPublisher
) -> None:
    """A store that does not answer in time is 1013 with a time to come back, never 4401 and never a false welcome."""
    async with behind_a_proxy(valkey, prefix, TIDINGS_STORE_WAIT_MS="500") as (gateway, proxy):
        async with Client(gateway.ws_url, mint("ann")) as warm:
            await warm.until_synced()
        proxy.hold("down")
        async with Client(gateway.ws_url, mint("bob"), base_ms=100) as client:
            await until(lambda: bool(client.closes))
            assert client.closes[0].code == 1013
            assert client.closes[0].goodbye is not None
            assert client.welcomes == []
            proxy.release("down")
            await client.until_synced(15)
            client.check()
