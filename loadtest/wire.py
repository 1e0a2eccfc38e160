"""One WebSocket of a load test: websockets' Sans-I/O protocol on a plain socket.

locust is built on gevent, where a blocking call is what yields. The clients of the websockets library are made for
threads or asyncio, and each would bring a thread, or a second loop, per user. Its protocol without I/O brings the whole
of RFC 6455 and leaves the waiting to us: a user is one greenlet and one socket, and thousands fit into a process.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI
from websockets.frames import Frame, Opcode
from websockets.protocol import CLOSED, OPEN
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

RECEIVE_BYTES = 65_536
SHORTEST_WAIT_S = 0.001
ABNORMAL = 1006
"""The code of a connection that ended without one (RFC 6455, section 7.1.5)."""
SEND_S = 10.0
"""A peer that takes no frame of a client for so long is gone."""
MAX_FRAME_BYTES = 1_048_576
"""A frame of the gateway holds a body of at most 64 KiB, unless the deployment allows more."""

_RESET = struct.pack("ii", 1, 0)


class Refused(Exception):
    """No connection came about; the message says why. `status`: the HTTP answer, when there was one."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


class Closed(Exception):
    """The connection is over. 1005: closed without a code; 1006: not closed in order."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}".strip())
        self.code = code
        self.reason = reason


class Wire:
    """Made by `open`. One greenlet uses it, except that any may `cut` it."""

    def __init__(self, sock: socket.socket, protocol: ClientProtocol) -> None:
        self._socket = sock
        self._protocol = protocol

    @classmethod
    def open(cls, url: str, timeout_s: float, *, origin: str | None = None) -> Wire:
        """Connect and shake hands, each step within `timeout_s`. Raises `Refused`."""
        parts = urlsplit(url)
        headers = {} if origin is None else {"origin": origin}
        try:
            address = (parts.hostname or "", parts.port or (443 if parts.scheme == "wss" else 80))
            sock = socket.create_connection(address, timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parts.scheme == "wss":
                sock = ssl.create_default_context().wrap_socket(sock, server_hostname=parts.hostname)
            protocol = ClientProtocol(
                parse_uri(url), subprotocols=[Subprotocol("tidings.v1")], max_size=MAX_FRAME_BYTES
            )
            wire = cls(sock, protocol)
            request = protocol.connect()
            request.headers.update(headers)
            protocol.send_request(request)
            wire._flush()
            while protocol.state is not OPEN and protocol.handshake_exc is None:
                wire._read(timeout_s)
        except (OSError, InvalidURI) as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        if protocol.handshake_exc is not None:
            wire.cut()
            response = getattr(protocol.handshake_exc, "response", None)
            raise Refused(str(protocol.handshake_exc), getattr(response, "status_code", None))
        return wire

    def send(self, frame: Mapping[str, Any]) -> None:
        """Never raises for a connection that is over: the next `receive` tells."""
        if self._protocol.state is OPEN:
            self._protocol.send_text(json.dumps(frame, separators=(",", ":")).encode())
            self._flush()

    def receive(self, timeout_s: float | None) -> list[Any]:
        """The frames that came, decoded; none when nothing came in time. What is not JSON is given as None.
        Raises `Closed` when there is nothing more to come."""
        if self._protocol.close_rcvd is None:
            try:
                self._read(timeout_s)
            except TimeoutError:
                return []
        frames = [_decoded(event) for event in self._protocol.events_received() if _is_message(event)]
        told = self._protocol.close_rcvd
        if not frames and (told is not None or self._protocol.state is CLOSED):
            self._shut()
            raise Closed(told.code, told.reason) if told is not None else Closed(ABNORMAL, "")
        return frames

    def _read(self, timeout_s: float | None) -> None:
        try:
            # A timeout of 0 would make the socket one that does not wait at all, and raise something else.
            self._socket.settimeout(timeout_s if timeout_s is None else max(timeout_s, SHORTEST_WAIT_S))
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        self._flush()

    def _flush(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self._socket.settimeout(SEND_S)
                    self._socket.sendall(data)
        except OSError:
            self._shut()  # Half a frame may be out. Reading says that it is over.

    def close(self, code: int, reason: str) -> None:
        """As a page that leaves: a close frame, and no waiting for the answer."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(code, reason)
            self._flush()
        self._shut()

    def cut(self) -> None:
        """As a network that goes away: no close frame, and a reset instead of an end."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        except OSError:
            return  # closed already
        self._shut()

    def _shut(self) -> None:
        # A greenlet that waits in recv is told, too.
        self._socket.close()


def _is_message(event: object) -> bool:
    return isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.BINARY)


def _decoded(frame: Any) -> Any:
    try:
        return json.loads(bytes(frame.data))
    except ValueError:
        return None
