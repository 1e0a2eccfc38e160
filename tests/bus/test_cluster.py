"""The bus of a Cluster, on real nodes: every user's channel is where its slot is, whatever moves or is cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.bus.fleet import BACK_S, Fleet, everybody_gets, links_of, numbers
from tests.bus.support import FAST, Listener, kill_pubsub, running
from tests.support.cluster import Cluster, Node
from tests.support.ports import free_port
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher
from tidings.errors import PublishError, StoreUnavailable
from tidings.log.names import Names, slot_of
from tidings_gateway.bus.cluster import ClusterBus
from tidings_gateway.bus.slots import slot_of_channel
from tidings_gateway.bus.trouble import Kind, Trouble

USERS = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


class PerChannel(Listener):
    """Several links are confirmed side by side: only one channel's own generations grow."""

    def channel_on(self, channel: bytes, generation: int) -> None:
        self.generations.clear()
        super().channel_on(channel, generation)


def subscribed(node: Node) -> int:
    """Channels of users at this node, each once."""
    return sum(b":gw:" not in channel for channel in node.cli("PUBSUB", "SHARDCHANNELS"))


async def test_300_users_over_cut_links_and_a_moved_slot(cluster: Cluster, prefix: str) -> None:
    """Three primaries. All subscribed connections are killed; then a slot with ten users moves: 300 of 300 receive each
    time, each event once, in order (redis/redis-py #4038, redis/node-redis #3311)."""
    slot = slot_of("u0")
    neighbours = itertools.islice((user for user in map(str, itertools.count()) if slot_of(user) == slot), 10)
    async with (
        Fleet(cluster.url, prefix, USERS, FAST, users=list(neighbours)) as fleet,
        AsyncPublisher(cluster.url, prefix=prefix) as publisher,
    ):
        await everybody_gets(fleet, publisher, 1)
        assert {subscribed(node) > 0 for node in cluster.primaries} == {True}
        for node in cluster.primaries:
            kill_pubsub(node, fleet.bus.gateway_id)
        await everybody_gets(fleet, publisher, 2)
        await until(lambda: sum(subscribed(node) for node in cluster.primaries) == USERS, BACK_S)
        await asyncio.to_thread(cluster.move, slot, cluster.others(cluster.owner(slot))[0])
        await everybody_gets(fleet, publisher, 3)
        for user in range(USERS):
            assert numbers(fleet, user) == [1, 2, 3]


async def test_a_lost_link_is_told_to_its_own_channels(cluster: Cluster, prefix: str) -> None:
    """When one node cuts us off, those who listen there are told in that moment that they may miss something, and again
    when they may not; the others are told nothing, and keep their generation."""
    names, listener = Names(prefix), PerChannel()
    at = {names.channel(f"u{number}"): cluster.owner(slot_of(f"u{number}")) for number in range(30)}
    bus = ClusterBus(cluster.url, names, listener, FAST)
    await bus.start()
    try:
        for channel in at:
            bus.want(channel)
        await until(lambda: len(listener.on) == 30, BACK_S)
        before, cut = dict(listener.on), cluster.primaries[0]
        there = {channel for channel, node in at.items() if node is cut}
        assert 0 < len(there) < 30
        kill_pubsub(cut, bus.gateway_id)
        await until(lambda: set(listener.off) == there and len(listener.on) == 30, BACK_S)
        assert sorted(listener.off) == sorted(there), "each of them once"
        assert listener.lost == 0
        for channel, generation in listener.on.items():
            assert (generation > before[channel]) if channel in there else (generation == before[channel])
            assert bus.confirmed(channel) == generation
    finally:
        await bus.close()


