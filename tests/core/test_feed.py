"""The feed, one promise at a time: start, live, catching up. What may go wrong meanwhile is in `test_feed_trouble`,
every interleaving in `test_feed_schedules` and `test_feed_machine`."""

from __future__ import annotations

import pytest

from tests.core.feeds import PLENTY, answer, catch_up, issued, live_feed, new_feed, new_log
from tidings.log.page import Page, ResyncReason
from tidings.log.record import DurableRecord
from tidings_gateway.core.feed import (
    Opened,
    ReadAfter,
    Resync,
    RetryLater,
    Send,
    Synced,
)
from tidings_gateway.core.outbox import Budget


class TestStart:
    def test_nothing_is_read_before_the_subscription_is_confirmed(self) -> None:
        """Otherwise an event between the read and the subscription would be lost without a trace."""
        feed = new_feed()
        assert feed.has_room() == ()
        assert not feed.opened
        assert issued(feed.link_back(1, room=True)) == ReadAfter(1, None, 0)

    def test_without_a_position_it_starts_at_the_top(self) -> None:
        """resumed false, nothing replayed, and synced at once."""
        log = new_log(3)
        feed = new_feed()
        effects = answer(feed, log, issued(feed.link_back(1, room=True)))
        assert effects == [Opened(False, log.top), Synced(log.top, 0)]
        assert feed.live

    def test_a_user_without_events_has_a_position(self) -> None:
        """So that a client can resume before it ever received anything."""
        log = new_log()
        feed = live_feed(log)
        again = new_feed(feed.position)
        first = log.append(b"first")
        effects = answer(again, log, issued(again.link_back(1, room=True)))
        assert effects == [Opened(True, feed.position), Send(first, True), Synced(first.position, 1)]

    def test_resume_replays_what_was_missed(self) -> None:
        """From the position asked for, marked as replay, counted in synced."""
        log = new_log(2)
        position = log.top
        missed = [log.append(b"%d" % index) for index in range(3)]
        feed = new_feed(position)
        effects = answer(feed, log, issued(feed.link_back(1, room=True)))
        assert effects == [Opened(True, position), *(Send(r, True) for r in missed), Synced(log.top, 3)]

    def test_resume_twice_with_nothing_between(self) -> None:
        """The same position is as good the second time."""
        log = new_log(2)
        for _ in range(2):
            feed = new_feed(log.top)
            effects = answer(feed, log, issued(feed.link_back(1, room=True)))
            assert effects == [Opened(True, log.top), Synced(log.top, 0)]

    def test_the_last_n(self) -> None:
        """resumed false; the position is before the oldest replayed; N counts only in the first read."""
        log = new_log()
        records = [log.append(b"%d" % index) for index in range(5)]
        feed = new_feed(last=3)
        read = issued(feed.link_back(1, room=True))
        assert read.last == 3
        effects = list(answer(feed, log, read, limit=2))
        assert effects == [Opened(False, records[1].position), Send(records[2], True), Send(records[3], True)]
        read = issued(feed.has_room())
        assert read == ReadAfter(2, records[3].position, 0)
        assert answer(feed, log, read) == [Send(records[4], True), Synced(log.top, 3)]

    def test_a_position_wins_over_the_last_n(self) -> None:
        """`replay` counts only when no position was sent."""
        assert issued(new_feed(b"Abcdefgh.0-0", last=7).link_back(1, room=True)).last == 0

    @pytest.mark.parametrize("reason", list(ResyncReason))
    def test_a_position_that_cannot_be_proved(self, reason: ResyncReason) -> None:
        """resumed false at the top, then the resync with the same position, then synced."""
        top = b"Abcdefgh.9-1"
        feed = new_feed(b"Abcdefgh.2-2")
        read = issued(feed.link_back(1, room=True))
        effects = feed.page(Page(top, top, reason=reason, missed=7), read.read_id, budget=PLENTY)
        assert effects == [Opened(False, top), Resync(reason, top, 7), Synced(top, 0)]

    def test_a_change_of_primary_is_passed_on(self) -> None:
        """Everybody is told the same, so the refetch has to be spread; of what was no position at all it says
        nothing."""
        top = b"Abcdefgh.9-1"
        page = Page(top, top, reason=ResyncReason.EPOCH, failed_over=True)
        feed = new_feed(b"Bcdefghi.2-2")
        effects = feed.page(page, issued(feed.link_back(1, room=True)).read_id, budget=PLENTY)
        assert effects[1] == Resync(ResyncReason.EPOCH, top, None, failed_over=True)
        feed = new_feed(b"garbage", invalid=True)
        effects = feed.page(page, issued(feed.link_back(1, room=True)).read_id, budget=PLENTY)
        assert effects[1] == Resync(ResyncReason.INVALID, top, None, failed_over=False)

    def test_what_is_no_position_is_a_resync(self) -> None:
        """Never a close, and never 'from now' in disguise."""
        log = new_log(2)
        feed = new_feed(b"garbage", invalid=True, last=5)
        read = issued(feed.link_back(1, room=True))
        assert (read.position, read.last) == (None, 0)
        effects = answer(feed, log, read)
        assert effects == [Opened(False, log.top), Resync(ResyncReason.INVALID, log.top, None), Synced(log.top, 0)]

    def test_a_first_read_that_fails_is_asked_again_as_it_was(self) -> None:
        """A store that was away for a moment must not turn a replay into a start at the top."""
        feed = new_feed(last=4)
        read = issued(feed.link_back(1, room=True))
        assert feed.read_failed(read.read_id) == [RetryLater(0)]
        assert issued(feed.retry(True)) == ReadAfter(2, None, 4)


