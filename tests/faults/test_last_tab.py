"""The last tab of a user closes while a new one opens: the subscription belongs to whoever is there."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.faults.scene import PATIENT
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.proxy import FaultProxy
from tests.support.rawsocket import RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

USERS = 5


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turns", [200, pytest.param(10_000, marks=pytest.mark.full)])
async def test_a_new_tab_is_always_subscribed(valkey: ValkeyProcess, prefix: str, turns: int) -> None:
    """With no linger, and 3 ms of network on the way to Redis, so that SUBSCRIBE and UNSUBSCRIBE of one channel meet:
    each new tab hears, live, what is published once it is synced. In the end Redis counts one subscriber per user with
    a tab, and none when all are closed (redisson/redisson #61; louischatriot/node-redis-pubsub #40).

    The same on the bus alone, 10,000 times in each run: `tests/bus/test_bus.py`."""
    env = {**FAST_DRAIN, **PATIENT, "TIDINGS_SUBSCRIPTION_LINGER_MS": "0"}
    users = [f"user-{number}" for number in range(USERS)]
    channels = [f"{prefix}:{{{user}}}" for user in users]

    def subscribers() -> list[int]:
        return [int(count) for count in valkey.cli("PUBSUB", "NUMSUB", *channels)[1::2]]

    async def tab(user: str) -> RawSocket:
        raw = await RawSocket.connect(gateway.ws_url, deadline_s=30)
        await raw.hello(mint(user))
        return raw

    async def go_on(user: str) -> RawSocket:
        rng = random.Random(user)
        old = await tab(user)
        await old.recv_until("synced", 30)
        for turn in range(turns // USERS):
            opening = asyncio.ensure_future(tab(user))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(0, 0.008))
            old.reset() if rng.random() < 0.5 else old.close()
            new = await opening
            await new.recv_until("synced", 30)
            receipt = await publisher.publish(user, "n", turn)
            assert receipt.listening == 1
            frame = await new.recv_json(30)
            assert (frame["type"], frame["id"], frame["data"]) == ("event", receipt.position, turn)
            old = new
        return old

    async with (
        FaultProxy(valkey.port) as proxy,
        GatewayProcess(proxy.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix, deadline_s=20) as publisher,
    ):
        proxy.delay(3, "up")
        tabs = await asyncio.gather(*(go_on(user) for user in users))
        assert subscribers() == [1] * USERS
        for raw in tabs:
            raw.close()
        await until(lambda: subscribers() == [0] * USERS, 15)
