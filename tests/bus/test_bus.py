"""The bus on a real server: reads that belong to who asked, channels that are subscribed when wanted, idle or busy."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from pathlib import Path

import pytest

from tests.bus.support import FAST, STEADY, Listener, append, clients, numsub, replace, running, turn
from tests.support.proxy import FaultProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.errors import InvalidPosition, InvalidSetting, InvalidUser, StoreUnavailable
from tidings.log.names import Names
from tidings.log.page import Page, ResyncReason
from tidings_gateway.bus.bus import Bus


async def test_a_record_is_heard_and_read(valkey: ValkeyProcess, prefix: str) -> None:
    """From wanting a channel to the record on it, and the same event from the log."""
    names, listener = Names(prefix), Listener()
    channel = names.channel("ann")
    async with running(valkey.url, prefix, listener, STEADY) as bus:
        assert bus.why_down == ""
        assert bus.reached
        bus.want(channel)
        await until(lambda: listener.on)
        assert bus.confirmed(channel) == listener.on[channel] == bus.generation
        start = await bus.read("ann", None)
        append(valkey, names, "ann", b'{"event":"a"}')
        await until(lambda: listener.records)
        page = await bus.read("ann", start.top)
        assert page.start == start.top
        assert [entry.body for entry in page.entries] == listener.bodies(channel) == [b'{"event":"a"}']
        assert (await bus.read("ann", b"otherEpoch.5-1")).reason is ResyncReason.EPOCH
        assert bus.lag_ms is not None
        assert await bus.ping() >= 0
        assert bus.writes_refused == ""


async def test_pages_obey_limit_and_last(valkey: ValkeyProcess, prefix: str) -> None:
    """The arguments of a read arrive where they belong."""
    names = Names(prefix)
    async with running(valkey.url, prefix) as bus:
        for n in range(5):
            append(valkey, names, "ann", b"%d" % n)
        last = await bus.read("ann", None, last=3, limit=2)
        assert [entry.body for entry in last.entries] == [b"2", b"3"]
        rest = await bus.read("ann", last.end, max_bytes=1)
        assert [entry.body for entry in rest.entries] == [b"4"]


async def test_bad_arguments_are_refused_at_once(valkey: ValkeyProcess, prefix: str) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidSetting):
        Bus("redis://127.0.0.1/5", Names(prefix), Listener())
    bus = Bus(valkey.url, Names(prefix), Listener())
    with pytest.raises(InvalidUser):
        bus.read("a b", None)
    with pytest.raises(InvalidPosition):
        bus.read("ann", b"nonsense")


async def test_reads_of_one_tick_all_succeed(valkey: ValkeyProcess, prefix: str) -> None:
    """500 reads asked for at once: all answered, over two connections, whose names say whose they are."""
    async with running(valkey.url, prefix, limits=replace(STEADY, reads_outstanding=64)) as bus:
        pages = await asyncio.gather(*[bus.read(f"u{n}", None) for n in range(500)])
        assert len({page.top for page in pages}) == 500
        ours = {name: info for name, info in clients(valkey).items() if bus.gateway_id in name}
        assert sorted(ours) == [f"tidings-{bus.gateway_id}-commands", f"tidings-{bus.gateway_id}-pubsub"]
        assert {info["db"] for info in ours.values()} == {"0"}


async def test_reads_of_one_tick_are_one_pipeline_on_the_wire(valkey: ValkeyProcess, prefix: str) -> None:
    """What 60 users ask for in one tick reaches Redis' socket together, not one by one."""
    arrived: list[bytes] = []

    class Recorder(FaultProxy):
        def note(self, data: bytes) -> None:
            arrived.append(data)

    async with Recorder(valkey.port) as proxy, running(proxy.url, prefix, limits=STEADY) as bus:
        arrived.clear()
        await asyncio.gather(*[bus.read(f"u{n}", None) for n in range(60)])
    reads = [chunk.count(b"}:meta") for chunk in arrived if b"}:meta" in chunk]
    assert sum(reads) == 60
    assert len(reads) <= 3, "a pipeline may be cut by the sockets in between, where a read buffer ends"


async def test_too_many_reads_are_refused_not_kept(valkey: ValkeyProcess, prefix: str) -> None:
    """Beyond the bounds a read fails at once, saying when to come back; those inside are answered."""
    async with running(valkey.url, prefix, limits=replace(STEADY, reads_outstanding=2, reads_queued=5)) as bus:
        asked = [bus.read(f"u{n}", None) for n in range(10)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Page] * 5 + [StoreUnavailable] * 5
        refused = answers[-1]
        assert isinstance(refused, StoreUnavailable)
        assert refused.retry_after_s is not None
        assert (await bus.read("later", None)).top


