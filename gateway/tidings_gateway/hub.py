"""The hub: users on one side, their sessions on the other, the bus in between.

One record comes in, is parsed and checked once, becomes one encoded frame, and is offered to every session of its
user. Nothing here waits: a session that cannot take a frame now falls back to reading the log.

A user with one session is stored as that session itself; only a second one costs a set.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from tidings.errors import BadRecord
from tidings.log.names import Names
from tidings.log.page import Page
from tidings.log.record import ControlRecord, DurableRecord, parse_record
from tidings_gateway.core.feed import is_sound
from tidings_gateway.core.frames import check_body, ephemeral_frame, event_frame, skip_frame
from tidings_gateway.core.healing import Healing
from tidings_gateway.telemetry.counts import Counts

if TYPE_CHECKING:
    from tidings_gateway.core.frames import Frame
    from tidings_gateway.session import Session

log = logging.getLogger("tidings.hub")

HEAL_READS = 128
"""At a round trip of 5 ms, 20,000 sessions are back in a second, with at most 16 MiB of pages under way."""


class LogBus(Protocol):
    """What the hub needs of the bus."""

    @property
    def up(self) -> bool: ...
    @property
    def down_ms(self) -> float: ...
    @property
    def reached(self) -> bool: ...
    def want(self, channel: bytes) -> None: ...
    def unwant(self, channel: bytes) -> None: ...
    def confirmed(self, channel: bytes) -> int | None: ...
    def age_s(self) -> float: ...
    def read(
        self, user: str, position: bytes | None, *, last: int, limit: int, max_bytes: int
    ) -> asyncio.Future[Page]: ...


class Hub:
    """Sessions by channel. Its size is bounded by the connection limit at the door."""

    def __init__(
        self,
        names: Names,
        *,
        max_event_bytes: int,
        heal_reads: int = HEAL_READS,
        counts: Counts | None = None,
    ) -> None:
        self.counts = counts or Counts()
        self._names = names
        self._max_event_bytes = max_event_bytes
        self._sessions: dict[bytes, Session | set[Session]] = {}
        self._healing: Healing[Session] = Healing(heal_reads)
        self._moment = 0
        """Counts what happens to sessions: the greater of two moments is the later one. A clock would cost more."""
        self._bus: LogBus | None = None

    def attach(self, bus: LogBus) -> None:
        self._bus = bus

    @property
    def bus(self) -> LogBus:
        assert self._bus is not None
        return self._bus

    def __len__(self) -> int:
        return sum(1 for _ in self.sessions())

    def sessions(self) -> Iterator[Session]:
        for entry in list(self._sessions.values()):
            yield from _members(entry)

    # Sessions come and go.

    def join(self, session: Session) -> None:
        """Start relaying to this session. It is told `link_back` as soon as its channel is confirmed, maybe at once."""
        channel = session.channel
        self._moment += 1
        session.active = self._moment
        entry = self._sessions.get(channel)
        if entry is None:
            self._sessions[channel] = session
            self.bus.want(channel)
        elif isinstance(entry, set):
            entry.add(session)
        else:
            self._sessions[channel] = {entry, session}
        generation = self.bus.confirmed(channel)
        if generation is not None:
            session.link_back(generation)

    def leave(self, session: Session) -> None:
        """Stop relaying to this session. Harmless when it has left already: a late clean-up of a dead socket must
        never take the subscription from the socket that replaced it."""
        channel = session.channel
        if self._healing.discard(session):
            self._heal()
        entry = self._sessions.get(channel)
        if entry is session:
            del self._sessions[channel]
            self.bus.unwant(channel)
        elif isinstance(entry, set) and session in entry:
            entry.discard(session)
            if len(entry) == 1:
                self._sessions[channel] = entry.pop()

    def read(self, user: str, position: bytes | None, *, last: int, limit: int, max_bytes: int) -> asyncio.Future[Page]:
        return self.bus.read(user, position, last=last, limit=limit, max_bytes=max_bytes)

    def channel(self, user: str) -> bytes:
        return self._names.channel(user)

    # What the bus tells.

    def record_received(self, channel: bytes, payload: bytes) -> None:
        entry = self._sessions.get(channel)
        if entry is None:
            return
        try:
            record = parse_record(payload)
        except BadRecord:
            self.counts.unreadable += 1
            log.warning("a message of no known shape on channel %r was dropped", channel[:160])
            return
        self._moment += 1
        if self._healing.waiting:
            self._hurry(entry)
        if isinstance(record, DurableRecord):
            if not is_sound(record):
                self.counts.unreadable += 1
                return
            self._relay(entry, record)
        elif isinstance(record, ControlRecord):
            # Control records belong to features that this version does not have; ignoring them is the contract.
            return
        elif (checked := check_body(record.body, self._max_event_bytes)) is None:
            self.counts.unreadable += 1
        else:
            self.counts.received_ephemeral += 1
            frame = ephemeral_frame(record.body, checked)
            for session in _members(entry):
                try:
                    session.ephemeral(frame)
                except Exception:  # noqa: BLE001 - `_fault` logs it
                    _fault(session)

    def _relay(self, entry: Session | set[Session], record: DurableRecord) -> None:
        counts = self.counts
        counts.received_durable += 1
        checked = check_body(record.body, self._max_event_bytes)
        frame = self._skip(record) if checked is None else event_frame(record)
        for session in _members(entry):
            session.active = self._moment
            try:
                session.durable(record, frame)
            except Exception:  # noqa: BLE001 - `_fault` logs it
                _fault(session)
        # Once per record, not per session: two clocks are read, which is what a delivery may not cost.
        counts.delivery.observe(self.bus.age_s())
        if checked is not None:
            counts.event_age(time.time() - checked.time / 1000)

    def durable_frame(self, record: DurableRecord, *, replay: bool = False) -> Frame:
        """The frame of a log entry, or the `skip` that stands in for one that cannot be delivered."""
        if check_body(record.body, self._max_event_bytes) is None:
            return self._skip(record)
        return event_frame(record, replay=replay)

    def _skip(self, record: DurableRecord) -> Frame:
        self.counts.skipped += 1
        log.warning("entry %s cannot be delivered and was skipped", record.position.decode("ascii", "replace"))
        return skip_frame(record.position)

    def channel_on(self, channel: bytes, generation: int) -> None:
        for session in _members(self._sessions.get(channel)):
            if session.opened:
                self._healing.add(session)
            else:
                # Its client waits for the welcome, and not for long; the others notice nothing but silence.
                _back(session, generation)
        self._heal()

    def channel_off(self, channel: bytes) -> None:
        for session in _members(self._sessions.get(channel)):
            self._healing.discard(session)
            _lose(session)
        self._heal()

    def link_lost(self) -> None:
        self._healing.clear()
        for session in self.sessions():
            _lose(session)

    def last_active(self, channel: bytes) -> int:
        return max((session.active for session in _members(self._sessions.get(channel))), default=0)

    # Healing: sessions whose channel is confirmed again, in the order of the confirmations.

    def caught_up(self, session: Session) -> None:
        """The session has no read under way any more. Harmless when it was not healing."""
        if self._healing.done(session):
            self._heal()

    def _heal(self) -> None:
        while (session := self._healing.take()) is not None:
            generation = self.bus.confirmed(session.channel)
            if generation is not None:
                _back(session, generation)
            if not session.reading:
                self._healing.done(session)

    def _hurry(self, entry: Session | set[Session]) -> None:
        """Something was published for them just now: they are the ones who miss something."""
        for session in _members(entry):
            self._healing.hurry(session)


def _members(entry: Session | set[Session] | None) -> tuple[Session, ...]:
    """A copy: a session may leave while the others are being told."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, set) else (entry,)


def _back(session: Session, generation: int) -> None:
    try:
        session.link_back(generation)
    except Exception:  # noqa: BLE001 - `_fault` logs it
        _fault(session)


def _lose(session: Session) -> None:
    try:
        session.link_lost()
    except Exception:  # noqa: BLE001 - `_fault` logs it
        _fault(session)


def _fault(session: Session) -> None:
    """One session's fault ends that session; all others of the record, the channel and the link are still told."""
    log.exception("a session of %s failed", session.user)
    try:
        session.fail()
    except Exception:
        log.exception("and could not be ended")
