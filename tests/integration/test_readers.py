"""Many readers of one gateway: whose answer is whose, and what an idle link is worth when everybody comes at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.proxy import FaultProxy, abort
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

READERS = 200
NETWORK_MS = 10
"""Each way, between the gateway and Redis: long enough to leave in the middle of a read."""


class Crowd:
    """Users who resume again and again; every other time they are gone 1 to 30 ms after they have asked."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url = url
        self.end = time.monotonic() + seconds
        self.rng = random.Random(20)
        self.answered = 0
        self.left = 0
        self.wrong: list[str] = []

    async def run(self) -> None:
        await asyncio.gather(*(self._reader(f"u{number}") for number in range(READERS)))

    async def _reader(self, user: str) -> None:
        token = mint(user)
        while time.monotonic() < self.end:
            async with connect(
                self.url, subprotocols=[websockets.Subprotocol("tidings.v1")], compression=None, ping_interval=None
            ) as ws:
                await ws.send(json.dumps({"type": "hello", "token": token, "replay": 3}))
                if self.rng.random() < 0.5:
                    await asyncio.sleep(self.rng.uniform(0.001, 0.03))
                    self.left += 1
                    abort(ws.transport)
                else:
                    await self._listen(user, ws)

    async def _listen(self, user: str, ws: Any) -> None:
        owners = []
        with contextlib.suppress(ConnectionClosed):
            while (frame := json.loads(await ws.recv()))["type"] != "synced":
                if frame["type"] == "event":
                    owners.append(frame["data"]["owner"])
            self.answered += 1
            if owners != [user] * 3:
                self.wrong.append(f"{user} got events of {owners}")


@pytest.mark.parametrize("seconds", [4, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(400)])])
async def test_no_answer_reaches_somebody_else(valkey: ValkeyProcess, prefix: str, seconds: float) -> None:
    """200 users behind 20 ms of network resume in a loop, half of them leaving while their read is on the wire: every
    payload reaches its owner, all three of them each time, and the link is never given up (redis/redis-py #2624,
    #2665)."""
    async with AsyncPublisher(valkey.url, prefix=prefix, deadline_s=15) as publisher:
        users = [f"u{number}" for number in range(READERS)]
        await asyncio.gather(*(publisher.publish(user, "n", {"owner": user}) for user in users * 3))
    async with (
        FaultProxy(valkey.port) as proxy,
        GatewayProcess(proxy.url, prefix=prefix, env=FAST_DRAIN) as gateway,
    ):
        proxy.delay(NETWORK_MS)
        crowd = Crowd(gateway.ws_url, seconds)
        await crowd.run()
        assert crowd.wrong == []
        assert crowd.answered > READERS, "too slow a machine for this to mean much"
        assert crowd.left > READERS
        assert "trying again until it works" not in gateway.log
        assert '"level":"error"' not in gateway.log


@pytest.mark.parametrize(
    ("idle_s", "settings"),
    [
        (3, {"TIDINGS_REDIS_TIMEOUT_MS": "500", "TIDINGS_CANARY_INTERVAL_MS": "200"}),
        pytest.param(60, {}, marks=pytest.mark.full),
    ],
)
async def test_an_idle_link_is_kept_and_takes_everybody_at_once(
    valkey: ValkeyProcess, prefix: str, idle_s: float, settings: dict[str, str]
) -> None:
    """With nothing published for many time-outs no connection is replaced and nothing is said; then 500 clients resume
    within a moment and 1,000 events are published at once: all succeed, over the same two connections (redis/redis-py
    #4098, #2517)."""
    env = {**FAST_DRAIN, **settings, "TIDINGS_CANARY_TIMEOUT_MS": "4000"}
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix, deadline_s=15) as publisher,
        contextlib.AsyncExitStack() as stack,
    ):
        async with Client(gateway.ws_url, mint("idle")) as idle:
            await idle.until_synced()
            before, said = links(valkey), gateway.log
            assert len(before) == 2
            await asyncio.sleep(idle_s)  # time: that nothing happens meanwhile is the requirement
            after = links(valkey)
            assert after.keys() == before.keys()
            assert all(after[name] >= before[name] + int(idle_s) - 1 for name in before)
            assert gateway.log == said
            assert idle.connections == 1

        users = [f"u{n}" for n in range(500)]
        starts = await asyncio.gather(*(publisher.publish(user, "n", 0) for user in users))
        clients = [
            Client(gateway.ws_url, mint(user), position=at.position) for user, at in zip(users, starts, strict=True)
        ]
        for client in clients:
            await stack.enter_async_context(client)
        receipts = await asyncio.gather(*(publisher.publish(f"u{n % 500}", "n", n) for n in range(1_000)))
        assert len({receipt.position for receipt in receipts}) == 1_000
        await until(lambda: all(len(client.events) == 2 for client in clients), 30, every_s=0.05)
        assert [client.welcomes[0]["resumed"] for client in clients] == [True] * 500
        assert {client.connections for client in clients} == {1}
        for client in clients:
            client.check()
        assert links(valkey).keys() == before.keys()


def links(server: ValkeyProcess) -> dict[str, int]:
    """Connections of the gateway by id, and how old each is in seconds. Only this test's gateway has the newest two."""
    lines = server.cli("CLIENT", "LIST").decode().splitlines()
    found = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    ours = [
        line
        for line in found
        if line["name"].startswith("tidings-") and line["name"].endswith(("-commands", "-pubsub"))
    ]
    return {line["id"]: int(line["age"]) for line in ours}
