"""A session between its hub and its transport."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.fakes import Desk, body, entry, page, position, turn
from tests.support.waiting import until
from tidings.errors import StoreUnavailable
from tidings.log.page import Page, ResyncReason
from tidings_gateway.core import frames
from tidings_gateway.core.frames import ephemeral_frame


async def test_nothing_is_read_before_the_subscription_is_confirmed() -> None:
    """Subscribed first, then caught up from the log: the other order has a hole."""
    desk = Desk()
    _, sink = desk.session(position(3))
    assert desk.bus.reads == []
    desk.confirm()
    assert [(at, last) for at, last, _ in desk.bus.reads] == [(position(3), 0)]
    await desk.bus.answer(page(3, 5))
    assert sink.types() == ["welcome", "event", "event", "synced"]
    assert [frame.get("replay") for frame in sink.said()[1:3]] == [True, True]


async def test_a_second_session_of_a_user_uses_the_subscription_that_is_there() -> None:
    """Its read goes out at once, without another SUBSCRIBE."""
    desk = Desk()
    await desk.live(0)
    desk.session(position(0))
    assert desk.bus.unanswered == 1
    assert desk.bus.log == ["want tidings:{ann}"]


async def test_live_records_go_straight_to_the_transport() -> None:
    """No queue and no task while the transport takes everything."""
    desk = Desk()
    session, sink = await desk.live(0)
    for seq in range(1, 4):
        desk.hear(entry(seq))
    assert sink.numbers() == [1, 2, 3]
    assert session.queued == 0
    assert sink.calls == []


async def test_a_paused_transport_is_not_written_to_and_loses_nothing() -> None:
    """What waits goes out in order once the transport takes it again; the writer then ends."""
    desk = Desk()
    session, sink = await desk.live(0)
    sink.paused = True
    for seq in range(1, 11):
        desk.hear(entry(seq))
    assert sink.numbers() == []
    assert session.queued == 10
    assert sink.calls == ["waiting"]
    sink.paused = False
    session.writable()
    await until(lambda: sink.numbers() == list(range(1, 11)))
    await until(lambda: sink.calls == ["waiting", "drained"])
    desk.hear(entry(11))
    assert sink.numbers()[-1] == 11


async def test_falling_behind_costs_a_log_read_not_the_connection() -> None:
    """More than the queue takes: the rest is read from the log when there is room, without a hole or a repeat."""
    desk = Desk()
    session, sink = await desk.live(0)
    sink.paused = True
    for seq in range(1, 31):
        desk.hear(entry(seq))
    assert session.queued == 16
    assert desk.bus.unanswered == 0, "no page is asked for that would find no room"
    sink.paused = False
    session.writable()
    await until(lambda: desk.bus.unanswered == 1)
    assert desk.bus.reads[-1][0] == position(16)
    await desk.bus.answer(page(16, 30, upto=24))
    await desk.bus.answer(page(24, 30))
    assert sink.numbers() == list(range(1, 31))
    desk.hear(entry(31))
    assert sink.numbers()[-1] == 31
    assert sink.types().count("synced") == 1, "a healed gap is invisible"


async def test_a_page_is_read_only_when_it_fits_beside_what_the_transport_holds() -> None:
    """The bytes of a client that does not read collect in the transport first; they are part of the bound."""
    desk = Desk()
    session, sink = desk.session(position(0))
    sink.held = 16_000
    sink.paused = True
    desk.confirm()
    assert desk.bus.unanswered == 0
    sink.held = 100
    sink.paused = False
    session.writable()
    assert desk.bus.unanswered == 1


async def test_a_gap_is_healed_from_the_log() -> None:
    """A record that does not follow is never sent; the log is asked instead."""
    desk = Desk()
    _, sink = await desk.live(0)
    desk.hear(entry(1))
    desk.hear(entry(3))
    assert sink.numbers() == [1]
    await desk.bus.answer(page(1, 3))
    assert sink.numbers() == [1, 2, 3]


async def test_an_ephemeral_is_offered_after_welcome_in_every_mode() -> None:
    """Not before welcome, but also while the session catches up."""
    desk = Desk()
    session, sink = desk.session(position(0))
    session.ephemeral(ephemeral_frame(body(1)))
    desk.confirm()
    await desk.bus.answer(page(0, 9, upto=8))
    assert desk.bus.unanswered == 1
    session.ephemeral(ephemeral_frame(body(2)))
    assert sink.types() == ["welcome", *["event"] * 8, "event"]
    assert "id" not in sink.said()[-1]


async def test_a_failed_read_is_tried_again() -> None:
    """A read that failed while the link stayed up must not be the end of the catch-up."""
    desk = Desk()
    _, sink = desk.session(position(0))
    desk.confirm()
    await desk.bus.answer(StoreUnavailable("busy"))
    await until(lambda: desk.bus.unanswered == 1, what="the read is tried again")
    await desk.bus.answer(page(0, 1))
    assert sink.numbers() == [1]


async def test_a_closed_session_lets_its_read_end_and_ignores_the_answer() -> None:
    """A client that goes away never cancels a command half-way."""
    desk = Desk()
    session, sink = desk.session(position(0))
    desk.confirm()
    session.close()
    assert not desk.bus.reads[0][2].cancelled()
    await desk.bus.answer(page(0, 1))
    assert sink.sent == []
    session.close()
    assert desk.bus.wanted == []


async def test_an_unprovable_position_is_answered_with_resync_then_synced() -> None:
    """welcome with resumed false, the resync at the same position, then synced."""
    desk = Desk()
    _, sink = desk.session(position(3))
    desk.confirm()
    await desk.bus.answer(Page(position(90), position(90), reason=ResyncReason.TRIMMED, missed=87))
    assert sink.types() == ["welcome", "resync", "synced"]
    welcome, resync, synced = sink.said()
    assert welcome["resumed"] is False
    assert welcome["position"] == resync["position"] == synced["position"] == position(90).decode()
    assert resync == {
        "type": "resync",
        "reason": "trimmed",
        "position": position(90).decode(),
        "missed": 87,
        "refetch_ms": 0,
    }


async def test_a_failover_spreads_the_refetch() -> None:
    """The page is given a window, so that a whole fleet does not ask the backend at once; after any other loss it is
    not to wait."""
    desk = Desk(failover_refetch_ms=30_000)
    top = position(90)
    for failed_over, window in ((True, 30_000), (False, 0)):
        _, sink = desk.session(position(3))
        desk.confirm()
        await desk.bus.answer(Page(top, top, reason=ResyncReason.EPOCH, failed_over=failed_over))
        assert [said["refetch_ms"] for said in sink.said() if said["type"] == "resync"] == [window]


async def test_a_stopped_session_still_flushes() -> None:
    """A drain takes nothing new and loses nothing queued."""
    desk = Desk()
    session, sink = await desk.live(0)
    sink.paused = True
    desk.hear(entry(1))
    session.stop()
    desk.hear(entry(2))
    session.control(frames.goodbye(1012, 5000))
    sink.paused = False
    session.writable()
    await until(lambda: sink.types()[-1] == "goodbye")
    assert sink.numbers() == [1]


async def test_a_client_that_asks_and_never_reads_is_let_go() -> None:
    """Answers are control frames, which are always taken, up to a bound."""
    desk = Desk()
    session, sink = await desk.live(0)
    sink.paused = True
    for _ in range(500):
        session.control(frames.auth(1000))
        if "overrun" in sink.calls:
            break
    assert "overrun" in sink.calls
    assert session.queued <= 16 + 64
    session.close()


async def test_a_writer_that_dies_ends_the_session() -> None:
    """Every task has an owner who notices its death."""
    desk = Desk()
    session, sink = await desk.live(0)
    sink.paused = True
    desk.hear(entry(1))

    def broken(_: object) -> None:
        raise OSError("the transport is broken")

    sink.send = broken  # type: ignore[assignment,method-assign]
    sink.paused = False
    session.writable()
    await until(lambda: "failed" in sink.calls)
    session.close()


async def test_the_writer_gives_others_their_turn() -> None:
    """A session's backlog must not hold the event loop: other work runs between two batches."""
    desk = Desk(queue_events=256, queue_bytes=1_000_000, page_bytes=4096)
    session, sink = await desk.live(0)
    sink.paused = True
    for seq in range(1, 11):
        desk.hear(entry(seq, size=40_000))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while len(sink.numbers()) < 10:
            turns += 1
            await asyncio.sleep(0)

    sink.paused = False
    session.writable()
    await asyncio.wait_for(other(), 5)
    assert turns >= 5
    await turn()


