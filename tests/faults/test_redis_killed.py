"""Redis is killed and comes back: with everything, without its last second, without anything."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.scene import DURABLE, Scene, Way, scene
from tests.support.ledger import Outcome
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("users", "away_s", "way"),
    [
        (15, 2.5, "http"),
        pytest.param(50, 3.0, "http", marks=pytest.mark.full),
        pytest.param(50, 5.0, "redis", marks=pytest.mark.full),
    ],
)
async def test_killed_and_restarted_while_publishers_repeat(prefix: str, users: int, away_s: float, way: Way) -> None:
    """`kill -9` under 200 events/s that are repeated until they are acknowledged, before, during and at the very moment
    of the return. Publishers are told 503 with Retry-After or nothing worse than 'unknown'; sockets stay open and their
    heartbeats go on; /readyz says it; what was acknowledged arrives once, in order, without a resync, and 5 s after the
    return everybody has live events (redis/redis-py #2089, #1573; miguelgrinberg/python-socketio #143;
    django/channels_redis #256; slact/nchan #442)."""
    with ValkeyProcess(*DURABLE) as store:
        async with scene(store, prefix, users=users) as stage:
            async with stage.publishing(200, way, retry=True):
                await stage.until_live(time.monotonic())
                store.kill()
                killed = time.monotonic()
                await stage.until_ready(False)
                assert (await stage.http.get("/livez")).status_code == 200
                await stage.until_heartbeats()
                await asyncio.sleep(max(0.0, killed + away_s - time.monotonic()))
                await asyncio.to_thread(store.start)
                await stage.until_live(time.monotonic())
                await stage.until_ready(True)
            assert set(stage.answers) <= {"200", "503"}
            assert stage.answers["503"] >= 1 or way == "redis"
            await stage.judge()


async def test_what_could_not_be_stored_was_never_seen(prefix: str) -> None:
    """Publishers that give up at once: what they were told has failed reaches nobody, then or later."""
    with ValkeyProcess(*DURABLE) as store:
        async with scene(store, prefix, users=3) as stage:
            for user in stage.by_user:
                assert await stage.publish(user) is Outcome.ACKNOWLEDGED
            store.kill()
            failed = await asyncio.gather(*(stage.publish(user) for user in stage.by_user))
            assert set(failed) == {Outcome.FAILED}
            await asyncio.to_thread(store.start)
            back = time.monotonic()
            async with stage.publishing(50, retry=True):
                await stage.until_live(back)
            await stage.judge()


async def test_the_power_fails_and_the_last_second_is_gone(prefix: str) -> None:
    """`appendfsync everysec` and a machine that loses its power: pages are ahead of their logs. Each is told so, by
    `ahead`, as soon as Redis is back and without a new event; none waits at its old position for the log to pass it,
    which would swallow what comes under those numbers (redis/redis-py #2089)."""
    with ValkeyProcess("--appendonly", "yes", "--appendfsync", "everysec") as store:
        (written,) = (store.directory / "appendonlydir").glob("*.incr.aof")
        async with scene(store, prefix, users=10) as stage:
            for _ in range(5):
                await _to_all(stage)
            await until(lambda: all(len(client.events) == 5 for client in stage.clients))
            on_disk = await _size_at_rest(written)
            for _ in range(3):
                await _to_all(stage)
            await until(lambda: all(len(client.events) == 8 for client in stage.clients))
            store.kill()
            with written.open("ab") as file:
                file.truncate(on_disk)
            await asyncio.to_thread(store.start)
            await until(lambda: all(client.resyncs for client in stage.clients), 15, "everybody is told")
            back = time.monotonic()
            async with stage.publishing(50, retry=True):
                await stage.until_live(back)
            assert {tuple(resync.reason for resync in client.resyncs) for client in stage.clients} == {("ahead",)}
            await stage.judge(resyncs_allowed=True)


async def test_it_comes_back_empty(prefix: str) -> None:
    """Nothing was kept: every page is told to fetch its state, once, and hears what comes then."""
    with ValkeyProcess() as store:
        async with scene(store, prefix, users=10) as stage:
            await _to_all(stage)
            await until(lambda: all(client.events for client in stage.clients))
            store.restart(kill=True)
            back = time.monotonic()
            async with stage.publishing(50, retry=True):
                await stage.until_live(back)
            assert {tuple(resync.reason for resync in client.resyncs) for client in stage.clients} == {("epoch",)}
            await stage.judge(resyncs_allowed=True)


async def _to_all(stage: Scene) -> None:
    outcomes = await asyncio.gather(*(stage.publish(user) for user in stage.by_user))
    assert set(outcomes) == {Outcome.ACKNOWLEDGED}


async def _size_at_rest(path: Path) -> int:
    """What a file has when nobody writes to it any more."""
    sizes = [-1]

    def settled() -> bool:
        sizes.append(path.stat().st_size)
        return sizes[-1] == sizes[-2]

    await until(settled, 10, every_s=0.1)
    return sizes[-1]
