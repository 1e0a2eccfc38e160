"""Sentinel failovers under a gateway: whoever is connected loses nothing, or is told what may be lost."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.ledger import Ledger
from tests.support.proxy import FaultProxy
from tests.support.sentinels import Sentinels
from tests.support.tokens import API_KEY, mint
from tests.support.waiting import NotReached, until
from tidings import AsyncPublisher
from tidings.errors import PublishError

BACK_S = 5
"""After a new primary is one."""

FAST_LINK = {
    **FAST_DRAIN,
    "TIDINGS_REDIS_TIMEOUT_MS": "1000",
    "TIDINGS_CANARY_INTERVAL_MS": "500",
    "TIDINGS_CANARY_TIMEOUT_MS": "1000",
}
ASK_EVERY_S = 0.05
DYING = ("--shutdown-timeout", "0")
"""At the end of a test no server waits for a replica that is cut off."""

KEY = {"Authorization": f"Bearer {API_KEY}"}


class World:
    """Sentinels, a gateway, clients of ten users, and a ledger."""

    def __init__(self, servers: Sentinels, gateway: GatewayProcess, publisher: AsyncPublisher) -> None:
        self.servers = servers
        self.gateway = gateway
        self.publisher = publisher
        self.ledger = Ledger()
        self.users = [f"user-{n}" for n in range(10)]
        self.clients = {user: [Client(gateway.ws_url, mint(user), name=user).start()] for user in self.users}
        self._numbers = itertools.count()

    @property
    def everybody(self) -> list[Client]:
        return [client for of_user in self.clients.values() for client in of_user]

    async def publish(self, user: str) -> str | None:
        """Returns the key of what was acknowledged."""
        key = str(next(self._numbers))
        data = self.ledger.attempted(user, key)
        try:
            receipt = await self.publisher.publish(user, "n", data)
        except PublishError as error:
            (self.ledger.unknown if error.outcome_unknown else self.ledger.failed)(key)
            return None
        assert receipt.position is not None
        self.ledger.acknowledged(key, receipt.position)
        return key

    @contextlib.asynccontextmanager
    async def steadily(self) -> AsyncIterator[None]:
        """One event after the other to each user, all the time."""

        async def one(user: str) -> None:
            while True:
                await self.publish(user)
                await asyncio.sleep(0.02)  # time: the rate of the stream

        tasks = [asyncio.create_task(one(user)) for user in self.users]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def heard_again(self, deadline_s: float) -> None:
        """Everybody hears what is published now. Not the first of it, perhaps: a resync may cover that."""

        async def one(user: str) -> None:
            keys: set[str] = set()
            while not all(keys & _keys(client) for client in self.clients[user]):
                keys.update(filter(None, [await self.publish(user)]))
                await asyncio.sleep(ASK_EVERY_S)

        async with asyncio.timeout(deadline_s):
            await asyncio.gather(*(one(user) for user in self.users))

    async def verdict(self, *, resyncs: bool) -> None:
        with contextlib.suppress(NotReached):
            await until(lambda: not self.ledger.verdict(self.clients).missing, 10, every_s=0.1)
        verdict = self.ledger.verdict(self.clients)
        assert verdict.ok(resyncs_allowed=resyncs), f"\n{verdict.table()}"
        assert all(client.connections == 1 for client in self.everybody), "clients notice nothing but silence"
        for client in self.everybody:
            client.check()


def _keys(client: Client) -> set[str]:
    return {event.data["key"] for event in client.events}


@contextlib.asynccontextmanager
async def world(
    servers: Sentinels, prefix: str, env: dict[str, str] | None = None, url: str | None = None
) -> AsyncIterator[World]:
    """`url`: the gateway's, if it goes another way than the publishers."""
    async with (
        GatewayProcess(url or servers.url, prefix=prefix, env={**FAST_LINK, **(env or {})}) as gateway,
        AsyncPublisher(servers.url, prefix=prefix) as publisher,
    ):
        made = World(servers, gateway, publisher)
        try:
            for client in made.everybody:
                await client.until_synced()
            yield made
        finally:
            await asyncio.gather(*(client.close() for client in made.everybody))


@contextlib.asynccontextmanager
async def running(servers: Sentinels) -> AsyncIterator[Sentinels]:
    try:
        yield await asyncio.to_thread(servers.start)
    finally:
        await asyncio.to_thread(servers.close)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("failover", ["resync", "trust"])
async def test_a_failover_that_loses_nothing(prefix: str, failover: str) -> None:
    """The primary is killed under a steady stream: within 5 s of the new one's promotion everybody has live events, and
    what was acknowledged has arrived, or a resync covers it. With `auto` every session is told exactly once, with a
    window to spread its refetch in (redis/go-redis #583)."""
    async with running(Sentinels()) as servers, world(servers, prefix, {"TIDINGS_FAILOVER": failover}) as w:
        async with w.steadily():
            await until(lambda: all(client.events for client in w.everybody))
            old = servers.primary
            old.kill()
            await asyncio.to_thread(servers.wait_moved, old)
            promoted = time.monotonic()
            await w.heard_again(BACK_S)
            assert time.monotonic() - promoted < BACK_S
        await w.verdict(resyncs=True)
        if failover == "resync":
            assert [[resync.reason for resync in client.resyncs] for client in w.everybody] == [["epoch"]] * 10


