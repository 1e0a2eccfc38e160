"""Resuming through a real gateway: what can be proved goes on, what cannot says so."""

from __future__ import annotations

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.rawsocket import RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher


async def publish(publisher: AsyncPublisher, user: str, numbers: range) -> list[str]:
    """The positions, in order."""
    receipts = [await publisher.publish(user, "n", number) for number in numbers]
    return [str(receipt.position) for receipt in receipts]


async def visit(gateway: GatewayProcess, publisher: AsyncPublisher, numbers: range) -> str:
    """A page that comes, hears these, and goes: the position it leaves with."""
    async with Client(gateway.ws_url, mint("ann")) as client:
        await client.until_synced()
        await publish(publisher, "ann", numbers)
        await client.until_events(len(numbers))
        client.check()
        assert client.stored is not None
        return client.stored


async def test_a_worker_publishes_and_a_page_hears_it(gateway: GatewayProcess, publisher: AsyncPublisher) -> None:
    """The main job: publish, receive; cut, publish, come back, receive what was missed, marked as replay, once."""
    async with Client(gateway.ws_url, mint("ann")) as client:
        await client.until_synced()
        receipt = await publisher.publish("ann", "job.complete", {"id": 7})
        await client.until_events(1)
        assert (client.events[0].id, client.events[0].event, client.events[0].data) == (
            receipt.position,
            "job.complete",
            {"id": 7},
        )
        assert receipt.listening == 1
        client.cut()
        ids = await publish(publisher, "ann", range(5))
        await client.until_synced(connection=2)
        assert [event.id for event in client.events[1:]] == ids
        assert client.resyncs == []
        client.check()


async def test_resume_before_the_first_event_was_ever_received(
    gateway: GatewayProcess, publisher: AsyncPublisher
) -> None:
    """The welcome's position of a user without events is a position like any other: nothing is lost before event 1."""
    async with Client(gateway.ws_url, mint("ann")) as client:
        await client.until_synced()
        assert client.stored is not None
        assert client.stored.endswith(".0-0")
        client.cut()
        ids = await publish(publisher, "ann", range(3))
        await client.until_synced(connection=2)
        assert [event.id for event in client.events] == ids
        assert client.welcomes[-1]["resumed"] is True
        client.check()


async def test_resume_twice_with_nothing_between(gateway: GatewayProcess, publisher: AsyncPublisher) -> None:
    """Each time proved, each time with nothing replayed."""
    await publisher.publish("ann", "n", 0)
    async with Client(gateway.ws_url, mint("ann"), replay=10) as client:
        await client.until_synced()
        for connection in (2, 3):
            client.cut()
            await client.until_synced(connection=connection)
        assert [welcome["resumed"] for welcome in client.welcomes] == [False, True, True]
        assert [synced["replayed"] for synced in client.synceds] == [1, 0, 0]
        assert len(client.events) == 1
        client.check()


@pytest.mark.parametrize("position", ["", "garbage", "1-1", "epoch0001.5", "epoch0001.5-1~org", "k3J9xQ2m.42-8123345 "])
async def test_a_malformed_position_is_a_resync(gateway: GatewayProcess, position: str) -> None:
    """`invalid`, never an error and never silence."""
    raw = await RawSocket.connect(gateway.ws_url)
    async with raw:
        await raw.hello(mint("ann"), position)
        frames = await raw.recv_until("synced")
        assert [frame["type"] for frame in frames] == ["welcome", "resync", "synced"]
        assert frames[1]["reason"] == "invalid"


async def test_a_position_older_than_the_retention_is_a_resync(valkey: ValkeyProcess, prefix: str) -> None:
    """`trimmed`, with a fresh position and live from there: never silence, never a claim of completeness
    (dunglas/mercure #704)."""
    env = {**FAST_DRAIN, "TIDINGS_LOG_MAX_EVENTS": "50", "TIDINGS_PAGE_EVENTS": "50"}
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix, log_max_events=50) as publisher,
    ):
        position = await visit(gateway, publisher, range(1, 11))
        await publish(publisher, "ann", range(11, 201))
        async with Client(gateway.ws_url, mint("ann"), position=position) as client:
            await client.until_synced()
            (resync,) = client.resyncs
            assert (resync.reason, resync.missed) == ("trimmed", 190)
            await publish(publisher, "ann", range(201, 203))
            await client.until_events(2)
            assert [event.data for event in client.events] == [201, 202]
            client.check()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(("log", "meta"), "epoch"), (("log",), "trimmed"), (("meta",), "epoch")],
    ids=["both keys", "the stream", "the meta"],
)
async def test_a_deleted_log_is_a_resync(
    valkey: ValkeyProcess,
    prefix: str,
    gateway: GatewayProcess,
    publisher: AsyncPublisher,
    harm: tuple[str, ...],
    reason: str,
) -> None:
    """Also when the client had less than everything; and the next event is heard."""
    position = await visit(gateway, publisher, range(3))
    await publish(publisher, "ann", range(3, 6))
    valkey.cli("DEL", *(f"{prefix}:{{ann}}:{name}" for name in harm))
    async with Client(gateway.ws_url, mint("ann"), position=position) as client:
        await client.until_synced()
        assert [resync.reason for resync in client.resyncs] == [reason]
        await publisher.publish("ann", "n", 6)
        await client.until_events(1)
        assert client.events[0].data == 6
        client.check()


