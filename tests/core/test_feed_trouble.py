"""The feed when something is wrong: a link that is lost, a log that is no longer the same, reads that bring nothing."""

from __future__ import annotations

import itertools

from tests.core.feeds import PLENTY, answer, catch_up, issued, live_feed, new_feed, new_log
from tidings.log.page import ResyncReason
from tidings.log.record import DurableRecord
from tidings_gateway.core.feed import (
    MAX_FUTILE_READS,
    Effects,
    Opened,
    ReadAfter,
    Resync,
    RetryLater,
    Send,
    Synced,
)


class TestLink:
    def test_a_lost_link_is_invisible_to_the_client(self) -> None:
        """What was published meanwhile is read when the link is back: no resync, no reconnect, no replay flag."""
        log = new_log(1)
        feed = live_feed(log)
        assert feed.link_lost() == ()
        missed = log.append(b"published while nobody listened")
        assert not feed.live
        assert feed.has_room() == ()
        effects = answer(feed, log, issued(feed.link_back(2, room=True)))
        assert effects == [Send(missed, False)]
        assert feed.live

    def test_a_page_asked_for_before_the_link_was_lost_is_not_the_last(self) -> None:
        """It is sent, since it is proved; but an event between it and the new confirmation was not heard."""
        log = new_log(1)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        first = log.append(b"1")
        page = log.read_after(read.position)
        feed.link_lost()
        missed = log.append(b"heard by nobody")
        assert feed.link_back(2, room=True) == ()
        assert feed.page(page, read.read_id, budget=PLENTY) == [Opened(True, page.start), Send(first, True)]
        assert catch_up(feed, log) == [Send(missed, True), Synced(log.top, 2)]

    def test_also_when_the_new_confirmation_has_the_same_generation(self) -> None:
        """A channel can be lost and confirmed again on a link that stays (a slot moved away and back)."""
        log = new_log(1)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        page = log.read_after(read.position)
        feed.link_lost()
        log.append(b"heard by nobody")
        feed.link_back(1, room=True)
        feed.page(page, read.read_id, budget=PLENTY)
        assert not feed.live

    def test_a_page_may_arrive_while_the_link_is_down(self) -> None:
        """It is sent; the next read waits for the link."""
        log = new_log(1)
        feed = new_feed(log.top)
        read = issued(feed.link_back(1, room=True))
        record = log.append(b"1")
        feed.link_lost()
        assert answer(feed, log, read) == [Opened(True, record.before), Send(record, True)]
        assert feed.has_room() == ()
        issued(feed.link_back(2, room=True))

    def test_a_confirmation_without_a_loss_counts_as_one(self) -> None:
        """Between two confirmations there may have been a hole that nobody told."""
        log = new_log(1)
        feed = live_feed(log)
        issued(feed.link_back(1, room=True))
        assert not feed.live

    def test_one_read_at_a_time(self) -> None:
        """A new link does not ask again before the old question is answered or given up."""
        feed = new_feed()
        read = issued(feed.link_back(1, room=True))
        feed.link_lost()
        assert feed.link_back(2, room=True) == ()
        assert feed.has_room() == ()
        assert feed.read_failed(read.read_id) == []
        assert issued(feed.has_room()).read_id == read.read_id + 1

    def test_an_answer_to_a_read_that_was_given_up_is_ignored(self) -> None:
        """It may be older than what was sent since."""
        log = new_log(1)
        feed = new_feed()
        old = issued(feed.link_back(1, room=True))
        page = log.read_after(None)
        feed.read_failed(old.read_id)
        issued(feed.retry(True))
        assert feed.page(page, old.read_id, budget=PLENTY) == ()
        assert feed.read_failed(old.read_id) == ()
        assert not feed.opened