async def test_every_reply_belongs_to_its_asker(valkey: ValkeyProcess, prefix: str) -> None:
    """200 users read at once through 20 ms of network, half of them going away at a random moment, again and again:
    every page holds the asker's own event, and the bus lost nothing (redis/redis-py #2624, #2665)."""
    names, rng = Names(prefix), random.Random(20)
    for n in range(200):
        append(valkey, names, f"u{n}", json.dumps({"owner": n}).encode())
    asked = answered = 0

    async def reader(n: int) -> None:
        nonlocal asked, answered
        for _ in range(10):
            asked += 1
            if rng.random() < 0.5:
                future = bus.read(f"u{n}", None, last=1)
                await asyncio.sleep(rng.uniform(0.001, 0.03))
                future.cancel()
                continue
            page = await bus.read(f"u{n}", None, last=1)
            answered += 1
            assert [json.loads(entry.body)["owner"] for entry in page.entries] == [n]

    listener = Listener()
    async with FaultProxy(valkey.port) as proxy:
        proxy.delay(10)
        async with running(proxy.url, prefix, listener, replace(STEADY, reads_outstanding=50)) as bus:
            await asyncio.gather(*[reader(n) for n in range(200)])
            assert listener.lost == 0
    assert asked == 2000
    assert answered > 800


async def test_a_cancelled_task_does_not_disturb_its_neighbours(valkey: ValkeyProcess, prefix: str) -> None:
    """Cancelled while its read is on the wire, as a disconnecting client does."""
    async with FaultProxy(valkey.port) as proxy, running(proxy.url, prefix) as bus:
        proxy.hold("down")
        cancelled = asyncio.ensure_future(bus.read("ann", None))
        neighbour = bus.read("bob", None)
        await turn(3)
        cancelled.cancel()
        proxy.release("down")
        assert (await neighbour).top
        assert (await bus.read("ann", None)).top


async def test_scripts_forgotten_by_redis_are_loaded_again(prefix: str) -> None:
    """SCRIPT FLUSH costs one more round trip; nobody notices."""
    listener = Listener()
    with ValkeyProcess() as server:
        async with running(server.url, prefix, listener, STEADY) as bus:
            for _ in range(3):
                server.cli("SCRIPT", "FLUSH")
                pages = await asyncio.gather(*[bus.read(f"u{n}", None) for n in range(50)])
                assert len({page.top for page in pages}) == 50
            assert listener.lost == 0