@pytest.mark.parametrize("way", ["move", "migrate"])
async def test_slots_move_under_a_publisher(cluster: Cluster, prefix: str, way: str) -> None:
    """Key by key and all at once, back and forth, while events are published to the users of the slot without a pause:
    every acknowledged event arrives once and in order, and their channels end up with the new owner."""
    async with (
        Fleet(cluster.url, prefix, 20, FAST) as fleet,
        AsyncPublisher(cluster.url, prefix=prefix) as publisher,
    ):
        slot = slot_of("u3")
        stop = asyncio.Event()
        sent: list[int] = []

        unknown: list[int] = []

        async def publish() -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                try:
                    await publisher.publish("u3", "n", number)
                    sent.append(number)
                except PublishError as error:
                    if error.outcome_unknown:
                        unknown.append(number)
                await asyncio.sleep(0.015)  # time: a pace at which a slot still moves between two events

        publishing = asyncio.create_task(publish())
        links = links_of(fleet)
        canaries = {link.canary.name for link in links.values() if link is not None}
        try:
            for _ in range(4):
                target = cluster.others(cluster.owner(slot))[0]
                seen = len(sent)
                await asyncio.to_thread(getattr(cluster, way), slot, target)
                await until(lambda seen=seen: len(sent) > seen + 5, 15)
        finally:
            stop.set()
            await publishing
        await until(lambda: sent[-1] in numbers(fleet, 3), BACK_S)
        if slot not in map(slot_of_channel, canaries):
            assert links_of(fleet) == links, "a slot that moves costs no link"
        assert [number for number in numbers(fleet, 3) if number not in unknown] == sent
        channel = fleet.names.channel("u3")
        await until(lambda: channel in cluster.owner(slot).cli("PUBSUB", "SHARDCHANNELS"), BACK_S)
        for node in cluster.others(cluster.owner(slot)):
            assert channel not in node.cli("PUBSUB", "SHARDCHANNELS")


async def test_reads_while_a_slot_is_on_its_way(cluster: Cluster, prefix: str) -> None:
    """Half-way through a move, with the keys here, there, or nowhere yet: a user who comes then is let in and gets what
    is published. (With `trust`: to `resync` the new owner is another primary.)"""
    names = Names(prefix)
    async with AsyncPublisher(cluster.url, prefix=prefix) as publisher:
        for user, keys_moved, has_log in (("u0", False, True), ("u1", True, True), ("u2", False, False)):
            slot = slot_of(user)
            bus = ClusterBus(cluster.url, names, PerChannel(), FAST, failover="trust")
            await bus.start()
            try:
                start = None
                if has_log:
                    start = ((await publisher.publish(user, "n", 1)).position or "").encode()
                    await publisher.publish(user, "n", 2)
                target = cluster.others(cluster.owner(slot))[0]
                await asyncio.to_thread(cluster.begin_move, slot, target)
                if keys_moved:
                    await asyncio.to_thread(cluster.move_keys, slot, target)
                bus.want(names.channel(user))
                await until(lambda bus=bus, user=user: bus.confirmed(names.channel(user)), BACK_S)
                page = await bus.read(user, start)
                assert page.reason is None
                assert len(page.entries) == (1 if has_log else 0)
                # Now it has `meta` alone, which is at the target and not here.
                again = await bus.read(user, page.top)
                assert (again.reason, again.entries) == (None, ())
                await asyncio.to_thread(cluster.end_move, slot, target)
            finally:
                await bus.close()


@contextlib.asynccontextmanager
async def three_users(cluster: Cluster, prefix: str) -> AsyncIterator[tuple[ClusterBus, PerChannel, list[bytes]]]:
    """A bus with one channel at each primary, all confirmed."""
    names, told = Names(prefix), PerChannel()
    users = [
        next(user for user in (f"u{n}" for n in range(999)) if cluster.owner(slot_of(user)) is node)
        for node in cluster.primaries
    ]
    channels = [names.channel(user) for user in users]
    bus = ClusterBus(cluster.url, names, told, FAST)
    await bus.start()
    try:
        for channel in channels:
            bus.want(channel)
        await until(lambda: told.on.keys() == set(channels), BACK_S)
        yield bus, told, channels
    finally:
        await bus.close()