class TestResync:
    def test_a_fork_after_a_failover(self) -> None:
        """The client saw an entry that the new primary never had; the new one wrote another in its place."""
        log = new_log(3)
        feed = live_feed(log)
        other = log.fork(1)
        other.append(b"another third")
        feed.link_lost()
        effects = answer(feed, other, issued(feed.link_back(2, room=True)))
        assert effects == [Resync(ResyncReason.EPOCH, other.top, None)]
        assert feed.live

    def test_acknowledged_entries_lost_by_redis(self) -> None:
        """The position goes back, and what comes next is sent again under the same numbers."""
        log = new_log(3)
        feed = live_feed(log)
        other = log.fork(2)
        feed.link_lost()
        effects = answer(feed, other, issued(feed.link_back(2, room=True)))
        assert effects == [Resync(ResyncReason.AHEAD, other.top, None)]
        assert feed.accept(other.append(b"next"))

    def test_a_wiped_log_is_noticed_with_its_next_event(self) -> None:
        """The record of another epoch leads to a read, the read to a resync, and the new epoch goes on live."""
        log = new_log(3)
        feed = live_feed(log)
        log.wipe()
        feed.record(log.append(b"first of the new epoch"), room=True)
        assert catch_up(feed, log) == [Resync(ResyncReason.EPOCH, log.top, None)]
        assert feed.accept(log.append(b"second"))

    def test_behind_the_retention(self) -> None:
        """Older than what is kept: trimmed, with the number missed, and never a part shown as the whole."""
        log = new_log(3)
        position = log.top
        for _ in range(5):
            log.append(b"x")
        log.trim(2)
        feed = new_feed(position)
        effects = answer(feed, log, issued(feed.link_back(1, room=True)))
        assert Resync(ResyncReason.TRIMMED, log.top, 5) in effects

    def test_never_straight_to_live(self) -> None:
        """What was published after the read that found the hole is held and follows the resync."""
        log = new_log(3)
        feed = live_feed(log)
        log.wipe()
        feed.record(log.append(b"1"), room=True)
        read = issued(feed.has_room())
        page = log.read_after(read.position)
        second = log.append(b"2")
        feed.record(second, room=True)
        effects = feed.page(page, read.read_id, budget=PLENTY)
        assert effects == [Resync(ResyncReason.EPOCH, page.top, None), Send(second, False)]

    def test_records_of_the_old_epoch_held_beside_it_cost_one_more_read(self) -> None:
        """Which of two epochs is the newer one, only the log can say."""
        log = new_log(3)
        position = log.top
        feed = new_feed(position)
        read = issued(feed.link_back(1, room=True))
        feed.record(log.append(b"of the old epoch"), room=True)
        log.wipe()
        answer(feed, log, read)
        assert feed.wants_room
        assert catch_up(feed, log) == [Synced(log.top, 0)]


class TestFutileReads:
    def test_the_waits_grow_until_something_works(self) -> None:
        """Each failure raises the attempt; being live again starts it anew."""
        log = new_log(1)
        feed = new_feed()
        read = issued(feed.link_back(1, room=True))
        for attempt in range(5):
            assert feed.read_failed(read.read_id) == [RetryLater(attempt)]
            assert feed.has_room() == ()
            read = issued(feed.retry(True))
        answer(feed, log, read)
        feed.record(DurableRecord(b"Elsewhere.0-0", b"Elsewhere.1-1", b""), room=True)
        assert feed.read_failed(issued(feed.has_room()).read_id) == [RetryLater(0)]

    def test_a_stream_of_strange_records_is_no_loop_of_reads(self) -> None:
        """Each of them is a doubt that the log cannot settle. After a few reads for nothing they wait."""
        log = new_log(1)
        feed = live_feed(log)
        serial = itertools.count(1)

        def strange() -> None:
            feed.record(
                DurableRecord(b"Elsewhere.%d-1" % next(serial), b"Elsewhere.%d-1" % next(serial), b""), room=True
            )

        strange()
        reads = 0
        effects: Effects = feed.has_room()
        while effects and isinstance(effects[0], ReadAfter):
            reads += 1
            strange()
            effects = answer(feed, log, effects[0]) or feed.has_room()
        assert reads == MAX_FUTILE_READS
        assert [type(effect) for effect in effects] == [RetryLater]
        answer(feed, log, issued(feed.retry(True)))
        assert feed.live

    def test_a_new_link_does_not_wait(self) -> None:
        """Failures of the old link say nothing about the new one."""
        feed = new_feed()
        feed.read_failed(issued(feed.link_back(1, room=True)).read_id)
        feed.link_lost()
        assert feed.retry(True) == ()
        issued(feed.link_back(2, room=True))