async def test_one_users_broken_key_costs_nobody_else(
    valkey: ValkeyProcess, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A read that Redis answers with an error fails alone and is logged once."""
    names, listener = Names(prefix), Listener()
    valkey.cli("SET", names.meta("ann"), "not a hash")
    async with running(valkey.url, prefix, listener, STEADY) as bus:
        for _ in range(3):
            bad, good = bus.read("ann", None), bus.read("bob", None)
            with pytest.raises(StoreUnavailable, match="WRONGTYPE"):
                await bad
            assert (await good).top
        assert listener.lost == 0
    assert caplog.text.count("a read failed") == 1


async def test_an_idle_link_is_kept(valkey: ValkeyProcess, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """With nothing published and nothing read for many of its time-outs, both connections are the same as before, and
    the log is silent (redis/redis-py #4098)."""
    listener = Listener()
    limits = replace(FAST, redis_timeout_ms=400, canary_interval_ms=100, canary_timeout_ms=400)
    async with running(valkey.url, prefix, listener, limits) as bus:
        before = {name: info["id"] for name, info in clients(valkey).items() if bus.gateway_id in name}
        assert len(before) == 2
        caplog.clear()
        await asyncio.sleep(3)  # time: that nothing happens meanwhile is the requirement
        after = {name: info["id"] for name, info in clients(valkey).items() if bus.gateway_id in name}
        assert after == before
        assert listener.lost == 0
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


async def test_the_last_leaves_while_a_new_one_opens_10_000_times(valkey: ValkeyProcess, prefix: str) -> None:
    """Through 3 ms of network on the way to Redis, so that a confirmation believed too early is caught by a publisher
    who has none: whenever the bus says a channel is confirmed, what is published is heard; and in the end Redis' count
    is 1."""
    names, listener, rng = Names(prefix), Listener(), random.Random(23)
    channels = [names.channel(f"u{n}") for n in range(5)]
    async with (
        FaultProxy(valkey.port) as proxy,
        running(proxy.url, prefix, listener, replace(STEADY, linger_ms=0)) as bus,
    ):
        proxy.delay(3, "up")
        for channel in channels:
            bus.want(channel)
        for step in range(10_000):
            channel = rng.choice(channels)
            bus.unwant(channel)
            listener.on.pop(channel, None)
            if rng.random() < 0.5:
                # As the tick does every 100 ms: with no linger, UNSUBSCRIBE goes out now.
                assert bus._primary.link is not None
                bus._primary.link.subscriber.speak_soon()
            await turn(rng.randrange(4))
            if rng.random() < 0.05:
                await asyncio.sleep(rng.random() * 0.008)
            bus.want(channel)
            if bus.confirmed(channel) is not None:
                listener.on.setdefault(channel, bus.generation)
            if step % 50 == 0:
                mark = secrets.token_hex(8).encode()
                await until(lambda channel=channel: bus.confirmed(channel) is not None)
                assert valkey.cli("PUBLISH", channel, b"x\n" + mark) == 1
                await until(lambda mark=mark, channel=channel: mark in listener.bodies(channel))
                listener.records.clear()
        await until(lambda: all(bus.confirmed(channel) is not None for channel in channels))
        assert numsub(valkey, channels) == [1] * 5
        for channel in channels:
            bus.unwant(channel)
        await until(lambda: numsub(valkey, channels) == [0] * 5)
        assert listener.lost == 0


async def test_an_unwanted_channel_is_unsubscribed_after_the_linger(valkey: ValkeyProcess, prefix: str) -> None:
    """By itself, with nothing else going on; a return within the linger costs Redis nothing."""
    listener, channel = Listener(), Names(prefix).channel("ann")
    async with running(valkey.url, prefix, listener, replace(STEADY, linger_ms=300)) as bus:
        bus.want(channel)
        await until(lambda: listener.on)
        bus.unwant(channel)
        bus.want(channel)
        assert bus.confirmed(channel) == bus.generation
        bus.unwant(channel)
        assert numsub(valkey, [channel]) == [1]
        await until(lambda: numsub(valkey, [channel]) == [0])
        assert bus.confirmed(channel) is None


async def test_closing_leaves_nothing(valkey: ValkeyProcess, prefix: str) -> None:
    """Reads under way are told, connections are gone, and a second close is harmless; so is a read afterwards."""
    async with FaultProxy(valkey.port) as proxy, running(proxy.url, prefix) as bus:
        proxy.hold("down")
        waiting = bus.read("ann", None)
        await turn(2)
        await bus.close()
        await bus.close()
        for future in (waiting, bus.read("ann", None)):
            with pytest.raises(StoreUnavailable):
                await future
        assert not bus.up
        await bus.start()
        assert not bus.up
        proxy.pass_all()
        await until(lambda: not any(bus.gateway_id in name for name in clients(valkey)))


async def test_over_a_unix_socket(prefix: str, tmp_path: Path) -> None:
    """`unix://` for a Redis on the same machine."""
    path = tmp_path / "valkey.sock"
    listener, channel = Listener(), Names(prefix).channel("ann")
    with ValkeyProcess("--unixsocket", str(path)) as server:
        async with running(f"unix://{path}", prefix, listener) as bus:
            bus.want(channel)
            await until(lambda: listener.on)
            server.cli("PUBLISH", channel, "x\n1")
            await until(lambda: listener.bodies(channel) == [b"1"])


async def test_the_owner_tasks_death_is_noticed(
    valkey: ValkeyProcess, prefix: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the task that keeps the link ever end, that is said loudly and it is started again."""
    monkeypatch.setattr("tidings_gateway.bus.owner.OWNER_RETRY_S", 0.01)
    async with running(valkey.url, prefix) as bus:
        assert bus._owner.task is not None
        bus._owner.task.cancel()
        await until(lambda: not bus.up)
        await until(lambda: bus.up)
    assert "starting it again" in caplog.text


async def test_the_age_of_the_last_byte_outlives_the_link(prefix: str) -> None:
    """Small while canaries come, and growing without a link, also when nobody asked while there was one."""
    with ValkeyProcess() as server:
        async with running(server.url, prefix, Listener()) as bus:
            await asyncio.sleep(0.7)  # time: long enough for canaries to come that nobody asks about
            server.kill()
            await until(lambda: not bus.up)
            assert bus.age_s() < 0.5
            assert bus.links == 1
            await until(lambda: bus.age_s() > 0.8)
            await until(lambda: bus.troubles["refused"] >= 1)
            assert bus.troubles["closed"] == 1
            assert (bus.reads_outstanding, bus.reads_queued) == (0, 0)
