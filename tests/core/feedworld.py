"""Everything around one feed, in one thread and without a clock: a log and its publishers, a primary that may fail
over, a subscription that may lose, repeat and reorder, a reader that answers late or not at all, and a client as slow
as it likes.

A schedule is a string of bytes: eight to set the world up, pairs of an operation and its argument, and one that says
how it ends. Any bytes will do, and any pairs can be left out, which is what makes a failing schedule easy to cut down.

The oracle knows nothing of the feed's states. It looks at what the feed sent and at the `Truth`:

- each entry sent is the one that truly follows the one before, or the position of the last Opened or Resync;
- a Resync comes where the log could not prove continuity, always and only then;
- Synced comes once, `replay` marks what was sent before it, and its count agrees;
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
from collections.abc import Callable, Iterator
from typing import Final

from tests.support.modellog import ModelLog, Truth, spell
from tidings.log.page import Page, ResyncReason
from tidings.log.record import DurableRecord
from tidings_gateway.core.feed import (
    MAX_FUTILE_READS,
    Effects,
    Feed,
    Opened,
    ReadAfter,
    Resync,
    RetryLater,
    Send,
    Synced,
)
from tidings_gateway.core.frames import EVENT_OVERHEAD_BYTES
from tidings_gateway.core.outbox import Budget

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
        self.asked, self.last, self.invalid = self._start(start, where)
        self.cursor: bytes | None = None
        self.sent = 0
        self.replayed = 0
        self.synced = False
        self.reads_for_nothing = 0
        self.feed = factory(
            self.asked,
            last=self.last,
            invalid=self.invalid,
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
                    self._send(record, replay=False)
                    self._check()
                else:
                    self._apply(self.feed.record(record, room=fits))
            case 1:
                if self.feed.accept(record):
                    if fits:
                        self._send(record, replay=False)
                        self._check()
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
        was_opened = self.cursor is not None
        reasons: list[ResyncReason] = []
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.record, replay=effect.replay)
            elif isinstance(effect, ReadAfter):
                self._issue(effect)
            elif isinstance(effect, RetryLater):
                assert effect.attempt >= 0
                self.retry_due = True
            elif isinstance(effect, Opened):
                assert self.cursor is None, "opened twice"
                assert page is not None
                provable = self.asked is not None and page.reason is None
                assert effect.resumed == provable
                assert effect.position == (self.asked if provable else page.start)
                self.cursor = effect.position
            elif isinstance(effect, Resync):
                assert page is not None, "resync without a page"
                assert (effect.position, effect.missed) == (page.top, page.missed)
                reasons.append(effect.reason)
                self.cursor = effect.position
            else:
                assert isinstance(effect, Synced)
                assert not self.synced, "synced twice"
                assert (effect.position, effect.replayed) == (self.cursor, self.replayed)
                self.synced = True
        if page is not None:
            due = ResyncReason.INVALID if self.invalid and not was_opened else page.reason
            assert reasons == ([] if due is None else [due]), "a resync too many or too few"
        self._check()
        self._settle()

    def _issue(self, effect: ReadAfter) -> None:
        assert self.read is None, "two reads at once"
        assert self.linked is not None, "a read without a confirmed subscription"
        assert self.room(), "a read without room"
        expected = self.asked if self.cursor is None else self.cursor
        assert effect.position == expected, "a read from elsewhere"
        assert effect.last == (self.last if self.cursor is None else 0)
        self.reads_for_nothing += 1
        assert self.reads_for_nothing <= MAX_FUTILE_READS, "reads without end"
        self.read = Read(effect, self.linked)

    def _send(self, record: DurableRecord, *, replay: bool) -> None:
        true = self.truth.entries.get(record.position)
        assert true is not None, "never stored"
        assert true == record
        assert true.before == self.cursor, "a hole or a repeat"
        assert replay != self.synced
        self.cursor = record.position
        self.sent += 1
        self.replayed += replay
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
        assert self.cursor is None or feed.position == self.cursor
        if feed.live:
            linked = self.linked
            assert linked is not None, "live without a subscription"
            assert self.synced, "live and not synced"
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
        assert self.cursor == self.feed.position == self.primary.top, "not at the top after the faults have ended"
        assert self.synced
        # And it is not only believed: the next event arrives.
        self.take(3)
        self.take(3)
        self.append(1)
        self.hear(0)
        assert self.cursor == self.primary.top


WEIGHTS: Final[dict[str, int]] = {
    "append": 44,
    "burst": 14,
    "append_to_old": 4,
    "trim": 4,
    "delete_log": 2,
    "delete_entry": 2,
    "wipe": 3,
    "failover": 4,
    "other_reader": 2,
    "hear": 46,
    "hear_all": 12,
    "lose": 6,
    "repeat": 4,
    "stray": 4,
    "reorder": 5,
    "lose_link": 6,
    "connect": 10,
    "carry_out": 16,
    "answer": 30,
    "fail": 6,
    "answer_late": 4,
    "retry": 6,
    "take": 14,
    "offer_room": 8,
}
"""Operations and their share of a schedule, in 256ths."""

_TABLE: Final = tuple(name for name, weight in WEIGHTS.items() for _ in range(weight))
assert len(_TABLE) == 256

SETUP_BYTES: Final = 8


def operations(schedule: bytes) -> Iterator[tuple[str, int]]:
    for index in range(SETUP_BYTES, len(schedule) - 1, 2):
        yield _TABLE[schedule[index]], schedule[index + 1]


def run(schedule: bytes, factory: FeedFactory = Feed) -> World:
    """Raises AssertionError when the feed breaks a promise."""
    world = World(schedule[:SETUP_BYTES], factory)
    for name, argument in operations(schedule):
        getattr(world, name)(argument)
    world.heal(schedule[-1])
    return world


def failure(schedule: bytes, factory: FeedFactory = Feed) -> Exception | None:
    """What the schedule breaks. A feed that raises breaks a promise too."""
    try:
        run(schedule, factory)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        return error
    return None


def minimal(schedule: bytes, factory: FeedFactory = Feed) -> bytes:
    """The same schedule without everything that can be left out while it still fails."""
    setup, end = schedule[:SETUP_BYTES], schedule[-1:]
    pairs = [schedule[index : index + 2] for index in range(SETUP_BYTES, len(schedule) - 1, 2)]
    size = len(pairs)
    while size:
        index = 0
        while index < len(pairs):
            fewer = pairs[:index] + pairs[index + size :]
            if failure(setup + b"".join(fewer) + end, factory) is not None:
                pairs = fewer
            else:
                index += size
        size //= 2
    return setup + b"".join(pairs) + end


def describe(schedule: bytes) -> str:
    steps = "\n".join(f"    {name}({argument})" for name, argument in operations(schedule))
    return f"schedule {schedule.hex()}\n{steps}\n    heal({schedule[-1]})"