class TestLive:
    def test_a_record_that_follows_is_sent(self) -> None:
        """By `accept`, or by `record` with room; never marked as replay after synced."""
        log = new_log(1)
        feed = live_feed(log)
        first, second = log.append(b"1"), log.append(b"2")
        assert feed.accept(first)
        assert feed.record(second, room=True) == (Send(second, False),)
        assert feed.position == second.position
        assert feed.replayed == 0

    def test_accept_changes_nothing_when_it_refuses(self) -> None:
        """So that the same record can be handed to `record`."""
        log = new_log(1)
        feed = live_feed(log)
        log.append(b"missed")
        gap = log.append(b"gap")
        position = feed.position
        assert not feed.accept(gap)
        assert feed.live
        assert feed.position == position

    def test_duplicates_are_dropped_without_a_read(self) -> None:
        """Cluster publishers repeat a record after ASK; that must not cost every session a read."""
        log = new_log()
        feed = live_feed(log)
        records = [log.append(b"%d" % index) for index in range(3)]
        for record in records:
            assert feed.accept(record)
        for record in records:
            assert not feed.accept(record)
            assert feed.record(record, room=True) == ()
        assert feed.live

    @pytest.mark.parametrize(
        ("before", "position"),
        [
            pytest.param(b"Abcdefgh.7-1", b"Abcdefgh.8-2", id="gap"),
            pytest.param(b"Abcdefgh.4-4", b"Abcdefgh.5-6", id="my seq with another tag: a fork"),
            pytest.param(b"Abcdefgh.5-6", b"Abcdefgh.6-7", id="the next seq after another tag: a fork"),
            pytest.param(b"Zyxwvuts.0-0", b"Zyxwvuts.1-2", id="another epoch"),
            pytest.param(b"Zyxwvuts.3-0", b"Zyxwvuts.4-2", id="another epoch, below my seq"),
            pytest.param(b"?", b"!", id="no positions at all"),
        ],
    )
    def test_everything_else_is_a_doubt_and_a_read_settles_it(self, before: bytes, position: bytes) -> None:
        """Never sent, never taken for a duplicate: only the log can say what it means."""
        top = b"Abcdefgh.5-5"
        feed = new_feed()
        feed.page(Page(top, top), issued(feed.link_back(1, room=True)).read_id, budget=PLENTY)
        assert feed.live
        assert feed.record(DurableRecord(before, position, b"x"), room=True) == ()
        assert feed.wants_room
        read = issued(feed.has_room())
        assert read.position == top
        assert feed.page(Page(top, top), read.read_id, budget=PLENTY) == []
        assert feed.live

    def test_a_lost_record_is_noticed_with_the_next_one(self) -> None:
        """The healed gap is invisible: no replay flag, no second synced."""
        log = new_log(1)
        feed = live_feed(log)
        lost, heard = log.append(b"lost"), log.append(b"heard")
        feed.record(heard, room=True)
        assert catch_up(feed, log) == [Send(lost, False), Send(heard, False)]

    def test_a_full_outbox_costs_a_read_and_not_a_reconnect(self) -> None:
        """Told before (`record` without room) or after (`overflowed`), the record comes again with the page."""
        log = new_log(1)
        feed = live_feed(log)
        first = log.append(b"1")
        feed.record(first, room=False)
        assert not feed.live
        assert catch_up(feed, log) == [Send(first, False)]
        second = log.append(b"2")
        assert feed.accept(second)
        feed.overflowed(second)
        assert not feed.live
        assert catch_up(feed, log) == [Send(second, False)]


