"""Clients that come and go beside clients that stay."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.rawsocket import RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher, Message, PublishError


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("stable", "churners", "seconds"), [(10, 30, 8), pytest.param(20, 200, 300, marks=pytest.mark.full)]
)
async def test_stable_clients_miss_nothing_while_others_churn(
    valkey: ValkeyProcess, prefix: str, stable: int, churners: int, seconds: int
) -> None:
    """Events at a steady rate to clients that stay, while others live for 5 to 50 ms, half of them ended by RST:
    the stable ones miss nothing, and afterwards descriptors and subscriptions are back where they were
    (django/channels #1683)."""
    env = {**FAST_DRAIN, "TIDINGS_SUBSCRIPTION_LINGER_MS": "200"}
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        users = [f"stable-{n}" for n in range(stable)]
        clients = [Client(gateway.ws_url, mint(user), name=user).start() for user in users]
        try:
            for client in clients:
                await client.until_synced()
            descriptors, channels = gateway.descriptors(), len(valkey.cli("PUBSUB", "CHANNELS", f"{prefix}:*"))
            stop = asyncio.Event()
            sent = 0

            async def publish() -> None:
                nonlocal sent
                while not stop.is_set():
                    begin = time.monotonic()
                    results = await publisher.publish_many([Message(user, "n", sent) for user in users])
                    assert not [result for result in results if isinstance(result, PublishError)]
                    sent += 1
                    await asyncio.sleep(max(0.0, 0.02 - (time.monotonic() - begin)))

            async def churn(number: int) -> None:
                rng = random.Random(number)
                while not stop.is_set():
                    user = rng.choice([*users, f"churn-{number}", f"churn-{rng.randrange(churners)}"])
                    raw = await RawSocket.connect(gateway.ws_url, deadline_s=20)
                    await raw.hello(mint(user))
                    await asyncio.sleep(rng.uniform(0.005, 0.05))
                    raw.reset() if rng.random() < 0.5 else raw.close()

            tasks = [asyncio.create_task(publish()), *(asyncio.create_task(churn(n)) for n in range(churners))]
            await asyncio.sleep(seconds)
            stop.set()
            await asyncio.gather(*tasks)
            for client in clients:
                await client.until_events(sent)
                assert [event.data for event in client.events] == list(range(sent))
                assert client.connections == 1
                client.check()
            await until(lambda: gateway.descriptors() == descriptors, 10, "descriptors as before")
            await until(
                lambda: len(valkey.cli("PUBSUB", "CHANNELS", f"{prefix}:*")) == channels, 10, "subscriptions as before"
            )
        finally:
            await asyncio.gather(*(client.close() for client in clients))
