"""A gateway and publishers on a real Cluster, and the ledger: slots move both ways, links are cut, a primary dies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.chaos.actors import Publishers
from tests.chaos.plan import Plan
from tests.support.client import Client
from tests.support.cluster import Cluster, state
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.ledger import Ledger
from tests.support.replicated import is_primary
from tests.support.tokens import mint
from tests.support.waiting import NotReached, until
from tidings import AsyncPublisher
from tidings.log.names import slot_of

SETTINGS = {**FAST_DRAIN, "TIDINGS_REDIS_TIMEOUT_MS": "1000", "TIDINGS_CANARY_INTERVAL_MS": "500"}
QUIET_S = 20
Damage = Callable[[Cluster], Awaitable[None]]


async def cut_links(cluster: Cluster) -> None:
    for _ in range(3):
        for node in cluster.primaries:
            node.cli("CLIENT", "KILL", "TYPE", "pubsub")
        await asyncio.sleep(0.2)  # time: shorter than a link and all its channels need


async def move(cluster: Cluster) -> None:
    await _move(cluster, cluster.move)


async def migrate(cluster: Cluster) -> None:
    await _move(cluster, cluster.migrate)


async def _move(cluster: Cluster, how: Callable[..., None]) -> None:
    """The slots of four users, one after the other, to the next primary."""
    for user in ("user-0", "user-1", "user-2", "user-6"):
        slot = slot_of(user)
        await asyncio.to_thread(how, slot, cluster.others(cluster.owner(slot))[0])


async def cut_and_migrate(cluster: Cluster) -> None:
    await cut_links(cluster)
    await migrate(cluster)


async def failover(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.failover, cluster.primaries[0])


async def death(cluster: Cluster) -> None:
    cluster.primaries[0].kill()


async def coma(cluster: Cluster) -> None:
    """It answers nothing while its replica takes over, and wakes up in the belief that it is the primary."""
    old, heir = cluster.primaries[0], cluster.replicas[0][0]
    old.freeze()
    await until(lambda: is_primary(heir), 20, "the replica takes over", every_s=0.05)
    await until(lambda: state(heir) == "ok", 20, every_s=0.05)
    old.thaw()


@pytest.mark.parametrize(
    ("damage", "replicas"),
    [
        (cut_and_migrate, 0),
        pytest.param(cut_links, 0, marks=pytest.mark.full),
        pytest.param(move, 0, marks=pytest.mark.full),
        pytest.param(failover, 1, marks=pytest.mark.full),
        pytest.param(death, 1, marks=pytest.mark.full),
        pytest.param(coma, 1, marks=pytest.mark.full),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.timeout(120)
async def test_nothing_is_lost_or_repeated(damage: Damage, replicas: int, prefix: str) -> None:
    """60 clients while their Cluster is damaged and 100 events per second are published: what was acknowledged is
    received, once and in order, or covered by a resync, which only users of a primary that changed get. Their sockets
    stay open (redis/redis-py #4038, redis/node-redis #3311)."""
    plan = Plan(seconds=3, clients=60, rate=100, publishers=8)
    ledger = Ledger()
    with Cluster(replicas=replicas) as cluster:
        async with (
            GatewayProcess(cluster.url, prefix=prefix, env=SETTINGS) as gateway,
            AsyncPublisher(cluster.url, prefix=prefix, deadline_s=8) as publisher,
            contextlib.AsyncExitStack() as stack,
        ):
            by_user: dict[str, list[Client]] = {}
            for number, user in enumerate(plan.users()):
                client = await stack.enter_async_context(Client(gateway.ws_url, mint(user), name=f"client {number}"))
                by_user.setdefault(user, []).append(client)
            clients = [client for of_user in by_user.values() for client in of_user]
            for client in clients:
                await client.until_synced(20)
            publishing = asyncio.create_task(Publishers(plan, ledger, publisher).run())
            await until(lambda: sum(len(client.events) for client in clients) > 50, 10)
            await damage(cluster)
            await publishing
            # One more to each of them: whoever is deaf by now is found out.
            for user in by_user:
                data = ledger.attempted(user, f"last {user}")
                receipt = await publisher.publish(user, "chaos.event", data)
                ledger.acknowledged(f"last {user}", str(receipt.position))
            with contextlib.suppress(NotReached):
                await until(lambda: not ledger.verdict(by_user).missing, QUIET_S, every_s=0.2)
            verdict = ledger.verdict(by_user)
            assert verdict.ok(resyncs_allowed=damage is not cut_links), f"\n{verdict.table()}\n{gateway.log[-4000:]}"
            assert verdict.counts["acknowledged"] > 100, f"too slow a machine for this to mean much\n{verdict.table()}"
            assert {client.connections for client in clients} == {1}
