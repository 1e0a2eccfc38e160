"""A slow, uneven network to Redis that tears connections.

A network that only delays, down to the moment between SUBSCRIBE and the read: `tests/integration/test_store_delay.py`.
"""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.faults.scene import scene
from tests.support.proxy import FaultProxy
from tests.support.scraped import scrape, until_told
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("users", "seconds"), [(10, 3.5), pytest.param(50, 60.0, marks=pytest.mark.full)])
async def test_slow_uneven_and_torn(prefix: str, users: int, seconds: float) -> None:
    """300 ms of delay that jumps about, and a reset in the middle of some answer every second: nothing is lost or seen
    twice, no page is closed, and afterwards there is one link with one subscription per user, whatever attempts
    overlapped (redis/redis-py #1573; StackExchange/StackExchange.Redis #517)."""
    rng = random.Random(25)
    with ValkeyProcess() as store:
        async with (
            FaultProxy(store.port) as proxy,
            scene(store, prefix, users=users, redis_url=proxy.url) as stage,
        ):
            channels = [f"{prefix}:{{{user}}}" for user in stage.by_user]
            async with stage.publishing(100):
                proxy.delay(300, "down")
                await until_told(
                    stage.gateway.admin_url,
                    lambda told: told["tidings_bus_lag_seconds"] >= 0.2,
                    "a canary has gone through it",
                )
                end, torn = time.monotonic() + seconds, 0
                while time.monotonic() < end:
                    for _ in range(10):
                        proxy.delay(rng.uniform(200, 400), "down")
                        await asyncio.sleep(rng.uniform(0.05, 0.15))
                    proxy.cut_after(rng.randrange(2000), "down")
                    torn += 1
                proxy.pass_all()
                await stage.until_live(time.monotonic())
            told = await scrape(stage.gateway.admin_url)
            assert 1 <= told["tidings_bus_resubscribes_total"] <= torn
            await until(lambda: [int(n) for n in store.cli("PUBSUB", "NUMSUB", *channels)[1::2]] == [1] * users, 10)
            assert store.cli("CLIENT", "LIST", "TYPE", "pubsub").count(b"-pubsub ") == 1
            await stage.judge()