async def test_what_it_says_of_itself(cluster: Cluster, prefix: str) -> None:
    """All links together, as one bus: what metrics and readiness are made from."""
    async with three_users(cluster, prefix) as (bus, told, channels):
        assert (bus.up, bus.whole, bus.reached, bus.down_ms, bus.why_down) == (True, True, True, 0, "")
        assert (bus.links, bus.channels, bus.reads_outstanding, bus.reads_queued) == (3, 3, 0, 0)
        assert bus.generation == max(told.on.values())
        assert bus.lag_ms is not None
        assert bus.writes_refused == ""
        assert await bus.ping() > 0
        cluster.primaries[0].cli("SPUBLISH", channels[0], "x\n1")
        await until(lambda: told.bodies(channels[0]) == [b"1"])
        assert 0 <= bus.age_s() < 2
        bus.unwant(channels[2])
        bus.unwant(channels[2])
        assert bus.confirmed(channels[2]) is None
        await until(lambda: bus.channels == 2)
        first = bus.primaries[0].primary.link
        assert first is not None
        first.lose(Trouble(Kind.DEAF, "deaf"))
        assert (bus.up, bus.whole, bus.why_down, bus.troubles["deaf"]) == (True, False, "deaf", 1)
        await until(lambda: bus.whole)
        assert (bus.links, bus.relinks) == (4, 1)
        assert 0 <= bus.silent_s < 2
    assert not bus.up


async def test_a_lost_link_is_told_to_its_channels_alone(cluster: Cluster, prefix: str) -> None:
    """In that very moment; the other links are not touched, and neither are what they confirmed."""
    async with three_users(cluster, prefix) as (bus, told, channels):
        before = [bus.confirmed(channel) for channel in channels]
        assert len(set(before)) == 3, "each link has a generation of its own"
        member = next(member for member in bus.primaries if member.address.port == cluster.primaries[0].port)
        assert member.primary.link is not None
        member.primary.link.lose(Trouble(Kind.CLOSED, "cut"))
        assert told.off == [channels[0]]
        assert [bus.confirmed(channel) for channel in channels] == [None, *before[1:]]
        with pytest.raises(StoreUnavailable, match="cut"):
            await bus.read(Names(prefix).user_of_channel(channels[0]), None)
        assert (await bus.read(Names(prefix).user_of_channel(channels[1]), None)).top
        await until(lambda: told.on.keys() == set(channels), BACK_S)
        after = [bus.confirmed(channel) for channel in channels]
        assert after[1:] == before[1:]
        assert after[0] not in before
        assert told.lost == 0


async def test_a_map_that_was_wrong(cluster: Cluster, prefix: str) -> None:
    """A channel that is taken to somebody who does not serve it is told to be lost, comes back from there by itself,
    and costs no link."""
    async with three_users(cluster, prefix) as (bus, told, channels):
        links = {member.address: member.primary.link for member in bus.primaries}
        wrong = next(member.address for member in bus.primaries if member.address.port == cluster.primaries[1].port)
        bus._slots.move(slot_of_channel(channels[0]), wrong)
        bus._settle(channels[0])
        assert told.off == [channels[0]]
        await until(lambda: told.on.keys() == set(channels), BACK_S)
        assert bus._homes[channels[0]] is not bus._members[wrong]
        assert {member.address: member.primary.link for member in bus.primaries} == links


async def test_what_is_no_cluster_is_said(valkey: ValkeyProcess, prefix: str) -> None:
    """A single server, something else, nobody at all: one sentence, no link, and reads are refused with it."""
    for url, words in (
        (f"redis+cluster://127.0.0.1:{valkey.port}", "is not part of a Cluster"),
        (f"redis+cluster://127.0.0.1:{free_port()}", "no node of the Cluster answers"),
    ):
        bus = ClusterBus(url, Names(prefix), Listener(), FAST)
        await bus.start()
        try:
            bus.want(Names(prefix).channel("ann"))
            await until(lambda bus=bus, words=words: words in bus.why_down)
            assert not bus.up
            assert not bus.reached
            with pytest.raises(StoreUnavailable, match=words):
                await bus.read("ann", None)
            with pytest.raises(StoreUnavailable, match=words):
                await bus.ping()
            bus.unwant(Names(prefix).channel("ann"))
            assert bus.channels == 0
        finally:
            await bus.close()


async def test_a_single_servers_url_for_a_cluster_is_said(cluster: Cluster, prefix: str) -> None:
    """A gateway told `redis://` of a node has no link, and says which URL it wants."""
    async with running(cluster.primaries[0].url, prefix, up=False) as bus:
        await until(lambda: "redis+cluster://" in bus.why_down)
        assert bus._primary.kind_down is Kind.CLUSTER
