"""Redis stands still and its connections stay open: nothing raises, and only a clock can tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.faults.scene import DURABLE, QUICK, scene
from tests.support.ledger import Outcome
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync

Stop = Callable[[ValkeyProcess, float], Callable[[], None]]


def sigstop(store: ValkeyProcess, lasts_s: float) -> Callable[[], None]:
    """The process is stopped; the kernel goes on to accept connections and bytes for it."""
    store.freeze()
    return store.thaw


def client_pause(store: ValkeyProcess, lasts_s: float) -> Callable[[], None]:
    """It takes commands and answers none."""
    store.cli("CLIENT", "PAUSE", int(lasts_s * 1000), "ALL")
    return lambda: None


def debug_sleep(store: ValkeyProcess, lasts_s: float) -> Callable[[], None]:
    """One slow command, from a connection that waits for it. Returns when it runs."""
    kind: Any = redis.Connection  # its maker has no types
    slow = kind(host=store.host, port=store.port, socket_timeout=lasts_s + 30)
    slow.send_command("DEBUG", "SLEEP", lasts_s)

    def asleep() -> bool:
        with redis.Redis(host=store.host, port=store.port, socket_timeout=0.1, retry=Retry(NoBackoff(), 0)) as client:
            try:
                client.ping()
            except redis.exceptions.TimeoutError:
                return True
            return False

    until_sync(asleep)

    def awake() -> None:
        slow.read_response()
        slow.disconnect()

    return awake


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("stop", "lasts_s"),
    [
        (sigstop, 3.5),
        pytest.param(sigstop, 10.0, marks=pytest.mark.full),
        pytest.param(client_pause, 5.0, marks=pytest.mark.full),
        pytest.param(debug_sleep, 5.0, marks=pytest.mark.full),
    ],
)
async def test_it_stands_still_and_goes_on(prefix: str, stop: Stop, lasts_s: float) -> None:
    """The canary tells before the fault is over, and /readyz with it; pages stay connected and get their heartbeats. A
    publisher is told 'unknown', never 'stored', and repeats under the same key; the commands it left in Redis' sockets
    run late, all of them, and its event is stored once all the same (what a pub/sub client of redis-py cannot notice:
    redis/redis-py #2089)."""
    with ValkeyProcess(*DURABLE) as store:
        async with scene(store, prefix, users=8, env=QUICK) as stage:
            for user in stage.by_user:
                assert await stage.publish(user) is Outcome.ACKNOWLEDGED
            began = time.monotonic()
            go_on = stop(store, lasts_s)
            outcomes = asyncio.gather(*(stage.publish(user) for user in stage.by_user))
            over_http = asyncio.gather(*(stage.publish(user, "http") for user in stage.by_user))
            await stage.until_ready(False, lasts_s)
            await stage.until_heartbeats()
            assert set(await outcomes) == {Outcome.UNKNOWN}
            assert set(await over_http) == {Outcome.UNKNOWN}
            assert time.monotonic() - began < lasts_s, "the machine was too slow for this to mean anything"
            await asyncio.sleep(began + lasts_s - time.monotonic())
            await asyncio.to_thread(go_on)
            back = time.monotonic()
            async with stage.publishing(100, retry=True):
                await stage.until_live(back)
            await stage.until_ready(True)
            await stage.judge()
            unknown = {key for key, entry in stage.ledger.entries.items() if entry.outcome is Outcome.UNKNOWN}
            received = {event.data["key"] for client in stage.clients for event in client.events}
            # A paused Redis forgets the commands of those who leave meanwhile.
            if stop is not client_pause:
                assert unknown <= received, "the commands that were left behind did not run: nothing was tried"
