"""Three gateways behind the nginx of `deploy/`, restarted one after the other under load.

A gateway that leaves must neither take newcomers nor be gone before they know (kubernetes/kubernetes #86280).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

import pytest

from tests.integration.landings import Leaving, Traced, Workload, watch_leaving
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Ledger
from tests.support.nginx import NginxProcess, needs_nginx
from tests.support.tokens import API_KEY, mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

pytestmark = [needs_nginx(), pytest.mark.may_block(reason="the HTTP client of the test reads certificates")]

CONNECTING_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Size:
    clients: int
    events_per_s: float
    grace_ms: int
    window_ms: int
    retry_ms: int
    bucket_ms: int
    """In none of them may more than three times the mean be told to go."""

    @property
    def env(self) -> dict[str, str | None]:
        return {
            "TIDINGS_DRAIN_GRACE_MS": str(self.grace_ms),
            "TIDINGS_DRAIN_WINDOW_MS": str(self.window_ms),
            "TIDINGS_RETRY_MS": str(self.retry_ms),
        }


async def _rolling_restart(valkey: ValkeyProcess, prefix: str, size: Size) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateways = [
            GatewayProcess(valkey.url, prefix=prefix, env={**size.env, "TIDINGS_GATEWAY_NAME": name}, name=name)
            for name in ("one", "two", "three")
        ]
        await asyncio.gather(*(stack.enter_async_context(gateway) for gateway in gateways))
        nginx = stack.enter_context(NginxProcess([gateway.port for gateway in gateways]))
        publisher = await stack.enter_async_context(
            AsyncPublisher(nginx.publishers_url, api_key=API_KEY, prefix=prefix, deadline_s=10)
        )
        clients = [Traced(nginx.ws_url, mint(f"user-{n}"), name=f"user-{n}") for n in range(size.clients)]
        stack.push_async_callback(_close_all, clients)
        await _connect_all(clients)
        ledger = Ledger()
        load = Workload(publisher, [client.name for client in clients], ledger, size.events_per_s)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            for gateway in gateways:
                leaving = await watch_leaving(gateway)
                _judge_leaving(leaving, clients, size)
                await until(lambda: all(client.synced for client in clients), 30, "everybody is back", every_s=0.1)
                await gateway.start()
                await nginx.takes_back(gateway.port)
            load.stop()
        by_user = {client.name: [client] for client in clients}
        await until(lambda: ledger.settled(by_user), 30, "everything has arrived", every_s=0.2)
        verdict = ledger.verdict(by_user)
        print(verdict.table())
        assert verdict.ok(), verdict.table()
        assert not load.errors, load.errors[:5]
        for client in clients:
            assert all(welcome["resumed"] for welcome in client.welcomes[1:])
            assert client.refused == [], client.explain()


def _judge_leaving(leaving: Leaving, clients: list[Traced], size: Size) -> None:
    assert leaving.code == 0
    assert leaving.problems == []
    # Readiness goes first, the listener stays to the end and says no.
    assert leaving.unready < leaving.window
    assert leaving.unready - leaving.begin < size.grace_ms / 1000
    assert leaving.window - leaving.begin >= size.grace_ms / 1000
    assert {status for at, status in leaving.readyz if at >= leaving.unready} == {503}
    assert {status for at, status in leaving.upgrades if at < leaving.window} == {101}
    assert {status for at, status in leaving.upgrades if at >= leaving.window} == {503}
    # Those who were there leave evenly.
    buckets = leaving.left_per(clients, size.bucket_ms / 1000)
    print(f"{leaving.gateway}: {sum(buckets)} left in {leaving.end - leaving.begin:.1f} s: {buckets}")
    assert sum(buckets) > 0
    assert max(buckets) <= 3 * sum(buckets) / (size.window_ms / size.bucket_ms), buckets
    assert leaving.landed_again(clients) == []


async def _connect_all(clients: list[Traced]) -> None:
    begin = time.monotonic()
    for first in range(0, len(clients), CONNECTING_AT_ONCE):
        some = clients[first : first + CONNECTING_AT_ONCE]
        for client in some:
            client.start()
        await until(lambda some=some: all(c.synced for c in some), 30, "connected")
    print(f"{len(clients)} clients connected in {time.monotonic() - begin:.1f} s")


async def _close_all(clients: list[Traced]) -> None:
    await asyncio.gather(*(client.close() for client in clients))


async def test_nobody_loses_anything_or_lands_twice_on_who_leaves(valkey: ValkeyProcess, prefix: str) -> None:
    """Three gateways are restarted one by one, each dialled directly meanwhile: readiness goes first while the listener
    still answers; clients leave evenly; none lands twice on the one that leaves, is refused, or loses an event."""
    size = Size(clients=240, events_per_s=100, grace_ms=600, window_ms=2_000, retry_ms=500, bucket_ms=400)
    await _rolling_restart(valkey, prefix, size)


@pytest.mark.full
@pytest.mark.timeout(600)
async def test_the_same_with_two_thousand_clients_and_the_times_of_a_release(
    valkey: ValkeyProcess, prefix: str
) -> None:
    """2,000 clients, and grace, window and return as they are by default."""
    size = Size(clients=2_000, events_per_s=200, grace_ms=5_000, window_ms=20_000, retry_ms=5_000, bucket_ms=1_000)
    await _rolling_restart(valkey, prefix, size)
