"""WebSocket connections: the contract's section "WebSocket", on a detached socket.

A connection is one of

    GREETING   upgraded, waiting for `hello`; says nothing                   deadline: hello_timeout_ms  -> 4408
    OPENING    hello accepted, the log has not answered yet                  deadline: store_wait_ms     -> 1013
    OPEN       welcomed; frames flow                                         heartbeats, expiry, slow check
    FINISHING  goodbye is queued; flushing what is before it                 deadline: close_timeout_ms  -> closed
    ENDED      the close frame was handed over; the socket sees it out

All its deadlines share one entry in the ticker's wheel.
"""

from __future__ import annotations

import enum
import logging
from typing import TYPE_CHECKING

from tidings.errors import InvalidPosition
from tidings.log.position import FullPosition
from tidings_gateway.auth.tokens import Unauthorized
from tidings_gateway.core import closing, frames
from tidings_gateway.core.feed import Feed
from tidings_gateway.session import Session

if TYPE_CHECKING:
    from tidings_gateway.auth.tokens import Grant
    from tidings_gateway.core.closing import Close
    from tidings_gateway.core.frames import Frame
    from tidings_gateway.gateway import Gateway
    from tidings_gateway.server.socket import Socket

log = logging.getLogger("tidings.websocket")

MAX_OWED = 16
"""Answers that may wait for the `welcome`. Nobody has a reason to ask that much before it: more is 1008."""

SLOW_CHECK_S = 1.0
"""How often a connection with waiting data is looked at. Only those are: a healthy idle one has no such deadline."""


class State(enum.IntEnum):
    GREETING = 0
    OPENING = 1
    OPEN = 2
    FINISHING = 3
    ENDED = 4