async def test_what_is_queued_as_the_writer_ends_is_written_too() -> None:
    """Between the writer's last look at the queue and the moment its end is noticed a frame may be queued, because the
    last batch filled the transport: the frame goes out as soon as there is room, not with the next one."""
    desk = Desk()
    session, sink = await desk.live(0)
    sink.paused = True
    desk.hear(entry(1))
    await turn()
    loop = asyncio.get_running_loop()
    sent = sink.send

    def fill(frame: frames.Frame) -> None:
        sent(frame)
        sink.paused = True
        # Runs after the writer's step and before its done-callback, which the loop schedules behind this.
        loop.call_soon(desk.hear, entry(2))

    sink.send = fill  # type: ignore[method-assign]
    sink.paused = False
    session.writable()
    await turn()
    assert sink.numbers() == [1]
    assert session.queued == 1
    sink.send = sent  # type: ignore[method-assign]
    sink.paused = False
    session.writable()
    await until(lambda: sink.numbers() == [1, 2], 2, "the frame goes out")
    session.close()


async def test_nothing_follows_a_stop_but_control_frames() -> None:
    """A page under way, and whatever the hub still brings, is not sent behind the goodbye, nor after a token's end."""
    desk = Desk()
    session, sink = desk.session(position(0))
    desk.confirm()
    await desk.bus.answer(page(0, 20, upto=8))
    assert desk.bus.unanswered == 1
    session.stop()
    session.control(frames.goodbye(1012, 5000))
    await desk.bus.answer(page(8, 20, upto=16))
    session.durable(entry(9), desk.hub.durable_frame(entry(9)))
    session.ephemeral(ephemeral_frame(body(1)))
    assert sink.types()[-1] == "goodbye"
    assert sink.numbers() == list(range(1, 9))
    assert desk.bus.unanswered == 0
    session.close()