async def test_an_idle_client_at_the_top_survives_the_loss_of_the_entries(
    valkey: ValkeyProcess, prefix: str, gateway: GatewayProcess, publisher: AsyncPublisher
) -> None:
    """Meta outlives the entries, so an old position at the top can still be proved current."""
    position = await visit(gateway, publisher, range(3))
    valkey.cli("DEL", f"{prefix}:{{ann}}:log")
    async with Client(gateway.ws_url, mint("ann"), position=position) as client:
        await client.until_synced()
        assert client.resyncs == []
        await publisher.publish("ann", "n", 3)
        await client.until_events(1)
        client.check()


@pytest.mark.parametrize("beyond", [False, True], ids=["same seq", "ahead of the top"])
async def test_a_fork_is_a_resync(
    valkey: ValkeyProcess, prefix: str, gateway: GatewayProcess, publisher: AsyncPublisher, beyond: bool
) -> None:
    """A failover lost acknowledged writes and other events took their numbers: the tag in the position tells, or the
    position lies beyond the top."""
    log, meta = f"{prefix}:{{ann}}:log", f"{prefix}:{{ann}}:meta"
    await publish(publisher, "ann", range(3))
    saved_log, saved_meta = valkey.cli("DUMP", log), valkey.cli("DUMP", meta)
    position = await visit(gateway, publisher, range(3, 6))
    valkey.cli("RESTORE", log, 0, saved_log, "REPLACE")
    valkey.cli("RESTORE", meta, 0, saved_meta, "REPLACE")
    if not beyond:
        await publish(publisher, "ann", range(103, 107))
    async with Client(gateway.ws_url, mint("ann"), position=position) as client:
        await client.until_synced()
        assert [resync.reason for resync in client.resyncs] == ["ahead" if beyond else "epoch"]
        await publisher.publish("ann", "n", 200)
        await client.until_events(1)
        assert client.events[0].data == 200
        client.check()


async def test_a_fork_under_a_live_session_is_a_resync(
    valkey: ValkeyProcess, prefix: str, gateway: GatewayProcess, publisher: AsyncPublisher
) -> None:
    """Without any reconnect: the next record does not follow, the log is asked, and the session is told."""
    async with Client(gateway.ws_url, mint("ann")) as client:
        await client.until_synced()
        await publish(publisher, "ann", range(3))
        await client.until_events(3)
        valkey.cli("DEL", f"{prefix}:{{ann}}:log", f"{prefix}:{{ann}}:meta")
        await publish(publisher, "ann", range(3, 5))
        await until(lambda: bool(client.resyncs))
        await publish(publisher, "ann", range(5, 6))
        await until(lambda: client.events[-1].data == 5)
        assert client.connections == 1
        assert client.resyncs[0].reason == "epoch"


async def test_a_failed_refetch_keeps_the_older_position(gateway: GatewayProcess, publisher: AsyncPublisher) -> None:
    """The position of a resync is not stored before the page has its state: a reconnect sends the older one, and is
    told again."""
    failing = True

    async def refetch(_: str) -> None:
        if failing:
            raise OSError("the page's own backend is down")

    async with Client(gateway.ws_url, mint("ann"), position="epoch0001.5-1", refetch=refetch) as client:
        await client.until_synced()
        client.cut()
        await client.until_synced(connection=2)
        assert [resync.reason for resync in client.resyncs] == ["epoch", "epoch"]
        await until(lambda: client.refused == ["refetch: OSError"] * 2)
        failing = False
        client.cut()
        await client.until_synced(connection=3)
        await until(lambda: client.stored == client.position)
        client.cut()
        await client.until_synced(connection=4)
        assert len(client.resyncs) == 3
        client.check()


async def test_a_poisoned_entry_is_skipped_live_and_on_resume(
    valkey: ValkeyProcess, prefix: str, gateway: GatewayProcess, publisher: AsyncPublisher
) -> None:
    """Somebody else wrote into the stream through our script: `skip` in its place, no loop of reconnects."""
    from tidings.log import eventlog
    from tidings.log.names import Names

    async with Client(gateway.ws_url, mint("ann")) as client:
        await client.until_synced()
        await publisher.publish("ann", "n", 1)
        command = eventlog.append_command(Names(prefix), "ann", b"not json", epoch="x" * 8, tag=7)
        valkey.cli("EVAL", command.script.text, len(command.keys), *command.keys, *command.args)
        await publisher.publish("ann", "n", 2)
        await client.until_events(2)
        assert [item.event for item in client.chain] == ["n", None, "n"]
        fresh = Client(gateway.ws_url, mint("ann"), replay=3)
        async with fresh:
            await fresh.until_synced()
            assert [item.event for item in fresh.chain] == ["n", None, "n"]
            fresh.check()
        client.check()


async def test_big_numbers_and_ids(gateway: GatewayProcess, publisher: AsyncPublisher) -> None:
    """Integers a browser cannot hold are refused with their path; the others come back as they were; every id of ours
    is a string, and 9 comes before 10 (eliah-w/mastodon-api #34)."""
    from tidings.errors import InvalidEvent

    for good in (2**53 - 1, -(2**53 - 1), 0, 1e21, 0.1):
        await publisher.publish("ann", "n", {"value": good})
    for bad in (2**53, 2**53 + 1, 2**63, -(2**63), -(2**53), 10**30):
        with pytest.raises(InvalidEvent, match=r"data\.value"):
            await publisher.publish("ann", "n", {"value": bad})
    for number in range(15):
        await publisher.publish("ann", "n", {"value": number})
    raw = await RawSocket.connect(gateway.ws_url)
    async with raw:
        await raw.hello(mint("ann"), replay=100)
        events = [frame for frame in await raw.recv_until("synced") if frame["type"] == "event"]
        assert [event["data"]["value"] for event in events] == [2**53 - 1, -(2**53 - 1), 0, 1e21, 0.1, *range(15)]
        assert all(isinstance(event["id"], str) for event in events)