class WebSocketConnection:
    """Both the handler of a detached socket and the sink of a session."""

    __slots__ = (
        "_accepted",
        "_beat_at",
        "_closing",
        "_credential",
        "_ends_at",
        "_gateway",
        "_grant",
        "_next_beat",
        "_owed",
        "_progress_at",
        "_refused",
        "_session",
        "_socket",
        "_state",
        "_watching",
        "id",
    )
    _socket: Socket
    transport = "websocket"

    def __init__(self, gateway: Gateway, credential: str | None, *, refused: bool = False) -> None:
        """`credential` is the token that came with the handshake, None when the hello is to bring it. `refused`: what
        came with the handshake cannot be a token. Either way the client learns of a refusal by 4401 after its hello,
        since page code cannot see the status of an upgrade."""
        self.id = gateway.new_session_id()
        self._gateway = gateway
        self._credential = credential
        self._refused = refused
        self._grant: Grant | None = None
        self._state = State.GREETING
        self._session: Session | None = None
        self._closing = closing.NORMAL
        self._ends_at = 0.0
        self._next_beat = 0.0
        self._beat_at: float | None = None
        self._watching = False
        self._accepted = 0
        self._progress_at = 0.0
        self._owed: list[Frame] | None = None

    # The socket's side.

    def opened(self, socket: Socket) -> None:
        self._socket = socket
        gateway = self._gateway
        gateway.connections.add(self)
        gateway.hub.counts.opened[self.transport] += 1
        if len(gateway.connections) > gateway.settings.max_connections:
            self._finish(closing.TOO_MANY)
            return
        gateway.ticker.schedule(self, gateway.now() + gateway.settings.hello_timeout_ms / 1000)

    def text_received(self, text: str) -> None:
        if self._state >= State.FINISHING:
            return
        try:
            message = frames.parse_client(text)
        except frames.Malformed as error:
            log.info("session %s sent a malformed frame: %s", self.id, error)
            self._finish(closing.MALFORMED)
            return
        match message:
            case frames.Hello():
                self._hello(message)
            case _ if self._state is State.GREETING:
                self._finish(closing.MALFORMED)
            case frames.Heartbeat():
                pass  # The socket has noted that a byte came, and that is all a heartbeat says.
            case frames.Auth(token):
                self._reauthorise(token)
            case frames.Read():
                self._answer(frames.error("unsupported", "read marks are not available"))

    def writable(self) -> None:
        if self._session is not None:
            self._session.writable()

    def drain(self, retry_ms: int) -> None:
        self._finish(closing.DRAINING, retry_ms)

    def closed(self, code: int) -> None:
        self._state = State.ENDED
        self._gateway.connections.discard(self)
        self._gateway.hub.counts.close(self.transport, code, self._closing)
        self._gateway.ticker.cancel(self)
        if self._session is not None:
            self._session.close()

    # hello and auth

    def _hello(self, hello: frames.Hello) -> None:
        if self._state is not State.GREETING:
            self._finish(closing.MALFORMED)
            return
        gateway = self._gateway
        token = hello.token if self._credential is None else self._credential
        self._credential = None
        grant = None if self._refused else self._verify(token)
        if grant is None:
            self._finish(closing.UNAUTHENTICATED)
            return
        # A link is replaced within moments, and a gateway that was just started has not opened one yet: who comes in
        # between waits for it, rather than in the backoff that follows a refusal.
        store_wait_ms = gateway.settings.store_wait_ms - gateway.hub.bus.down_ms
        if store_wait_ms <= 0:
            self._finish(closing.STORE_AWAY)
            return
        self._state = State.OPENING
        self._grant = grant
        self._ends_at = self._end_of(grant)
        settings = gateway.settings
        position: bytes | None = None
        invalid = False
        if hello.position is not None:
            try:
                # Topic parts of a position are dropped in silence: this server has no topics.
                position = FullPosition.parse(hello.position).personal.encode()
            except InvalidPosition:
                invalid = True
        feed = Feed(
            position,
            last=min(hello.replay or 0, settings.log_max_events),
            invalid=invalid,
            held_max_events=settings.held_events,
            held_max_bytes=settings.held_bytes,
        )
        gateway.ticker.schedule(self, gateway.now() + store_wait_ms / 1000)
        self._session = Session(gateway.hub, grant.user, self, feed, gateway.limits)
        self._session.open()

    def _reauthorise(self, token: str) -> None:
        session = self._session
        assert session is not None
        grant = self._verify(token)
        if grant is None:
            self._finish(closing.UNAUTHENTICATED)
        elif grant.user != session.user:
            self._finish(closing.FORBIDDEN)
        else:
            self._grant = grant
            self._ends_at = self._end_of(grant)
            self._answer(frames.auth(self._expires_in_ms()))
            if self._state is State.OPEN:
                self._gateway.ticker.schedule(self, self._next_due(self._gateway.now()))

    def _answer(self, frame: Frame) -> None:
        """Send what the client asked for; while the log has not answered, keep it until the `welcome` is out."""
        assert self._session is not None
        if self._state is State.OPEN:
            self._session.control(frame)
            return
        self._owed = self._owed or []
        if len(self._owed) >= MAX_OWED:
            self._finish(closing.INBOUND_RATE)
        else:
            self._owed.append(frame)

    def welcomed(self) -> None:
        owed, self._owed = self._owed, None
        for frame in owed or ():
            self._answer(frame)

    def _verify(self, token: str | None) -> Grant | None:
        try:
            return self._gateway.tokens.verify(token)
        except Unauthorized as error:
            log.info("session %s was refused: %s", self.id, error)
            return None

    def _end_of(self, grant: Grant) -> float:
        # Wall time is read once, here: a clock that is stepped later can neither end nor prolong a session.
        return self._gateway.now() + grant.ends_at_s - self._gateway.wall_ms() / 1000

    def _expires_in_ms(self) -> int:
        assert self._grant is not None
        return max(0, int(self._grant.expires_at_s * 1000) - self._gateway.wall_ms())

    @property
    def queued_bytes(self) -> int:
        return self._session.queued_bytes if self._session is not None else 0

    # The session's side.

    @property
    def paused(self) -> bool:
        return self._socket.paused

    def send(self, frame: Frame) -> None:
        self._socket.write(frame.websocket())

    def buffered(self) -> int:
        return self._socket.buffered()

    def open_frame(self, session: Session, *, resumed: bool, position: bytes) -> Frame:
        gateway = self._gateway
        settings = gateway.settings
        frame = frames.welcome(
            session=self.id,
            user=session.user,
            resumed=resumed,
            position=position,
            heartbeat_ms=settings.heartbeat_ms,
            timeout_ms=settings.heartbeat_timeout_ms,
            server_time_ms=gateway.wall_ms(),
            expires_in_ms=self._expires_in_ms(),
        )
        now = gateway.now()
        self._state = State.OPEN
        self._next_beat = now + settings.heartbeat_ms / 1000
        gateway.ticker.schedule(self, self._next_due(now))
        return frame

    def waiting(self) -> None:
        if not self._watching:
            gateway = self._gateway
            self._watching = True
            self._accepted = self._socket.bytes_written - self._socket.buffered()
            self._progress_at = gateway.now()
            if self._state is State.OPEN:
                gateway.ticker.schedule(self, self._next_due(self._progress_at))

    def drained(self) -> None:
        if self._state is State.FINISHING:
            self._end()

    def overrun(self) -> None:
        self._finish(closing.TOO_SLOW, flush=False)

    def failed(self) -> None:
        self._finish(closing.SERVER_FAULT, flush=False)

    # Deadlines

    def due(self, now: float) -> float | None:
        match self._state:
            case State.GREETING:
                self._finish(closing.HELLO_LATE)
            case State.OPENING:
                self._finish(closing.STORE_AWAY)
            case State.FINISHING:
                self._end()
            case State.OPEN:
                if now >= self._ends_at:
                    self._finish(closing.EXPIRED)
                elif self._watching and self._stuck(now):
                    self._finish(closing.TOO_SLOW, flush=False)
                elif self._beat_at is not None and self._silent(now):
                    self._finish(closing.HEARTBEAT_LATE, flush=False)
                else:
                    if now >= self._next_beat:
                        self._beat(now)
                    return self._next_due(now)
            case State.ENDED:
                pass
        return None

    def fault(self) -> None:
        if self._state < State.FINISHING:
            self._finish(closing.SERVER_FAULT, flush=False)
        else:
            # It was the ending that failed: without a deadline it would stay for ever.
            self._end()

    def _next_due(self, now: float) -> float:
        due = min(self._next_beat, self._ends_at)
        if self._watching:
            due = min(due, now + SLOW_CHECK_S)
        if self._beat_at is not None:
            due = min(due, max(self._answer_due(), now))
        return due

    def _beat(self, now: float) -> None:
        settings = self._gateway.settings
        session = self._session
        assert session is not None
        self._next_beat = now + settings.heartbeat_ms / 1000
        if self._watching or self._beat_at is not None:
            # Data waits in front of it, or the last one is unanswered: a second one would prove nothing more, and
            # heartbeats must not pile up in the queue of a stalled client.
            return
        if self._socket.buffered():
            self.waiting()
        self._beat_at = now
        session.control(frames.heartbeat(session.position))

    def _answer_due(self) -> float:
        """The answer is due `heartbeat_timeout_ms` after the heartbeat left the transport. While data waited in front
        of it, that is not before the last progress."""
        assert self._beat_at is not None
        return max(self._beat_at, self._progress_at) + self._gateway.settings.heartbeat_timeout_ms / 1000

    def _silent(self, now: float) -> bool:
        assert self._beat_at is not None
        if self._socket.last_received >= self._beat_at:
            self._beat_at = None
            return False
        # While data waits, the slow check decides: a slow reader is not a dead one.
        return not self._watching and now >= self._answer_due()

    def _stuck(self, now: float) -> bool:
        """The transport took no byte for `slow_timeout_ms` while data waited."""
        socket = self._socket
        accepted = socket.bytes_written - socket.buffered()
        if socket.buffered() == 0 and (self._session is None or self._session.queued == 0):
            self._watching = False
            self._progress_at = now
            return False
        if accepted > self._accepted:
            self._accepted = accepted
            self._progress_at = now
            return False
        return now - self._progress_at >= self._gateway.settings.slow_timeout_ms / 1000

    # Endings

    def _finish(self, row: Close, retry_ms: int | None = None, *, flush: bool = True) -> None:
        """Say goodbye where the code has something to say, and close: behind what is queued, or at once."""
        if self._state >= State.FINISHING:
            return
        self._state = State.FINISHING
        self._closing = row
        goodbye = self._gateway.goodbye(row, retry_ms)
        session = self._session
        if session is None or not flush:
            # Unflushed, the goodbye stands directly behind what the transport holds: never inside another frame.
            if goodbye is not None:
                self.send(goodbye)
            self._end()
            return
        session.stop()
        if goodbye is not None:
            session.control(goodbye)
        if session.queued:
            gateway = self._gateway
            gateway.ticker.schedule(self, gateway.now() + gateway.settings.close_timeout_ms / 1000)
        else:
            self._end()

    def _end(self) -> None:
        self._state = State.ENDED
        self._gateway.ticker.cancel(self)
        if self._session is not None:
            self._session.close()
        self._socket.close(self._closing.code, self._closing.reason)