class TestCatchUp:
    def test_held_records_follow_the_page(self) -> None:
        """Published after the read and heard before its answer: sent behind the page, once, in order."""
        log = new_log(2)
        feed = new_feed(b"")
        read = issued(feed.link_back(1, room=True))
        page = log.read_after(read.position)
        held = [log.append(b"%d" % index) for index in range(3)]
        for record in held:
            assert feed.record(record, room=True) == ()
        effects = feed.page(page, read.read_id, budget=PLENTY)
        assert effects == [Opened(False, page.start), *(Send(r, True) for r in held), Synced(log.top, 3)]

    def test_records_in_both_the_page_and_the_held_are_sent_once(self) -> None:
        """Published between the issue and the read, they come both ways."""
        log = new_log(1)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        records = [log.append(b"%d" % index) for index in range(3)]
        for record in records:
            feed.record(record, room=True)
        effects = answer(feed, log, read)
        assert [effect.record for effect in effects if isinstance(effect, Send)] == records
        assert feed.live

    def test_page_by_page_each_when_there_is_room(self) -> None:
        """A slow client goes at its own pace and costs nothing while it waits."""
        log = new_log()
        start = log.top
        records = [log.append(b"%d" % index) for index in range(5)]
        feed = new_feed(start)
        answer(feed, log, issued(feed.link_back(1, room=True)), limit=2)
        assert feed.wants_room
        records.append(log.append(b"heard while nothing is read"))
        feed.record(records[-1], room=True)
        assert feed._held is None
        answer(feed, log, issued(feed.has_room()), limit=2)
        assert not feed.live
        effects = answer(feed, log, issued(feed.has_room()), limit=2)
        assert effects == [Send(records[4], True), Send(records[5], True), Synced(log.top, 6)]

    def test_no_read_without_room(self) -> None:
        """A page that could not be queued would be read for nothing."""
        feed = new_feed()
        assert feed.link_back(1, room=False) == ()
        assert feed.wants_room
        issued(feed.has_room())

    def test_held_beyond_the_bound_are_forgotten_and_read(self) -> None:
        """By count and by bytes. Nothing is lost: the page cannot be the last one."""
        for held, held_bytes in ((2, 1000), (100, 2)):
            log = new_log(1)
            feed = new_feed(log.top, held=held, held_bytes=held_bytes)
            read = issued(feed.link_back(1, room=True))
            page = log.read_after(read.position)
            records = [log.append(b"1") for _ in range(3)]
            for record in records:
                feed.record(record, room=True)
            assert feed._held is None
            assert feed.page(page, read.read_id, budget=PLENTY) == [Opened(True, page.start)]
            assert catch_up(feed, log) == [*(Send(r, True) for r in records), Synced(log.top, 3)]

    def test_a_break_in_the_held_is_read_again(self) -> None:
        """What was lost in between is in the log; the held records behind it are not sent first."""
        log = new_log(1)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        page = log.read_after(read.position)
        first, _lost, third = (log.append(b"%d" % index) for index in range(3))
        feed.record(first, room=True)
        feed.record(third, room=True)
        assert feed.page(page, read.read_id, budget=PLENTY) == [Opened(True, page.start), Send(first, True)]
        assert feed.wants_room

    def test_held_records_keep_within_the_budget(self) -> None:
        """What does not fit beside the page is forgotten and read again when there is room."""
        log = new_log(1)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        paged = log.append(b"in the page")
        page = log.read_after(read.position)
        held = [log.append(b"%d" % index) for index in range(3)]
        for record in held:
            feed.record(record, room=True)
        effects = feed.page(page, read.read_id, budget=Budget(2, 100_000))
        assert effects == [Opened(True, page.start), Send(paged, True), Send(held[0], True)]
        assert catch_up(feed, log) == [Send(held[1], True), Send(held[2], True), Synced(log.top, 4)]

    def test_a_page_is_sent_whatever_the_budget(self) -> None:
        """Its room was there when the read was issued."""
        log = new_log()
        start = log.top
        record = log.append(b"1")
        feed = new_feed(start)
        effects = answer(feed, log, issued(feed.link_back(1, room=True)), budget=Budget(0, 0))
        assert effects == [Opened(True, start), Send(record, True), Synced(log.top, 1)]

    def test_a_hole_inside_a_page_ends_it(self) -> None:
        """Whatever the store does: what does not follow is not sent."""
        log = new_log()
        start = log.top
        first, _second, third = (log.append(b"%d" % index) for index in range(3))
        feed = new_feed(start)
        read = issued(feed.link_back(1, room=True))
        effects = feed.page(Page(start, third.position, (first, third)), read.read_id, budget=PLENTY)
        assert effects == [Opened(True, start), Send(first, True)]
        assert feed.wants_room

    def test_a_page_from_elsewhere_is_no_answer(self) -> None:
        """To go on from a page that starts at another position would be a hole."""
        log = new_log(3)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        elsewhere = b"Abcdefgh.0-0"
        assert feed.page(Page(elsewhere, elsewhere), read.read_id, budget=PLENTY) == [RetryLater(0)]
        assert feed.position == log.top