async def test_an_error_behind_a_read_ends_the_session(caplog: pytest.LogCaptureFixture) -> None:
    """The event loop calls a session directly when its page comes: an error there must not leave one that only seems
    to be open."""
    desk = Desk()
    session, sink = desk.session(position(0))
    desk.confirm()

    def broken(*_: object, **__: object) -> frames.Frame:
        raise TypeError("cannot be encoded")

    sink.open_frame = broken  # type: ignore[method-assign]
    await desk.bus.answer(page(0, 1))
    assert sink.calls == ["failed"]
    assert "cannot be encoded" in caplog.text
    session.close()


async def test_what_is_counted_is_what_happened() -> None:
    """Straight or out of the queue, coalesced, dropped, left to the log; each once, also when the queue goes away with
    its session: a counter that goes back looks like a restart."""
    desk = Desk(queue_events=16)
    counts = desk.hub.counts
    session, sink = await desk.live(0)
    desk.hear(entry(1))
    assert counts.sent_durable == 1
    sink.paused = True
    for seq in range(2, 12):
        desk.hear(entry(seq))
    for number in (1, 2, 3):
        session.ephemeral(ephemeral_frame(b'{"event":"p","data":%d,"time":1}' % number))
    for number in range(8):
        session.ephemeral(ephemeral_frame(b'{"event":"q","data":1,"time":1,"key":"%d"}' % number))
    assert (counts.coalesced, counts.queue_full) == (2, 3)
    assert (counts.sent_durable, counts.sent_ephemeral) == (1, 0)
    for seq in range(12, 21):
        desk.hear(entry(seq))  # six ephemerals make way; one entry does not fit, and those behind it are not asked
    assert (counts.queue_full, counts.fell_behind) == (9, 1)
    assert session.queued_bytes > 0
    sink.paused = False
    session.writable()
    await until(lambda: session.queued == 0)
    assert (counts.sent_durable, counts.sent_ephemeral) == (17, 0)
    session.close()
    assert (counts.coalesced, counts.queue_full, session.queued_bytes) == (2, 9, 0)


@pytest.mark.parametrize("reason", [None, *ResyncReason])
async def test_what_became_of_a_position_is_counted(reason: ResyncReason | None) -> None:
    """Resumed, or why not; and none given is a start, which is no resync."""
    desk = Desk()
    counts = desk.hub.counts
    desk.session(position(3))
    desk.confirm()
    await desk.bus.answer(Page(position(3), position(3), reason=reason))
    desk.session(None)
    await desk.bus.answer(Page(position(3), position(3)))
    told = "resumed" if reason is None else reason.value
    assert counts.resumes == {told: 1, "start": 1}
    assert counts.resyncs == ({} if reason is None else {told: 1})
    assert (counts.pages, counts.pages_failed) == (2, 0)
    desk.session(position(3))
    await desk.bus.answer(StoreUnavailable("away"))
    assert (counts.pages, counts.pages_failed) == (2, 1)
