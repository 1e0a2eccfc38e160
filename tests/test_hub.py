"""The hub between the bus and the sessions."""

from __future__ import annotations

import json

import pytest

from tests.support.fakes import Desk, body, entry, page, position
from tidings.log.record import DurableRecord, encode_control, encode_ephemeral
from tidings_gateway.session import Session


async def test_one_tab_leaves_and_the_others_stay() -> None:
    """The subscription is one per user and goes with the last session only (louischatriot/node-redis-pubsub #40)."""
    desk = Desk()
    first, _ = await desk.live(0)
    second, sink = desk.session(position(0))
    await desk.bus.answer(page(0, 0))
    third, _ = desk.session(position(0))
    await desk.bus.answer(page(0, 0))
    first.close()
    third.close()
    desk.hear(entry(1))
    assert sink.numbers() == [1]
    assert desk.bus.wanted == [b"tidings:{ann}"]
    second.close()
    assert desk.bus.wanted == []
    assert desk.bus.log == ["want tidings:{ann}", "unwant tidings:{ann}"]


async def test_the_late_end_of_a_dead_socket_takes_nothing_from_the_new_one() -> None:
    """Closing a session twice, or after its user's next one opened, leaves that one subscribed (socketio/socket.io
    #4880)."""
    desk = Desk()
    old, _ = await desk.live(0)
    new, sink = desk.session(position(0))
    await desk.bus.answer(page(0, 0))
    old.close()
    old.close()
    desk.hub.leave(old)
    desk.hear(entry(1))
    assert sink.numbers() == [1]
    assert desk.bus.wanted == [b"tidings:{ann}"]
    new.close()


async def test_a_frame_is_built_once_for_all_sessions_of_a_user() -> None:
    """The very same object goes to each of them."""
    desk = Desk()
    _, first = await desk.live(0)
    _, second = desk.session(position(0))
    await desk.bus.answer(page(0, 0))
    desk.hear(entry(1))
    assert first.sent[-1] is second.sent[-1]


async def test_users_do_not_hear_each_other() -> None:
    """A record reaches the sessions of its channel and no other."""
    desk = Desk()
    _, ann = await desk.live(0, "ann")
    _, bob = await desk.live(0, "bob")
    desk.hear(entry(1), "ann")
    assert (ann.numbers(), bob.numbers()) == ([1], [])
    desk.hear(entry(1), "nobody")


async def test_an_entry_that_cannot_be_delivered_is_skipped_and_the_position_moves() -> None:
    """A bad body is replaced by `skip`, counted, and the next event follows it."""
    desk = Desk()
    _, sink = await desk.live(0)
    desk.hear(DurableRecord(position(0), position(1), b"not json"))
    desk.hear(entry(2))
    assert sink.said()[-2] == {"type": "skip", "id": position(1).decode()}
    assert sink.numbers() == [2]
    assert desk.hub.counts.skipped == 1


async def test_a_bad_entry_in_a_page_is_skipped_too() -> None:
    """The same rule for what comes from the log."""
    desk = Desk()
    _, sink = desk.session(position(0))
    desk.confirm()
    bad = DurableRecord(position(0), position(1), b'{"event":"n"}')
    await desk.bus.answer(type(page(0, 2))(position(0), position(2), (bad, entry(2))))
    assert sink.types() == ["welcome", "skip", "event", "synced"]


async def test_foreign_messages_on_a_channel_are_dropped_and_counted() -> None:
    """No traceback and no frame for a message that is not ours, or whose positions are not neighbours."""
    desk = Desk()
    _, sink = await desk.live(0)
    channel = desk.hub.channel("ann")
    for payload in (b"", b"hello", b"e\n{}", b"x\nnot json", b"x\n{}"):
        desk.hub.record_received(channel, payload)
    desk.hear(DurableRecord(position(0), position(5), body(5)))
    assert sink.types() == ["welcome", "synced"]
    assert desk.hub.counts.unreadable == 6
    assert desk.bus.unanswered == 0
    desk.hub.record_received(channel, encode_control(b'{"type":"unknown"}'))
    assert desk.hub.counts.unreadable == 6


async def test_an_ephemeral_reaches_every_session() -> None:
    """It has no id and is not part of the log."""
    desk = Desk()
    _, first = await desk.live(0)
    _, second = desk.session(position(0))
    await desk.bus.answer(page(0, 0))
    desk.hub.record_received(desk.hub.channel("ann"), encode_ephemeral(body(1)))
    for sink in (first, second):
        assert "id" not in json.loads(sink.sent[-1].payload)


async def test_a_lost_link_is_felt_by_every_session_and_by_no_client() -> None:
    """All feeds catch up again after the link is back; the client sees events only."""
    desk = Desk()
    _, ann = await desk.live(0, "ann")
    _, bob = await desk.live(0, "bob")
    desk.hub.link_lost()
    desk.hear(entry(1), "ann")
    assert ann.numbers() == []
    desk.confirm("ann", 2)
    desk.confirm("bob", 2)
    await desk.bus.answer(page(0, 2))
    await desk.bus.answer(page(0, 1))
    assert (ann.numbers(), bob.numbers()) == ([1, 2], [1])
    assert ann.types().count("synced") == 1


async def test_one_channel_lost_and_regained() -> None:
    """`channel_off` puts the sessions of that channel in doubt and no others."""
    desk = Desk()
    _, ann = await desk.live(0, "ann")
    _, bob = await desk.live(0, "bob")
    desk.hub.channel_off(desk.hub.channel("ann"))
    desk.hear(entry(1), "bob")
    assert bob.numbers() == [1]
    desk.confirm("ann", 2)
    await desk.bus.answer(page(0, 1))
    assert ann.numbers() == [1]


@pytest.mark.parametrize("what", ["durable", "ephemeral", "link_back", "link_lost", "off"])
async def test_a_session_that_fails_is_ended_and_the_others_are_told(
    what: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six sessions of a user one raises: the five others hear it all, and only that one ends."""
    desk = Desk()
    pairs = [await desk.live(0)]
    for _ in range(5):
        pairs.append(desk.session(position(0)))
        await desk.bus.answer(page(0, 0))
    bad, bad_sink = pairs[2]
    told: list[Session] = []
    name = {"off": "link_lost"}.get(what, what)
    original = getattr(Session, name)

    def watched(session: Session, *args: object, **more: object) -> None:
        if session is bad:
            raise RuntimeError("broken on purpose")
        told.append(session)
        original(session, *args, **more)

    monkeypatch.setattr(Session, name, watched)
    channel = desk.hub.channel("ann")
    match what:
        case "durable":
            desk.hear(entry(1))
        case "ephemeral":
            desk.hub.record_received(channel, encode_ephemeral(body(1)))
        case "link_back":
            desk.confirm(generation=2)
        case "link_lost":
            desk.hub.link_lost()
        case _:
            desk.hub.channel_off(channel)
    assert len(told) == 5
    assert bad_sink.calls == ["failed"]
    assert "broken on purpose" in caplog.text
    for session, _ in pairs:
        session.close()
