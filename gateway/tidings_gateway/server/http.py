"""HTTP/1.1 on one connection: uvicorn's protocol with deadlines, bounds, and upgrades that are parsed only once.

A connection is in one of three states, whatever the answers are doing meanwhile:

    HEADERS   from its first moment, or a request's first byte: `header_timeout_ms` and the size bounds apply
    BODY      until the message is complete: `body_timeout_ms`
    IDLE      between messages: `keep_alive_ms` once the answer is out

Beside it, while bytes of an answer wait for a peer that does not take them: `slow_timeout_ms`, also after the end.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import urllib.parse
from typing import TYPE_CHECKING, Any, NoReturn, cast

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import is_ssl

from tidings_gateway.server.handshake import Handshake
from tidings_gateway.server.upgrade import Refusal, Upgrade, check_upgrade, wants_websocket

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.config import Config

    from tidings_gateway.server.handshake import Message
    from tidings_gateway.server.state import GatewayState

log = logging.getLogger("tidings.server")


class Reading(enum.IntEnum):
    HEADERS = 0
    BODY = 1
    IDLE = 2


class _Refused(Exception):
    """Leaves the parser from within its callbacks; `HttpProtocol._refusal` says why."""


MAX_DISCARD_BYTES = 1_048_576
"""How much of a refused client's data is read and thrown away, so that it gets to see the answer."""


