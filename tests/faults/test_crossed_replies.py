"""Clients go away while Redis is being asked on their behalf. Nobody ever gets the answer to another one's question."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time

import httpx
import pytest

from tests.faults.scene import KEY, PATIENT, POOLED
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.proxy import FaultProxy
from tests.support.rawsocket import RawSocket
from tests.support.scraped import Scraped, until_told
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tidings import AsyncPublisher

LINKED = 2
"""Connections of a gateway to Redis, however many clients it has: one that listens, one that asks."""

PUBLISHERS = 8

ENOUGH = 20
"""Of each kind, whatever the time: pages that stayed, pages that left, publishers that got an answer."""


def _at_rest(told: Scraped) -> bool:
    return told["tidings_connections"] == told["tidings_catchup_reads"] == 0


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(500)
@pytest.mark.parametrize(("users", "seconds"), [(40, 2.5), pytest.param(200, 300.0, marks=pytest.mark.full)])
async def test_every_reply_reaches_its_asker(valkey: ValkeyProcess, prefix: str, users: int, seconds: float) -> None:
    """Behind 20 ms of network to Redis, pages come for their last event again and again and half of them are torn away
    1 to 30 ms after they asked, while publishers over HTTP give up in the same way: every page gets its own event,
    every publisher a position in its own user's log, and the gateway neither complains nor opens a further connection
    (redis/redis-py #2624, #2665, #2722; aio-libs-abandoned/aioredis-py #1217)."""
    names = [f"user-{number}" for number in range(users)]
    end = time.monotonic() + seconds
    asked = answered = published = 0

    def over() -> bool:
        return time.monotonic() >= end and min(answered, asked - answered, published) >= ENOUGH

    async def page(user: str) -> None:
        nonlocal asked, answered
        rng = random.Random(user)
        while not over():
            async with await RawSocket.connect(gateway.ws_url, deadline_s=30) as raw:
                await raw.hello(mint(user), replay=1)
                asked += 1
                if rng.random() < 0.5:
                    await asyncio.sleep(rng.uniform(0.001, 0.03))
                    raw.reset()
                    continue
                frames = await raw.recv_until("synced", 30)
                # More than one, when another was published meanwhile.
                owners = {frame["data"] for frame in frames if frame["type"] == "event"}
                assert (frames[0]["user"], owners) == (user, {user})
                assert frames[-1]["position"].startswith(epochs[user])
                answered += 1

    async def publish(number: int) -> None:
        nonlocal published
        rng = random.Random(number)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30, headers=KEY) as http:
            while not over():
                user = rng.choice(names)
                patience_s = rng.uniform(0.001, 0.03) if rng.random() < 0.5 else 30
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(patience_s):
                        answer = await http.post("/v1/publish", json={"user": user, "event": "n", "data": user})
                        assert answer.status_code in (200, 503), answer.text  # 503: too slow a machine.
                        if answer.status_code == 200:
                            assert answer.json()["id"].startswith(epochs[user])
                            published += 1

    async with FaultProxy(valkey.port) as proxy, AsyncPublisher(valkey.url, prefix=prefix) as publisher:
        async with GatewayProcess(proxy.url, prefix=prefix, env={**FAST_DRAIN, **PATIENT}) as gateway:
            epochs = {}
            for user in names:
                receipt = await publisher.publish(user, "n", user)
                epochs[user] = f"{receipt.position}".partition(".")[0] + "."
            proxy.delay(10)
            end = time.monotonic() + seconds
            async with asyncio.TaskGroup() as group:
                for user in names:
                    group.create_task(page(user))
                for number in range(PUBLISHERS):
                    group.create_task(publish(number))
            proxy.pass_all()
            told = await until_told(gateway.admin_url, _at_rest, "nobody is there and nothing is asked any more")
            assert told["tidings_bus_resubscribes_total"] == 0
            # A publisher that gave up does not cut its command short: its connection is given back whole.
            assert proxy.accepted <= LINKED + POOLED
        for user in names:
            bodies = [fields[b"b"] for _, fields in valkey.cli("XRANGE", f"{prefix}:{{{user}}}:log", "-", "+")]
            assert {json.loads(body)["data"] for body in bodies} == {user}


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("clients", [150, pytest.param(2000, marks=pytest.mark.full)])
async def test_a_storm_of_disconnects_while_all_are_read_for(valkey: ValkeyProcess, prefix: str, clients: int) -> None:
    """All ask at the same moment, Redis' answers are held back, and all are gone before they come: the two connections
    to Redis stay, nothing waits in them, and who comes next gets what is his (redis/redis-py #2665)."""
    async with (
        FaultProxy(valkey.port) as proxy,
        GatewayProcess(proxy.url, prefix=prefix, env={**FAST_DRAIN, **PATIENT}) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        users = [f"user-{number}" for number in range(clients)]
        for user in users[:20]:
            await publisher.publish(user, "n", user)
        sockets = []
        for start in range(0, clients, 50):
            group = (RawSocket.connect(gateway.ws_url, deadline_s=30) for _ in users[start : start + 50])
            sockets += await asyncio.gather(*group)
        proxy.hold("down")
        for user, raw in zip(users, sockets, strict=True):
            await raw.hello(mint(user), replay=1)
        await until_told(gateway.admin_url, lambda told: told["tidings_catchup_reads"] > 0, "reads are under way", 30)
        for raw in sockets:
            raw.reset()
        await until_told(gateway.admin_url, lambda told: told["tidings_connections"] == 0, "all are gone", 30)
        proxy.delay(50, "down")
        proxy.release("down")
        for user in users[:20]:
            raw = await RawSocket.connect(gateway.ws_url, deadline_s=30)
            await raw.hello(mint(user), replay=1)
            frames = await raw.recv_until("synced", 30)
            assert [frame["data"] for frame in frames if frame["type"] == "event"] == [user]
            raw.close()
        proxy.pass_all()
        told = await until_told(gateway.admin_url, _at_rest, "nothing is asked any more")
        assert told["tidings_bus_resubscribes_total"] == 0
        assert proxy.accepted == LINKED
