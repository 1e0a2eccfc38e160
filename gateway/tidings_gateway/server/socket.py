"""A WebSocket that stands on its own: the transport calls it, it calls its handler, and no task waits in between.

    OPEN ----- close(), offence, peer's Close, FIN ----> CLOSING ----- TCP ends, or close_timeout aborts it ----> gone

`closing` is true from the first of these on: what is written afterwards is dropped, and the handler hears nothing more
but `closed`. The deadline of a close is the only timer a socket ever owns.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket as _socket
import struct
from typing import TYPE_CHECKING, Any, Protocol

from tidings_gateway.core.closing import ABNORMAL, INBOUND_RATE, SERVER_FAULT
from tidings_gateway.server.wire import (
    Fault,
    Inbound,
    PeerClose,
    Ping,
    Text,
    close_answer,
    close_frame,
    pong_frame,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings_gateway.server.sockets import Sockets

log = logging.getLogger("tidings.server")

READ_SLICE_BYTES = 1024
"""How much is parsed between two looks at the rate: a quarter megabyte of empty pings in one read would otherwise
occupy the loop for some 100 ms."""
MAX_DISCARD_BYTES = 1_048_576
"""How much of a refused peer's data is read and thrown away in a second, so that it gets to see our Close frame. After
more than that reading stops, and the close deadline ends it."""

_RESET = struct.pack("ii", 1, 0)


class SocketHandler(Protocol):
    """What a detached socket tells its owner. An exception in any of these closes the socket with 1011."""

    def opened(self, socket: Socket) -> None:
        """First of all calls; the socket can be written to from here on."""

    def text_received(self, text: str) -> None:
        """One complete message: valid UTF-8, at most `max_frame_bytes` of it."""

    def writable(self) -> None:
        """The transport took enough: `paused` has just become False."""

    def drain(self, retry_ms: int) -> None:
        """Say goodbye, flush, close with 1012. What takes longer than `close_timeout_ms` is closed by the server."""

    def closed(self, code: int) -> None:
        """Exactly once, and the last of all calls. `code` is of the Close frame that came first, ours or the peer's;
        1006 if there was none."""


class Socket(asyncio.Protocol):
    """One open WebSocket. Not for other threads."""

    __slots__ = (
        "_code",
        "_discarding",
        "_handler",
        "_inbound",
        "_pong_owed",
        "_second_bytes",
        "_second_ends",
        "_second_frames",
        "_sockets",
        "_timer",
        "_transport",
        "bytes_written",
        "closing",
        "last_received",
        "paused",
    )

    def __init__(self, sockets: Sockets, transport: asyncio.Transport, handler: SocketHandler) -> None:
        self._sockets = sockets
        self._transport = transport
        self._handler = handler
        # Only while something is half read: an idle socket pays for no parser. None for good once nothing is read.
        self._inbound: Inbound | None = None
        self._code = ABNORMAL.code
        self._discarding = False
        self._pong_owed: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._second_ends = 0.0
        self._second_frames = 0
        self._second_bytes = 0
        self.paused = False
        """True while the transport holds more than its high water mark: whoever has much to send should wait for
        `writable`."""
        self.closing = False
        self.bytes_written = 0
        """Everything handed to the transport. Less `buffered()`, it is what the kernel has taken."""
        self.last_received = sockets.time()
        """When the last byte came, on the loop's clock."""

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port of the TCP peer: a proxy's, when there is one. None once the connection is gone."""
        name = self._transport.get_extra_info("peername")
        return (name[0], name[1]) if isinstance(name, tuple) and len(name) >= 2 else None

    # Sending

    def write(self, frame: bytes) -> None:
        """Send an encoded frame. Never waits and never raises; dropped when the socket is closing."""
        if not self.closing:
            self.bytes_written += len(frame)
            self._transport.write(frame)

    def writelines(self, frames: Iterable[bytes]) -> None:
        """Several encoded frames in one go."""
        # One buffer: for frames of some hundred bytes, joining costs less than the vector of buffers does.
        self.write(b"".join(frames))

    def buffered(self) -> int:
        """Bytes the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str = "") -> None:
        """Send a Close frame behind what was written; abort if the connection has not ended within
        `close_timeout_ms`. Does nothing when the socket is closing already."""
        if not self.closing:
            self.write(close_frame(code, reason))
            self._code = code
            self._start_closing()

    def abort(self) -> None:
        """End the connection now. What is still buffered, here or in the kernel, is lost."""
        if self._handler is _GONE:
            return  # Also because the descriptor may be another connection's by now.
        self.closing = True
        self._discarding = True
        self._stop_parsing()
        # With RST instead of FIN: an orphaned connection would keep its send buffer, megabytes perhaps, for as long as
        # its peer does not read.
        with contextlib.suppress(OSError):
            self._transport.get_extra_info("socket").setsockopt(_socket.SOL_SOCKET, _socket.SO_LINGER, _RESET)
        self._transport.abort()

    def drain(self, retry_ms: int) -> None:
        """For the server: pass on to the handler that it must go."""
        if not self.closing:
            self._tell(self._handler.drain, retry_ms)

    def _start_closing(self) -> None:
        self.closing = True
        self._pong_owed = None
        if self._timer is None:
            self._timer = self._sockets.loop.call_later(self._sockets.close_timeout_s, self.abort)

    # Receiving

    def data_received(self, data: bytes) -> None:
        sockets = self._sockets
        now = sockets.time()
        self.last_received = now
        if now >= self._second_ends:
            self._second_ends = now + 1.0
            self._second_bytes = self._second_frames = 0
        if self._discarding:
            self._second_bytes += len(data)
            if self._second_bytes > MAX_DISCARD_BYTES:
                self._transport.pause_reading()
            return
        inbound = self._inbound
        if inbound is None:
            inbound = self._inbound = sockets.new_inbound()
        for start in range(0, len(data), READ_SLICE_BYTES):
            self._parse(inbound, data[start : start + READ_SLICE_BYTES])
            if self._inbound is not inbound:
                return  # refused, closed or aborted meanwhile: nothing is read any more
        if inbound.empty:
            self._stop_parsing()

    def _parse(self, inbound: Inbound, data: bytes) -> None:
        frames, events = inbound.receive(data)
        self._second_frames += frames
        self._second_bytes += len(data)
        sockets = self._sockets
        if self._second_frames > sockets.inbound_frames_per_s or self._second_bytes > sockets.inbound_bytes_per_s:
            self._refuse(INBOUND_RATE.code, INBOUND_RATE.reason)
            return
        for event in events:
            match event:
                case Text(text):
                    if not self.closing:
                        self._tell(self._handler.text_received, text)
                case Ping(payload):
                    self._pong(payload)
                case PeerClose():
                    self._answer_close(event)
                case Fault(code, reason):
                    self._refuse(code, reason)

    def _stop_parsing(self) -> None:
        if self._inbound is not None:
            self._inbound.close()
            self._inbound = None

    def _pong(self, payload: bytes) -> None:
        if self.closing:
            return
        if self.paused:
            # RFC 6455 5.5.3 lets one Pong answer all Pings before it. So a peer that pings and never reads cannot
            # grow the buffer past its high water mark.
            self._pong_owed = payload
        else:
            self.write(pong_frame(payload))

    def _answer_close(self, close: PeerClose) -> None:
        if not self.closing:
            self.write(close_answer(close.payload))
            self._code = close.code
            self._start_closing()
        self._discarding = True
        self._stop_parsing()
        self._transport.close()

    def _refuse(self, code: int, reason: str) -> None:
        """The peer broke a rule: Close, then the end of our stream (RFC 6455 7.1.7), then nothing it sends is read."""
        self.close(code, reason)
        self._discarding = True
        self._stop_parsing()
        self._second_bytes = 0
        # Closing the descriptor with unread data in it makes the kernel send RST, and the peer may then never see the
        # Close frame. So only our half ends here, and the peer's FIN or the deadline ends the rest.
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    # The transport's other calls

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.closing:
            return
        if self._pong_owed is not None:
            payload, self._pong_owed = self._pong_owed, None
            self.write(pong_frame(payload))
        self._tell(self._handler.writable)

    def eof_received(self) -> None:
        # Returning nothing lets the transport flush and close. A peer that only half closed gets what was written.
        self._discarding = True
        self._start_closing()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - RST or FIN: the end is the same
        self.closing = True
        self._discarding = True
        self.paused = False
        self._stop_parsing()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sockets.discard(self)
        handler, self._handler = self._handler, _GONE  # Parted, so that neither waits for the cycle collector.
        try:
            handler.closed(self._code)
        except Exception:
            log.exception("closed() of a socket's handler failed")

    def _tell(self, callback: Any, *args: object) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("a socket's handler failed; closing the socket")
            self.close(SERVER_FAULT.code, SERVER_FAULT.reason)


class Silent:
    """A handler that says and hears nothing."""

    def opened(self, socket: Socket) -> None: ...
    def text_received(self, text: str) -> None: ...
    def writable(self) -> None: ...
    def drain(self, retry_ms: int) -> None: ...
    def closed(self, code: int) -> None: ...


SILENT = Silent()
"""For a socket that is only made to be closed."""
_GONE = Silent()
"""For a socket whose handler has heard `closed`."""