@pytest.mark.timeout(120)
async def test_writes_that_nobody_saw_are_lost_aloud(prefix: str) -> None:
    """The replica is cut off, more is written, and it becomes the primary. What was acknowledged and delivered to
    nobody is gone, and every session is told to refetch: no position of the old primary is continued in silence
    (aphyr.com/posts/283-jepsen-redis)."""
    servers = Sentinels(*DYING, linked=True)
    async with running(servers), world(servers, prefix) as w:
        await w.heard_again(5)
        link = servers.data.link
        assert link is not None
        await asyncio.to_thread(servers.wait_replicating)
        # The gateway is not to hear of what is written from here on, nor to notice that it does not.
        old = servers.primary
        w.gateway.freeze()
        old.cli("CLIENT", "KILL", "TYPE", "pubsub")
        link.call(FaultProxy.blackhole)
        lost = [await w.publish(user) for user in w.users]
        assert all(lost)
        old.kill()
        await asyncio.to_thread(servers.wait_moved, old)
        w.gateway.thaw()
        await until(lambda: all(client.resyncs for client in w.everybody), 15, "everybody is told")
        assert not any(set(lost) & _keys(client) for client in w.everybody)
        await w.heard_again(BACK_S)
        await w.verdict(resyncs=True)


@pytest.mark.timeout(120)
async def test_a_primary_without_its_replica_takes_no_writes(prefix: str) -> None:
    """Gateway and old primary are cut off from the replica and the Sentinels, which fail over: with
    min-replicas-to-write publishing there is answered 503, and nobody sees an event that is not stored. What is
    published at the new primary meanwhile reaches everybody, or a resync covers it, once the gateway can ask a Sentinel
    again: one history, and it is the new one's (redis/redis #6545)."""
    servers = Sentinels("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1", *DYING, linked=True)
    async with running(servers), FaultProxy(servers.sentinels[0].port) as to_sentinel:
        url = f"redis+sentinel://127.0.0.1:{to_sentinel.port}/{servers.service}"
        async with world(servers, prefix, url=url) as w:
            await w.heard_again(5)
            link = servers.data.link
            assert link is not None
            await asyncio.to_thread(servers.wait_replicating)
            old, new = servers.primary, servers.replicas[0]
            link.call(FaultProxy.blackhole)
            to_sentinel.blackhole()
            await refused_by(w)
            new.cli("CONFIG", "SET", "min-replicas-to-write", 0)
            await asyncio.to_thread(servers.failover)
            async with asyncio.timeout(10):
                for user in w.users:
                    while not await w.publish(user):
                        await asyncio.sleep(ASK_EVERY_S)
            to_sentinel.pass_all()
            await w.heard_again(2 * BACK_S)
            assert new.role() == b"master"
            link.call(FaultProxy.release)
            await until(lambda: old.role() == b"slave", 10, "the old one is a replica")
            await w.heard_again(BACK_S)
            await w.verdict(resyncs=True)


async def refused_by(w: World) -> None:
    """From some moment on, publishing through the gateway is refused, and heard by nobody."""
    async with httpx.AsyncClient(base_url=w.gateway.url, timeout=10, headers=KEY) as http:
        async with asyncio.timeout(10):
            message = {"user": "nobody", "event": "n", "data": 1}
            while (await http.post("/v1/publish", json=message)).status_code != 503:
                await asyncio.sleep(ASK_EVERY_S)
        before = [len(client.chain) for client in w.everybody]

        async def refuse(user: str) -> None:
            data = w.ledger.attempted(user, f"refused-{user}")
            message = {"user": user, "event": "n", "data": data}
            assert (await http.post("/v1/publish", json=message)).status_code == 503
            w.ledger.failed(data["key"])

        await asyncio.gather(*(refuse(user) for user in w.users))
        assert [len(client.chain) for client in w.everybody] == before
        assert "takes no writes: NOREPLICAS" in w.gateway.log


@pytest.mark.timeout(120)
async def test_a_demoted_primary_is_left_though_it_lives(prefix: str) -> None:
    """The replica is promoted by hand and the old primary made its replica, both alive, connections open: sessions get
    what is published at the new one, and publishing through the gateway is never told it succeeded at the old
    (redis/redis-py #460, centrifugal/centrifuge PR #594)."""
    async with running(Sentinels()) as servers, world(servers, prefix) as w:
        async with w.steadily():
            await until(lambda: all(client.events for client in w.everybody))
            old = servers.primary
            new = await asyncio.to_thread(servers.failover)
            await w.heard_again(BACK_S)
        assert old.running
        assert old is not new
        await w.verdict(resyncs=True)
