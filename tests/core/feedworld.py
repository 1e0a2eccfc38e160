"""Everything around one feed, in one thread and without a clock: a log and its publishers, a primary that may fail
over, a subscription that may lose, repeat and reorder, a reader that answers late or not at all, and a client as slow
as it likes.

Each operation takes a number, so that a schedule of them can be drawn at random. What the feed sends is judged by the
`Oracle`. How it behaves is judged here, after each operation:

- one read at a time, only with a confirmed subscription, only with room for a page, only a few in a row for nothing;
- the outbox and the held records stay within their bounds;
- whoever is live, and has missed nothing since the log was read, is at the log's top;
- whoever is not live waits for exactly one thing that is bound to come;
- when the faults end, the feed is live at the top after a bounded number of steps (`heal`).

What nobody can notice is excepted: the subscription silently lost the newest record. It is noticed with the next record
or the next change of the link, and that is checked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from tests.core.oracle import Oracle
from tests.support.modellog import ModelLog, Truth, spell
from tidings.log.page import Page
from tidings.log.record import DurableRecord
from tidings_gateway.core.feed import MAX_FUTILE_READS, Effects, Feed, ReadAfter, RetryLater, Send
from tidings_gateway.core.frames import EVENT_OVERHEAD_BYTES
from tidings_gateway.core.outbox import Budget

SETUP_BYTES: Final = 8
"""Numbers that a world is set up with."""

SMALL: Final = 8
LARGE: Final = 900
"""Body sizes. The byte bounds below make a few large ones as much as many small ones."""

_STRAYS: Final = (
    (b"Elsewhere.0-0", b"Elsewhere.1-8"),
    (b"Elsewhere.7-8", b"Elsewhere.8-9"),
    (b"nonsense", b"nonsense\xff"),
)

FeedFactory = Callable[..., Feed]


class Read:
    """A read in flight: asked of the primary that the link had reached, and at some moment carried out there."""

    __slots__ = ("effect", "log", "page")

    def __init__(self, effect: ReadAfter, log: ModelLog) -> None:
        self.effect = effect
        self.log = log
        self.page: Page | None = None


class World:
    def __init__(self, setup: bytes, factory: FeedFactory = Feed) -> None:
        entries, start, where, retention, page, held, queue, flags = setup
        self.truth = Truth()
        self.primary = ModelLog(self.truth, retention=4 + retention % 24, watch_era=bool(flags & 1))
        self.linked: ModelLog | None = None
        """The primary that the link has reached, if the subscription is confirmed there."""
        self.hearing = self.primary
        self.channel: deque[DurableRecord] = deque()
        self.heard: deque[DurableRecord] = deque(maxlen=16)
        self.generation = 0
        self.read: Read | None = None
        self.late: list[tuple[Page, int]] = []
        """Answers to reads that the feed has been told have failed."""
        self.retry_due = False
        self.unheard = False
        """Something has happened to the log that the subscription did not tell, and no read has seen yet."""

        self.page_events = 1 + page % 4
        self.page_bytes = LARGE + SMALL + 2 * EVENT_OVERHEAD_BYTES
        self.held_events = 1 + held % 8
        self.held_bytes = LARGE * (1 + held % 3)
        self.queue_events = self.page_events + queue % 6
        self.queue_bytes = self.page_bytes + queue % 4 * LARGE
        self.queue: deque[int] = deque()
        self.queued_bytes = 0
        self.prompt = not flags & 2
        """The session offers room as soon as there is some; otherwise only when the schedule says so."""

        for index in range(entries % 12):
            self.primary.append(b"%d" % index)
        asked, last, invalid = self._start(start, where)
        self.oracle = Oracle(self.truth, asked, last=last, invalid=invalid)
        self.reads_for_nothing = 0
        self.feed = factory(
            asked,
            last=last,
            invalid=invalid,
            held_max_events=self.held_events,
            held_max_bytes=self.held_bytes,
        )
        if flags & 4:
            self.connect(1)
        if flags & 8:
            self.answer(0)

    def _start(self, kind: int, where: int) -> tuple[bytes | None, int, bool]:
        log = self.primary
        somewhere = spell(str(log.epoch or self.truth.epoch()), 0, 0)
        if log.entries:
            somewhere = list(self.truth.entries)[where % len(self.truth.entries)]
        epoch = somewhere.partition(b".")[0].decode()
        match kind % 12:
            case 0:
                return None, 0, False
            case 1:
                return None, 1 + where % 20, False
            case 2:
                return None, 0, True
            case 3:
                return spell("ElsewhereX", where, where), 0, False
            case 4:
                return spell(epoch, log.seq + 1 + where % 3, 5), 0, False
            case 5:
                return spell(epoch, log.seq, log.tag + 1), 0, False
            case 6:
                return spell(epoch, 0, 0), 0, False
            case _:
                return somewhere, 0, False

    # The log and its publishers.

    def append(self, argument: int) -> None:
        body = b"%d" % argument
        record = self.primary.append(body.ljust(LARGE) if argument % 5 == 0 else body.ljust(SMALL))
        if self.linked is self.primary:
            self.channel.append(record)

    def burst(self, argument: int) -> None:
        for index in range(2 + argument % 5):
            self.append(index + argument)

    def append_to_old(self, argument: int) -> None:
        """A publisher that has not noticed the failover, on a link that has not either."""
        if self.linked is not None:
            self.channel.append(self.linked.append(b"%d" % argument))

    def trim(self, argument: int) -> None:
        self.primary.trim(argument % 5)

    def delete_log(self, argument: int) -> None:
        self.primary.delete_log()

    def delete_entry(self, argument: int) -> None:
        self.primary.delete_entry(argument)

    def wipe(self, argument: int) -> None:
        self.primary.wipe(stray=argument % 2 == 0)
        self.unheard = True

    def failover(self, argument: int) -> None:
        """The link stays with the old primary until it is lost, as a link does that nobody has told."""
        self.primary = self.primary.fork(argument % 6)
        self.unheard = True

    def other_reader(self, argument: int) -> None:
        """Another gateway reads the log, which may be what gives it a new epoch."""
        before = self.primary.epoch
        self.primary.read_after(None)
        if self.primary.epoch != before:
            self.unheard = True

    # The subscription and the link.

    def hear(self, argument: int) -> None:
        if self.channel:
            self._hear(self.channel.popleft(), argument)

    def hear_all(self, argument: int) -> None:
        for _ in range(len(self.channel)):
            self.hear(argument)

    def lose(self, argument: int) -> None:
        if self.channel:
            del self.channel[argument % len(self.channel)]
            self.unheard = True

    def repeat(self, argument: int) -> None:
        if self.heard and self.linked is not None:
            self.channel.insert(argument % (len(self.channel) + 1), self.heard[argument % len(self.heard)])

    def stray(self, argument: int) -> None:
        """A record that belongs to no log that ever was."""
        if self.linked is not None:
            before, position = _STRAYS[argument % len(_STRAYS)]
            self.channel.append(DurableRecord(before, position, b"stray"))

    def reorder(self, argument: int) -> None:
        self.channel.rotate(argument % 3 - 1)

    def lose_link(self, argument: int) -> None:
        if self.linked is not None:
            self.linked = None
            self.channel.clear()
            self._apply(self.feed.link_lost())

    def connect(self, argument: int) -> None:
        """The subscription is confirmed: with or without a loss told before, by the same link or by the next, with or
        without records of the time before still to be heard."""
        self.generation += argument % 2
        if self.hearing is not self.primary:
            # Nothing repeats on this primary what was published on another one.
            self.heard.clear()
        if self.linked is not self.primary or argument % 4 < 2:
            self.channel.clear()
        self.linked = self.hearing = self.primary
        self.unheard = True
        self.reads_for_nothing = 0
        self._apply(self.feed.link_back(self.generation, room=self.room() and self.prompt))

    # The reader.

    def carry_out(self, argument: int) -> None:
        read = self.read
        if read is not None and read.page is None:
            effect = read.effect
            read.page = read.log.read_after(
                effect.position, last=effect.last, limit=self.page_events, max_bytes=self.page_bytes
            )
            if read.log is self.linked:
                self.unheard = False

    def answer(self, argument: int) -> None:
        read = self.read
        if read is None:
            return
        self.carry_out(argument)
        assert read.page is not None
        self.read = None
        budget = Budget(self.queue_events - len(self.queue), self.queue_bytes - self.queued_bytes)
        self._apply(self.feed.page(read.page, read.effect.read_id, budget=budget), read.page)

    def fail(self, argument: int) -> None:
        read = self.read
        if read is not None:
            if argument % 2:
                self.carry_out(argument)
            if read.page is not None:
                self.late.append((read.page, read.effect.read_id))
            self.read = None
            self._apply(self.feed.read_failed(read.effect.read_id))

    def answer_late(self, argument: int) -> None:
        """An answer, or a failure, for a read that was given up."""
        if self.late:
            page, read_id = self.late.pop()
            if argument % 4:
                self._apply(self.feed.page(page, read_id, budget=Budget(0, 0)))
            else:
                self._apply(self.feed.read_failed(read_id))

    def retry(self, argument: int) -> None:
        if self.retry_due or argument % 8 == 0:
            self.retry_due = False
            self.reads_for_nothing = 0
            self._apply(self.feed.retry(self.room() and self.prompt))

    # The client.

    def take(self, argument: int) -> None:
        for _ in range(min(len(self.queue), 1 + argument % 4)):
            self.queued_bytes -= self.queue.popleft()
        self._settle()

    def offer_room(self, argument: int) -> None:
        if self.room():
            self._apply(self.feed.has_room())

    def room(self) -> bool:
        return (
            len(self.queue) + self.page_events <= self.queue_events
            and self.queued_bytes + self.page_bytes <= self.queue_bytes
        )

    # What the session does with the feed.

    def _hear(self, record: DurableRecord, way: int) -> None:
        if self.feed.live:
            self.reads_for_nothing = 0
        self.heard.append(record)
        fits = self._fits(record)
        match way % 3:
            case 0:
                if fits and self.feed.accept(record):
                    self._send(record)
                else:
                    self._apply(self.feed.record(record, room=fits))
            case 1:
                if self.feed.accept(record):
                    if fits:
                        self._send(record)
                    else:
                        self._apply(self.feed.overflowed(record))
                else:
                    self._apply(self.feed.record(record, room=fits))
            case _:
                self._apply(self.feed.record(record, room=fits))

    def _fits(self, record: DurableRecord) -> bool:
        size = len(record.body) + EVENT_OVERHEAD_BYTES
        return len(self.queue) < self.queue_events and self.queued_bytes + size <= self.queue_bytes

    def _settle(self) -> None:
        if self.prompt and self.feed.wants_room and self.room():
            self._apply(self.feed.has_room())

    def _apply(self, effects: Effects, page: Page | None = None) -> None:
        """Carry out the effects. `page`: what the feed was just given, as the answer to the read in flight."""
        self.oracle.judge(effects, page)
        for effect in effects:
            if isinstance(effect, Send):
                self._queue(effect.record)
            elif isinstance(effect, ReadAfter):
                self._issue(effect)
            elif isinstance(effect, RetryLater):
                assert effect.attempt >= 0
                self.retry_due = True
        self._check()
        self._settle()

    def _issue(self, effect: ReadAfter) -> None:
        assert self.read is None, "two reads at once"
        assert self.linked is not None, "a read without a confirmed subscription"
        assert self.room(), "a read without room"
        self.reads_for_nothing += 1
        assert self.reads_for_nothing <= MAX_FUTILE_READS, "reads without end"
        self.read = Read(effect, self.linked)

    def _send(self, record: DurableRecord) -> None:
        """What `accept` let through."""
        self.oracle.judge((Send(record, False),))
        self._queue(record)
        self._check()

    def _queue(self, record: DurableRecord) -> None:
        self.reads_for_nothing = 0
        size = len(record.body) + EVENT_OVERHEAD_BYTES
        self.queue.append(size)
        self.queued_bytes += size

    def _check(self) -> None:
        feed = self.feed
        assert len(self.queue) <= self.queue_events, "too many in the outbox"
        assert self.queued_bytes <= self.queue_bytes, "too much in the outbox"
        held = feed._held
        if held is not None:
            assert len(held) <= self.held_events, "too many held"
            assert sum(len(record.body) for record in held) <= self.held_bytes, "too much held"
        assert self.oracle.cursor in (None, feed.position)
        if feed.live:
            linked = self.linked
            assert linked is not None, "live without a subscription"
            assert self.oracle.synced, "live and not synced"
            assert self.read is None
            if not self.unheard and not self.channel:
                assert feed.position == linked.top, "live behind the top"
        elif self.linked is not None:
            waits_for = (self.read is not None) + self.retry_due + feed.wants_room
            assert waits_for == 1 or (waits_for == 2 and self.retry_due), "nothing will be read any more"

    # The end.

    def heal(self, argument: int) -> None:
        """The faults are over: the link is up, reads are answered, the client reads. Then a hole that the subscription
        did not tell of becomes known, by the next record or by a change of the link."""
        self.prompt = True
        if self.linked is not self.primary:
            self.lose_link(0)
            self.connect(1)
        elif self.unheard:
            if argument % 2:
                self.append(1)
            else:
                self.connect(argument)
        steps = 8 + 2 * len(self.primary.entries) + len(self.channel)
        for _ in range(steps):
            if self.feed.live and not self.channel and self.feed.position == self.primary.top:
                break
            self.hear_all(argument)
            self.retry(1)
            self.take(3)
            self.answer(0)
            self._settle()
        assert self.feed.live, "not live after the faults have ended"
        top = self.primary.top
        assert self.oracle.cursor == self.feed.position == top, "not at the top after the faults have ended"
        # And it is not only believed: the next event arrives.
        self.take(3)
        self.take(3)
        self.append(1)
        self.hear(0)
        assert self.oracle.cursor == self.primary.top
