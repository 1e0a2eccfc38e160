"""The bus of a Cluster whose primaries die, are replaced, come and go: who feels it, and that all have their events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.bus.fleet import BACK_S, Fleet, bus_of, everybody_gets, links_of, numbers, resyncs
from tests.bus.support import FAST, raw_clients
from tests.support.cluster import Cluster, Node, known, state
from tests.support.waiting import until
from tidings import AsyncPublisher
from tidings.log.names import slot_of


@pytest.fixture(scope="module")
def doubled() -> Iterator[Cluster]:
    """With a replica for each primary."""
    with Cluster(replicas=1) as cluster:
        yield cluster


async def test_a_primary_that_dies_is_felt_by_its_users_alone(prefix: str) -> None:
    """Its replica takes over; the others' events flow all the time, over the links they had (unless the Cluster stops
    altogether when a slot is not served, `cluster-require-full-coverage`)."""
    with Cluster("--cluster-require-full-coverage", "no", replicas=1) as cluster:
        async with (
            Fleet(cluster.url, prefix, 60, FAST) as fleet,
            AsyncPublisher(cluster.url, prefix=prefix, deadline_s=10) as publisher,
        ):
            await everybody_gets(fleet, publisher, 1)
            dead = cluster.primaries[0]
            links = links_of(fleet)
            spared = [user for user in range(60) if cluster.owner(slot_of(f"u{user}")) is not dead]
            assert 0 < len(spared) < 60
            dead.kill()
            for user in spared:
                await publisher.publish(f"u{user}", "n", 2)
            await until(lambda: all(numbers(fleet, user)[-1:] == [2] for user in spared), every_s=0.02)
            await until(lambda: bus_of(fleet).whole and len(bus_of(fleet).primaries) == 3, 20, "the replica is found")
            await everybody_gets(fleet, publisher, 3)
            kept = {address for address, link in links_of(fleet).items() if links.get(address) is link}
            assert kept == {address for address in links if address.port != dead.port}


async def test_a_replica_takes_over_in_agreement(doubled: Cluster, prefix: str) -> None:
    """The old primary lives on as a replica: it is left, and nobody stays subscribed there."""
    async with (
        Fleet(doubled.url, prefix, 60, FAST) as fleet,
        AsyncPublisher(doubled.url, prefix=prefix, deadline_s=10) as publisher,
    ):
        await everybody_gets(fleet, publisher, 1)
        old = doubled.primaries[0]
        await asyncio.to_thread(doubled.failover, old)
        await everybody_gets(fleet, publisher, 2)
        await until(lambda: not [line for line in raw_clients(old) if fleet.bus.gateway_id in line], BACK_S)


async def test_after_a_failover_each_session_is_told_to_resync(doubled: Cluster, prefix: str) -> None:
    """Those of the primary that was replaced, if they had a position before, and nobody else."""
    async with (
        Fleet(doubled.url, prefix, 30, FAST, failover="resync") as fleet,
        AsyncPublisher(doubled.url, prefix=prefix, deadline_s=10) as publisher,
    ):
        await everybody_gets(fleet, publisher, 1)
        old = doubled.primaries[1]
        touched = {user for user in range(30) if doubled.owner(slot_of(f"u{user}")) is old}
        await asyncio.to_thread(doubled.failover, old)
        await until(lambda: {user for user in range(30) if resyncs(fleet, user)} == touched, BACK_S, every_s=0.05)
        await fleet.until_live()
        await everybody_gets(fleet, publisher, 2)
        assert {user for user in range(30) if resyncs(fleet, user)} == touched
        assert all(len(resyncs(fleet, user)) == 1 for user in touched)


async def test_a_primary_comes_and_its_last_slot_goes(prefix: str) -> None:
    """A node that is given slots gets a link; one whose last slot was taken away is left."""
    with Cluster(primaries=2) as cluster:
        async with (
            Fleet(cluster.url, prefix, 40, FAST) as fleet,
            AsyncPublisher(cluster.url, prefix=prefix, deadline_s=10) as publisher,
        ):
            # One that lost its last slot would become a replica otherwise.
            newcomer = Node("--cluster-allow-replica-migration", "no").start()
            try:
                first = cluster.primaries[0]
                first.cli("CLUSTER", "MEET", "127.0.0.1", newcomer.port, newcomer.bus_port)
                cluster.primaries.append(newcomer)
                await until(lambda: all(known(node) == 3 and state(node) == "ok" for node in cluster.primaries), BACK_S)
                slot = slot_of("u5")
                source = cluster.owner(slot)
                await asyncio.to_thread(cluster.move, slot, newcomer)
                await everybody_gets(fleet, publisher, 1)
                assert len(bus_of(fleet).primaries) == 3
                await asyncio.to_thread(cluster.move, slot, source)
                await everybody_gets(fleet, publisher, 2)
                # Its canary's slot is gone too, so its link ends, and nobody is there to be linked to.
                await until(lambda: len(bus_of(fleet).primaries) == 2, BACK_S)
                assert bus_of(fleet).whole
            finally:
                newcomer.close()
                cluster.primaries.remove(newcomer)
