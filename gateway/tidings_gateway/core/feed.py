"""The delivery state machine: what one session may send next from one log, and when it must ask the log.

Two sources tell of a log. The subscription is fast but proves nothing by itself: records can be missing from it. The
log answers a read with proof, but slowly. The feed sends from the subscription while every record names the one sent
last as the position before it, and settles every doubt in one way: with the subscription confirmed, read the log from
where I am, hold what is heard meanwhile, and go live again where the two meet. Start, resume, gap, fork, lost link
and slow client are all this same thing.

Why that is enough. A read is issued only while the subscription is confirmed. The page carries the log's top at the
moment of the read, which lies after the issue. So whatever was published before the issue is at or below that top,
heard or not, and nothing heard before the issue needs to be remembered. Whatever was published after the read is
heard after the issue, and held. A page that reached its top, followed by the held records without a break, is
therefore everything. A page of which that cannot be said may still be sent, but another one must follow it.

The states. All but LIVE are the catching up of the design:

    DEAF      the subscription is not confirmed
    DUE       confirmed; a read is due as soon as the outbox has room for a page
    READING   a page is in flight; all that was heard since its issue is held
    OUTDATED  a page is in flight; not all since its issue was heard, or it was forgotten: it cannot be the last page
    ADRIFT    a page is in flight; the subscription is not confirmed
    PAUSED    a read failed, or several in a row brought nothing; the next one waits for `retry`
    LIVE      everything up to `position` was sent, and the subscription is confirmed

The moves. "-" ignores the input, which is then harmless. Every row but LIVE ends in a read, so that there is no state
in which nothing more will be read although the log has more.

              record          link_lost  link_back  has_room  retry  page                  read_failed
    DEAF      -               -          DUE        -         -
    DUE       -               DEAF       DUE        READING   -
    READING   hold, or 1)     ADRIFT     OUTDATED   -         -      LIVE, DUE, PAUSED 2)  PAUSED
    OUTDATED  -               ADRIFT     OUTDATED   -         -      DUE, PAUSED 3)        DUE, PAUSED 3)
    ADRIFT    -               -          OUTDATED   -         -      DEAF                  DEAF
    PAUSED    -               DEAF       DUE        -         DUE
    LIVE      send, drop, 4)  DEAF       DUE        -         -

    1)  more than the bound: all held are forgotten, OUTDATED
    2)  LIVE when the page reached its top and the held records follow it without a break, within the budget;
        otherwise DUE, or PAUSED after `MAX_FUTILE_READS` in a row that brought nothing
    3)  as 2), but never LIVE
    4)  it follows: send. A duplicate (mine, or below mine in my epoch): drop. Anything else, or no room: DUE

A page is answered to the read in flight only; there is one at most, and others are ignored. `link_back` counts as a
loss even when no loss was told: what was heard under the earlier confirmation may have a hole before the new one.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from tidings.errors import InvalidPosition
from tidings.log.page import Page, ResyncReason
from tidings.log.position import Position
from tidings.log.record import DurableRecord
from tidings_gateway.core.effects import (
    Effect,
    Effects,
    Opened,
    ReadAfter,
    Resync,
    RetryLater,
    Send,
    Synced,
)
from tidings_gateway.core.frames import EVENT_OVERHEAD_BYTES
from tidings_gateway.core.outbox import Budget

__all__ = [
    "MAX_FUTILE_READS",
    "Effect",
    "Effects",
    "Feed",
    "Opened",
    "ReadAfter",
    "Resync",
    "RetryLater",
    "Send",
    "State",
    "Synced",
    "is_sound",
]

MAX_FUTILE_READS: Final = 3
"""Reads in a row that sent nothing and settled nothing, before the next read has to wait. A store that contradicts
itself, or a stream of records that belong to no log, must not become a loop of reads."""


_NOTHING: Final[tuple[Effect, ...]] = ()


_NEIGHBOURS = re.compile(
    rb"([0-9A-Za-z]{8,16}\.)(0|[1-9][0-9]{0,15})-(?:0|[1-9][0-9]{0,9}) \1([1-9][0-9]{0,15})-(?:0|[1-9][0-9]{0,9})"
)


class State(Enum):
    """See the tables above."""

    DEAF = "deaf"
    DUE = "due"
    READING = "reading"
    OUTDATED = "outdated"
    ADRIFT = "adrift"
    PAUSED = "paused"
    LIVE = "live"


# Names of their own, since an attribute look-up on the class costs more than the comparison of positions.
_DEAF, _DUE, _READING, _OUTDATED, _ADRIFT, _PAUSED, _LIVE = State
_IN_FLIGHT: Final = frozenset((_READING, _OUTDATED, _ADRIFT))


class Feed:
    """The feed of one session and one log. Inputs are methods; each returns the effects to carry out, in order.

    `position` is what the client sent (one part, well-formed), or None to start at the top after the `last` newest
    entries. `invalid`: the client sent something that is no position; it starts at the top and is told to resync.
    `held_max_events` and `held_max_bytes` bound what is kept while a page is in flight. They should not be below the
    size of a page.

    The caller owes three things: after carrying out the effects of any input, and whenever its queue got shorter, call
    `has_room` if `wants_room` and a page fits; after RetryLater, call `retry` some time; answer every ReadAfter.
    """

    __slots__ = (
        "_futile",
        "_held",
        "_held_bytes",
        "_held_max_bytes",
        "_held_max_events",
        "_invalid",
        "_last",
        "_reads",
        "generation",
        "opened",
        "position",
        "replayed",
        "state",
        "synced",
    )

    def __init__(
        self,
        position: bytes | None,
        *,
        last: int = 0,
        invalid: bool = False,
        held_max_events: int,
        held_max_bytes: int,
    ) -> None:
        asked = None if invalid else position
        self.position: bytes = asked or b""
        """That of the last entry sent, or where the session starts. What was asked for, until `opened`."""
        self.opened = False
        """The first page has arrived."""
        self.synced = False
        self.replayed = 0
        self.state = _DEAF
        self.generation: int | None = None
        """Of the link under which the subscription was last confirmed; None while it is not. For people only: that a
        page belongs to an earlier one is what OUTDATED remembers."""
        self._invalid = invalid
        self._last = 0 if invalid or position else last
        self._held: list[DurableRecord] | None = None
        self._held_bytes = 0
        self._held_max_events = held_max_events
        self._held_max_bytes = held_max_bytes
        self._reads = 0
        self._futile = 0

    @property
    def live(self) -> bool:
        return self.state is _LIVE

    @property
    def reading(self) -> bool:
        """Whether a page is in flight."""
        return self.state in _IN_FLIGHT

    @property
    def wants_room(self) -> bool:
        """Whether `has_room` would issue a read."""
        return self.state is _DUE

    # What the subscription brings.

    def accept(self, record: DurableRecord) -> bool:
        """The hot path. True: this record is next, send it; the feed has moved past it. False: nothing has changed,
        hand the record to `record`."""
        if self.state is _LIVE and record.before == self.position:
            self.position = record.position
            return True
        return False

    def overflowed(self, record: DurableRecord) -> Effects:
        """The outbox refused the record that `accept` has just let through: go back before it, and read it later."""
        if self.state is _LIVE and record.position == self.position:
            self.position = record.before
            self.state = _DUE
        return _NOTHING

    def record(self, record: DurableRecord, *, room: bool) -> Effects:
        """A record was heard. `room`: the outbox would take it now."""
        if self.state is _LIVE:
            if record.before == self.position:
                if room:
                    self.position = record.position
                    return (Send(record, False),)
            elif self._is_old(record):
                return _NOTHING
            self.state = _DUE
        elif self.state is _READING:
            self._hold(record)
        return _NOTHING

    # What the link and the outbox tell.

    def link_lost(self) -> Effects:
        """The subscription is gone, or may have missed something."""
        self.generation = None
        self._forget()
        self.state = _ADRIFT if self.state in _IN_FLIGHT else _DEAF
        return _NOTHING

    def link_back(self, generation: int, *, room: bool) -> Effects:
        """The subscription is confirmed. `room`: the outbox has room for a page."""
        self.generation = generation
        self._forget()
        self._futile = 0
        if self.state in _IN_FLIGHT:
            self.state = _OUTDATED
            return _NOTHING
        self.state = _DUE
        return self.has_room() if room else _NOTHING

    def has_room(self) -> Effects:
        """The outbox has room for a page. Harmless at any time."""
        if self.state is not _DUE:
            return _NOTHING
        self.state = _READING
        self._reads += 1
        return (ReadAfter(self._reads, self.position or None, 0 if self.opened else self._last),)

    def retry(self, room: bool) -> Effects:
        """The wait asked for by RetryLater is over. `room`: the outbox has room for a page. Harmless at any time."""
        if self.state is not _PAUSED:
            return _NOTHING
        self.state = _DUE
        return self.has_room() if room else _NOTHING

    # What the log answers.

    def page(self, page: Page, read_id: int, *, budget: Budget) -> Effects:
        """The answer to a read. All of the page is sent, since its room was there when the read was issued. `budget` is
        what the outbox takes now, the page included; held records are sent within what the page leaves of it."""
        if not self._awaits(read_id):
            return _NOTHING
        if page.reason is None and self.position not in (b"", page.start):
            # Not an answer to what was asked. To go on from it would be a hole.
            return self.read_failed(read_id)
        effects: list[Effect] = []
        self._open_or_resync(page, effects)
        start = self.position
        events, size = budget
        for entry in page.entries:
            if entry.before != self.position:
                break
            self._send(entry, effects)
            events -= 1
            size -= _cost(entry)
        if self.state is _READING and self.position == page.top and self._drain(events, size, effects):
            self._go_live(effects)
        else:
            self._go_on(effects, progress=self.position != start)
        self._forget()
        return effects

    def read_failed(self, read_id: int) -> Effects:
        """The read was not answered. Says nothing about the log."""
        if not self._awaits(read_id):
            return _NOTHING
        self._forget()
        effects: list[Effect] = []
        # One that was asked over an earlier link says nothing about this one, so the next read need not wait.
        self._go_on(effects, progress=False, at_once=self.state is not _READING)
        return effects

    # The parts.

    def _awaits(self, read_id: int) -> bool:
        return read_id == self._reads and self.state in _IN_FLIGHT

    def _is_old(self, record: DurableRecord) -> bool:
        """Whether the record is one that was sent already, as far as its position tells."""
        if record.position == self.position:
            return True
        try:
            theirs, mine = Position.parse(record.position), Position.parse(self.position)
        except InvalidPosition:
            return False
        return theirs.epoch == mine.epoch and theirs.seq < mine.seq

    def _hold(self, record: DurableRecord) -> None:
        if self._held is None:
            self._held = []
        self._held_bytes += len(record.body)
        if len(self._held) >= self._held_max_events or self._held_bytes > self._held_max_bytes:
            self._forget()
            self.state = _OUTDATED
        else:
            self._held.append(record)

    def _forget(self) -> None:
        self._held = None
        self._held_bytes = 0

    def _open_or_resync(self, page: Page, effects: list[Effect]) -> None:
        reason, failed_over = page.reason, page.failed_over
        if not self.opened:
            self.opened = True
            if self._invalid:
                reason, failed_over = ResyncReason.INVALID, False
            effects.append(Opened(bool(self.position) and reason is None, page.start))
            self.position = page.start
        if reason is not None:
            effects.append(Resync(reason, page.start, page.missed, failed_over))
            self.position = page.start

    def _send(self, record: DurableRecord, effects: list[Effect]) -> None:
        self.position = record.position
        replay = not self.synced
        self.replayed += replay
        effects.append(Send(record, replay))

    def _drain(self, events: int, size: int, effects: list[Effect]) -> bool:
        """Send what was held, after a page that reached its top. False: there is a break in it, or no room for more."""
        for record in self._held or ():
            if record.before == self.position:
                events -= 1
                size -= _cost(record)
                if events < 0 or size < 0:
                    return False
                self._send(record, effects)
            elif not self._is_old(record):
                return False
        return True

    def _go_live(self, effects: list[Effect]) -> None:
        self.state = _LIVE
        self._futile = 0
        if not self.synced:
            self.synced = True
            effects.append(Synced(self.position, self.replayed))

    def _go_on(self, effects: list[Effect], *, progress: bool, at_once: bool = True) -> None:
        self._futile = 0 if progress else self._futile + 1
        if self.state is _ADRIFT:
            self.state = _DEAF
        elif at_once and self._futile < MAX_FUTILE_READS:
            self.state = _DUE
        else:
            self.state = _PAUSED
            effects.append(RetryLater(self._futile - 1))


def _cost(record: DurableRecord) -> int:
    """At least what the record's frame takes in the outbox."""
    return len(record.body) + EVENT_OVERHEAD_BYTES


def is_sound(record: DurableRecord) -> bool:
    """Whether the record's positions are well-formed neighbours of one epoch. To be asked once per record, by whoever
    takes it off the wire: `accept` compares bytes and would follow anything that names the right position before it."""
    match = _NEIGHBOURS.fullmatch(b"%b %b" % (record.before, record.position))
    return match is not None and int(match[2]) + 1 == int(match[3])
