"""RFC 6455 frames as one server-side connection reads and writes them. No I/O.

Reading is websockets' Sans-I/O parser, so masking, reserved bits, opcodes, lengths and close codes are judged by it.
What is added here: whole messages out of fragments, strict UTF-8, and bounds on both.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, cast

from websockets.frames import Close, Frame, Opcode
from websockets.protocol import SERVER, Protocol
from websockets.streams import StreamReader

from tidings_gateway.core.closing import (
    INBOUND_RATE,
    NOT_UTF8,
    PROTOCOL_ERROR,
    SERVER_FAULT,
    TOO_LARGE,
    UNSUPPORTED,
)
from tidings_gateway.core.closing import Close as CloseRow

if TYPE_CHECKING:
    from types import GeneratorType

MAX_REASON_BYTES = 123
"""RFC 6455 5.5: a control frame's payload is at most 125 bytes, two of them the code."""

_log = logging.getLogger("tidings.server.parser")
_log.setLevel(logging.WARNING)  # The parser notes every connection's end at INFO, and formats every frame at DEBUG.

_BETWEEN_FRAMES = StreamReader.at_eof.__code__


class Text(NamedTuple):
    """One complete text message."""

    text: str


class Ping(NamedTuple):
    payload: bytes


class PeerClose(NamedTuple):
    """The peer's Close frame. `code` is 1005 when it named none; `payload` is what an answer echoes."""

    code: int
    payload: bytes


class Fault(NamedTuple):
    """The peer broke a rule; nothing after it is read."""

    code: int
    reason: str


def _fault(close: CloseRow) -> Fault:
    return Fault(close.code, close.reason)


_FAULTS = {close.code: _fault(close) for close in (NOT_UTF8, TOO_LARGE, SERVER_FAULT)}
"""What the parser itself finds. A protocol error is not here: its reason says which rule was broken."""

Event = Text | Ping | PeerClose | Fault


class Inbound:
    """Reads one peer's bytes. `receive` gives the number of frames they held and what those frames meant."""

    __slots__ = ("_fragments", "_max_fragments", "_message", "_parser")

    def __init__(self, max_message_bytes: int, max_fragments: int) -> None:
        self._parser = Protocol(SERVER, max_size=max_message_bytes, logger=_log)
        self._message: bytearray | None = None
        self._fragments = 0
        self._max_fragments = max_fragments

    @property
    def empty(self) -> bool:
        """Nothing is half read: a fresh `Inbound` would go on just as well.

        Where the parser's generator waits is the only sign that also holds between a header and its payload. Should
        websockets change there, this is never true, and the cost is memory.
        """
        if self._message is not None:
            return False
        waits_in = cast("GeneratorType[None, None, None]", self._parser.parser).gi_yieldfrom
        return waits_in is not None and cast("GeneratorType[None, None, None]", waits_in).gi_code is _BETWEEN_FRAMES

    def receive(self, data: bytes) -> tuple[int, list[Event]]:
        """After a `Fault` or `PeerClose` there is nothing more to read and this must not be called again."""
        parser = self._parser
        parser.receive_data(data)
        frames = parser.events_received()
        events: list[Event] = []
        for frame in frames:
            assert isinstance(frame, Frame)
            event = self._event(frame)
            if event is not None:
                events.append(event)
                if isinstance(event, Fault):
                    return len(frames), events
        if parser.parser_exc is not None:
            assert parser.close_sent is not None
            events.append(_FAULTS.get(int(parser.close_sent.code), Fault(PROTOCOL_ERROR.code, str(parser.parser_exc))))
        return len(frames), events

    def close(self) -> None:
        """Nothing more will be read. Frees the parser, which refers to itself, without the cycle collector."""
        self._parser.parser.close()

    def _event(self, frame: Frame) -> Event | None:
        match frame.opcode:
            case Opcode.TEXT:
                if frame.fin:
                    return _text(bytes(frame.data))
                self._message = bytearray(frame.data)
                self._fragments = 1
            case Opcode.CONT:
                assert self._message is not None
                self._message += frame.data
                self._fragments += 1
                if frame.fin:
                    message, self._message = self._message, None
                    return _text(bytes(message))
                if self._fragments >= self._max_fragments:
                    return _fault(INBOUND_RATE)
            case Opcode.BINARY:
                return _fault(UNSUPPORTED)
            case Opcode.PING:
                return Ping(bytes(frame.data))
            case Opcode.CLOSE:
                assert self._parser.close_rcvd is not None
                return PeerClose(int(self._parser.close_rcvd.code), bytes(frame.data))
        return None


def close_frame(code: int, reason: str = "") -> bytes:
    """The reason is cut to what a Close frame can carry. Raises websockets' `ProtocolError` for a code that must not
    be sent (RFC 6455 7.4)."""
    reason = reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
    return Frame(Opcode.CLOSE, Close(code, reason).serialize()).serialize(mask=False)


def close_answer(payload: bytes) -> bytes:
    return Frame(Opcode.CLOSE, payload).serialize(mask=False)


def pong_frame(payload: bytes) -> bytes:
    return Frame(Opcode.PONG, payload).serialize(mask=False)


def _text(message: bytes) -> Text | Fault:
    try:
        return Text(message.decode())
    except UnicodeDecodeError:
        return _fault(NOT_UTF8)