class HttpProtocol(HttpToolsProtocol):
    server_state: GatewayState

    def __init__(
        self,
        config: Config,
        server_state: GatewayState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings = server_state.settings
        self._reading = Reading.HEADERS
        self._block = 0  # which headers are being read: the first, the second …
        self._raw_bytes = 0  # of them, as they came: what the parser keeps back is in here
        self._parsed_bytes = 0  # of them, as the parser passed them on: exact, also when several came in one read
        self._waiting_bytes = 0  # of answers, when somebody last looked
        self._refusal: Refusal | None = None
        self._upgrade: Upgrade | None = None
        self._deaf = False

    # Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        state = self.server_state
        self.transport = transport
        self.flow = FlowControl(transport)
        if state.full():
            self._deaf = True
            transport.abort()
            return
        # Not through the socket object, as uvicorn does it: that costs system calls and an object that stays.
        self.server = _address(transport, "sockname")
        self.client = _address(transport, "peername")
        self.scheme = "https" if is_ssl(transport) else "http"
        state.connections.add(self)
        state.header_deadlines.start(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadlines()
        self.server_state.slow_deadlines.stop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._raw_bytes += len(data)
            if self._raw_bytes > MAX_DISCARD_BYTES:
                self.transport.pause_reading()
            return
        if self._reading is Reading.IDLE:
            # Before the parser sees it, so that all bytes of the next request count as its own, line ends included that
            # the parser would skip in silence.
            self._start_headers()
        block = self._block
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self._refuse(self._refusal or Refusal(400, "This is not a valid HTTP request."))
            return
        if self._reading is Reading.BODY:
            self.server_state.body_deadlines.start(self)
        elif self._reading is Reading.HEADERS and self._block == block:
            self._raw_bytes += len(data)
            if self._raw_bytes > self._settings.max_header_bytes:
                self._refuse(_HEADERS_TOO_LARGE)

    # Deadlines

    def headers_late(self) -> None:
        if self._deaf:
            self.transport.abort()
        elif self._busy():
            # A request pipelined by half, and perhaps it is us who stopped reading: its time has not begun.
            self.server_state.header_deadlines.start(self)
        elif self._raw_bytes:
            self._refuse(Refusal(408, "The request did not arrive in time."))
        else:
            self.transport.close()

    def body_late(self) -> None:
        self.transport.close()
        self._watch_taking()

    def idle_too_long(self) -> None:
        self.transport.close()

    def nothing_taken(self) -> None:
        if 0 < self._waiting_bytes <= self.transport.get_write_buffer_size():
            # To close it would be to wait for the very peer that does not read.
            self.transport.abort()
        else:
            self._watch_taking()

    def _watch_taking(self) -> None:
        self._waiting_bytes = self.transport.get_write_buffer_size()
        if self._waiting_bytes:
            self.server_state.slow_deadlines.start(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_taking()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._busy():
            # More of the answer is written from now on, so that its size would say nothing of what is taken.
            self.server_state.slow_deadlines.stop(self)

    def _start_headers(self) -> None:
        self._reading = Reading.HEADERS
        self._block += 1
        self._raw_bytes = self._parsed_bytes = 0
        self.server_state.idle_deadlines.stop(self)
        self.server_state.header_deadlines.start(self)

    def _forget_deadlines(self) -> None:
        state = self.server_state
        state.header_deadlines.stop(self)
        state.body_deadlines.stop(self)
        state.idle_deadlines.stop(self)

    # Parser callbacks

    def on_message_begin(self) -> None:
        if self._reading is not Reading.HEADERS:
            self._start_headers()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self._settings.max_url_bytes:
            self._stop(Refusal(414, "The URL is too long."))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parsed_bytes += len(name) + len(value) + len(b": \r\n")
        settings = self._settings
        if self._parsed_bytes > settings.max_header_bytes or len(self.headers) >= settings.max_headers:
            self._stop(_HEADERS_TOO_LARGE)
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        elif name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            # The parser would say so too, but only after the application was started.
            self._stop(Refusal(501, "The only transfer coding is chunked."))
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        state = self.server_state
        state.header_deadlines.stop(self)
        if not self.transport.get_write_buffer_size():
            state.slow_deadlines.stop(self)
        self._reading = Reading.BODY
        parser = self.parser
        http_version = parser.get_http_version()
        method = parser.get_method()
        self.scope["method"] = method.decode("ascii")
        self.scope["http_version"] = http_version
        self._locate()
        keep_alive = http_version != "1.0" and parser.should_keep_alive() and not state.draining.refusing
        if parser.should_upgrade():
            if wants_websocket(self.headers):
                self._check_upgrade(method, http_version)
                return
            # RFC 9110 7.8: an upgrade we do not know is ignored. The parser is of no use after it, though.
            keep_alive = False
        busy = self._busy()
        if busy and len(self.pipeline) >= self._settings.max_pipelined:
            self._stop(Refusal(400, "Too many requests wait on this connection."))
        self.cycle = Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,  # It would hold tickets.
            default_headers=state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        if busy:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def on_message_complete(self) -> None:
        state = self.server_state
        self._reading = Reading.IDLE
        state.body_deadlines.stop(self)
        if self._upgrade is None:
            if not self._busy():
                state.idle_deadlines.start(self)
            super().on_message_complete()

    def on_response_complete(self) -> None:
        state = self.server_state
        state.total_requests += 1
        self._watch_taking()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._reading is Reading.IDLE:
            state.idle_deadlines.start(self)

    def _locate(self) -> None:
        """The path as the application knows it: with the base path in front, whether or not a proxy took it away."""
        url = httptools.parse_url(self.url)
        raw_path = url.path
        path = raw_path.decode("ascii")
        if "%" in path:
            path = urllib.parse.unquote(path)
        base = self.root_path
        if base and path != base and not path.startswith(base + "/"):
            path = base + path
            raw_path = base.encode("ascii") + raw_path
        self.scope["path"] = path
        self.scope["raw_path"] = raw_path
        self.scope["query_string"] = url.query or b""

    def _busy(self) -> bool:
        # None before the first request, whatever uvicorn's annotation says.
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    # Upgrades

    def _check_upgrade(self, method: bytes, http_version: str) -> None:
        checked = check_upgrade(method, http_version, self.headers)
        if isinstance(checked, Refusal):
            self._stop(checked)
        elif self._busy():
            self._stop(Refusal(400, "An upgrade must wait for the answers before it."))
        elif (refusal := self.server_state.upgrade_refusal()) is not None:
            self._stop(refusal)
        else:
            self._upgrade = checked

    def _upgraded(self, early: bytes) -> None:
        if self._upgrade is None:
            self._deaf = True  # An upgrade that is ignored: its answer is under way, and the connection ends with it.
            return
        self._forget_deadlines()
        state = self.server_state
        state.connections.discard(self)
        # A frame that comes now must wait for whoever the connection will belong to.
        self.transport.pause_reading()
        handshake = Handshake(state, self.transport, self._upgrade, early)
        self.transport.set_protocol(handshake)
        handshake.start(self.app, cast("Message", self.scope), self._upgrade.subprotocols)
        self.parser = None  # type: ignore[assignment]  # It refers to us: without this, only the collector frees both.

    # Endings

    def end_keep_alive(self) -> None:
        """The answers under way and waiting are the last on this connection, and say so."""
        if self.cycle is not None:
            self.cycle.keep_alive = False
        for cycle, _ in self.pipeline:
            cycle.keep_alive = False

    def _stop(self, refusal: Refusal) -> NoReturn:
        self._refusal = refusal
        raise _Refused

    def _refuse(self, refusal: Refusal) -> None:
        """Answer, end our half, and read no more. An answer under way is cut short instead: nothing may be written
        into it."""
        self._forget_deadlines()
        self._deaf = True
        self._raw_bytes = 0
        if self._busy() or not self.transport.can_write_eof():
            self.transport.close()
            self._watch_taking()
            return
        # Closing at once would reset the connection if more data were on its way, and take the answer with it.
        self.transport.write(refusal.encode(self.server_state.default_headers))
        self.transport.write_eof()
        self.server_state.header_deadlines.start(self)


class Cycle(RequestResponseCycle):
    """One request and its answer."""

    async def run_asgi(self, app: ASGI3Application) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._give_up(Refusal(503, "The server stopped before it had an answer."))
        except Exception as error:
            if self.disconnected:
                log.info("a request ended with its connection: %s", type(error).__name__)
            else:
                log.exception("the application failed")
                self._give_up(Refusal(500, "The request failed."))
        else:
            if not self.response_complete and not self.disconnected:
                log.error("the application returned without completing its answer")
                self._give_up(Refusal(500, "The request failed."))
        finally:
            self.on_response = _nothing

    def _give_up(self, refusal: Refusal) -> None:
        if not self.response_started and not self.disconnected:
            self.transport.write(refusal.encode(self.default_headers))
        self.transport.close()
        self.on_response()


_HEADERS_TOO_LARGE = Refusal(431, "The request headers are too large.")


def _nothing() -> None: ...


def _address(transport: asyncio.Transport, name: str) -> tuple[str, int] | None:
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) and len(address) >= 2 else None
