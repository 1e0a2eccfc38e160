"""Redis has no memory left: it refuses, or it throws away what is a user's log.

What `tidings check` says of such a Redis: `tests/integration/test_check_redis.py`.
"""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
import redis

from tests.faults.scene import Scene, scene
from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Outcome
from tests.support.scraped import scrape, until_told
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher


async def _told_that_it_is_full(stage: Scene) -> httpx.Response:
    answer = await stage.http.post("/v1/publish", json={"user": "user-0", "event": "n", "data": "never seen"})
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_full")
    assert answer.json()["outcome_unknown"] is False
    assert int(answer.headers["retry-after"]) >= 1
    return answer


@pytest.mark.may_block(reason="the HTTP client reads certificates")
async def test_full_and_refusing(prefix: str) -> None:
    """`maxmemory` under `noeviction`: publishers get 503 `storage_full` and no page ever sees the event, though PUBLISH
    would still work; pages stay; one that comes back is served from the log; gauge and log say it, once; with room
    again all goes on."""
    with ValkeyProcess("--maxmemory-policy", "noeviction") as store:
        async with scene(store, prefix, users=6) as stage:
            for user in stage.by_user:
                assert await stage.publish(user) is Outcome.ACKNOWLEDGED
            await until(lambda: all(client.events for client in stage.clients))
            store.cli("CONFIG", "SET", "maxmemory", "1")
            directly = [stage.publish(user) for user in stage.by_user]
            through = [stage.publish(user, "http") for user in stage.by_user]
            assert set(await asyncio.gather(*directly, *through)) == {Outcome.FAILED}
            await _told_that_it_is_full(stage)
            async with Client(stage.gateway.ws_url, mint("user-0"), replay=5) as late:
                await late.until_synced()
                assert [event.id for event in late.events] == [event.id for event in stage.by_user["user-0"][0].events]
                late.cut()
                await late.until_synced(connection=2)
                assert late.resyncs == []
            await until_told(
                stage.gateway.admin_url, lambda told: told["tidings_redis_writes_refused"] == 1, "the gauge says it"
            )
            assert (await scrape(stage.gateway.admin_url))["tidings_redis_up"] == 1
            store.cli("CONFIG", "SET", "maxmemory", "0")
            async with stage.publishing(50):
                await stage.until_live(time.monotonic())
            await stage.judge()
            assert stage.gateway.log.count("takes no writes") == 1
            assert not [event for client in stage.clients for event in client.events if event.data == "never seen"]


@pytest.mark.may_block(reason="the HTTP client reads certificates")
async def test_evicted(prefix: str) -> None:
    """`volatile-lru` throws a whole log away, since logs expire and so may be evicted: the page that comes back for the
    rest is told to resync, and that is counted; it never gets a log that begins anew as the continuation of the old."""
    with ValkeyProcess("--maxmemory-policy", "volatile-lru") as store:
        async with (
            GatewayProcess(store.url, prefix=prefix) as gateway,
            AsyncPublisher(store.url, prefix=prefix) as publisher,
        ):
            async with Client(gateway.ws_url, mint("ann")) as client:
                await client.until_synced()
                await publisher.publish("ann", "n", 0)
                await client.until_events(1)
                position = client.stored
            for number in range(1, 4):
                await publisher.publish("ann", "n", number)
            _fill_until_gone(store, f"{prefix}:{{ann}}:log", f"{prefix}:{{ann}}:meta")
            await publisher.publish("ann", "n", 4)
            async with Client(gateway.ws_url, mint("ann"), position=position) as client:
                await client.until_synced()
                assert [resync.reason for resync in client.resyncs] == ["epoch"]
                await publisher.publish("ann", "n", 5)
                await client.until_events(1)
                assert [event.data for event in client.events] == [5]
                client.check()
            told = await scrape(gateway.admin_url)
            assert told.by("tidings_resyncs_total", "reason") == {"epoch": 1}


def _fill_until_gone(store: ValkeyProcess, *keys: str) -> None:
    """Write what may not be evicted until Redis has evicted these, and give it its memory back."""
    used = int(store.cli("INFO", "memory")["used_memory"])
    store.cli("CONFIG", "SET", "maxmemory", used + 1_000_000)
    for number in range(200):
        if not store.cli("EXISTS", *keys):
            break
        try:
            store.cli("SET", f"filler:{number}", "x" * 20_000)
        except redis.exceptions.OutOfMemoryError:
            break
    assert not store.cli("EXISTS", *keys), "nothing was evicted"
    store.cli("CONFIG", "SET", "maxmemory", 0)
