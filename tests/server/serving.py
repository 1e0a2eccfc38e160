"""A whole server in the test's own loop, with an application that does what a path says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from tests.support.rawsocket import RawSocket
from tests.support.waiting import until
from tidings_gateway.server.draining import Draining
from tidings_gateway.server.server import GatewayServer
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.server.socket import Socket

SMALL = 4096
"""Socket buffers so small that a peer that does not read is noticed soon."""

Message = MutableMapping[str, Any]


def text_frame(text: str | bytes) -> bytes:
    """An unmasked text frame, as the handler of a socket writes it."""
    return Frame(Opcode.TEXT, text.encode() if isinstance(text, str) else text).serialize(mask=False)


@dataclass(eq=False)
class Handler:
    """Notes every call and sends texts back. `on_text` and the like replace what happens then; they may raise."""

    calls: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    closes: list[int] = field(default_factory=list)
    on_opened: Callable[[Socket], None] | None = None
    on_text: Callable[[Socket, str], None] | None = None
    on_writable: Callable[[Socket], None] | None = None
    on_drain: Callable[[Socket], None] | None = None
    on_closed: Callable[[], None] | None = None
    socket: Socket = field(init=False)

    def opened(self, socket: Socket) -> None:
        self.calls.append("opened")
        self.socket = socket
        if self.on_opened:
            self.on_opened(socket)

    def text_received(self, text: str) -> None:
        self.calls.append("text")
        self.texts.append(text)
        if self.on_text:
            self.on_text(self.socket, text)
        else:
            self.socket.write(text_frame(text))

    def writable(self) -> None:
        self.calls.append("writable")
        if self.on_writable:
            self.on_writable(self.socket)

    def drain(self, retry_ms: int) -> None:
        self.calls.append(f"drain {retry_ms}")
        if self.on_drain:
            self.on_drain(self.socket)
        else:
            self.socket.write(text_frame("goodbye"))
            self.socket.close(1012, "draining")

    def closed(self, code: int) -> None:
        self.calls.append("closed")
        self.closes.append(code)
        if self.on_closed:
            self.on_closed()


def get(path: str = "/", headers: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{headers}\r\n".encode()


async def answer(raw: RawSocket) -> dict[str, object]:
    """What the application says about the request, which it answered with 200."""
    assert await raw.response() == 200
    return json.loads(await raw.body())  # type: ignore[no-any-return]


async def raw_socket(served: Served, receive_buffer: int | None = None) -> tuple[RawSocket, Handler]:
    """A connection by hand, and the handler at its other end."""
    known = len(served.app.handlers)
    raw = await RawSocket.connect(served.ws(), receive_buffer=receive_buffer)
    await until(lambda: len(served.app.handlers) > known, what="the handler is attached")
    return raw, served.app.handler


async def until_read(served: Served) -> None:
    """What was sent to this server before now, it has read, if it reads: somebody else, who came later, has an answer.
    Both are sockets of one event loop, and loopback delivers at once."""
    async with await RawSocket.tcp(served.url) as other:
        await other.send_bytes(get())
        await answer(other)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info]


class App:
    """`/v1/ws` attaches a `Handler`; the other paths are named after what they do."""

    def __init__(self) -> None:
        self.handlers: list[Handler] = []
        self.new_handler: Callable[[], Handler] = Handler
        self.scopes: list[MutableMapping[str, Any]] = []
        self.bodies: list[bytes] = []
        self.release = asyncio.Event()
        """What `/wait` waits for."""
        self.errors: list[BaseException] = []
        """What the server threw at the application."""
        self.after_attach: Callable[[Handler], None] | None = None

    @property
    def handler(self) -> Handler:
        return self.handlers[-1]

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.scopes.append(scope)
        try:
            if scope["type"] == "websocket":
                await self.websocket(scope, receive, send)
            else:
                await self.http(scope, receive, send)
        except BaseException as error:
            self.errors.append(error)
            raise

    async def websocket(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        path = scope["path"]
        if path == "/wait":
            await self.release.wait()
        if path == "/raise":
            raise ValueError("before accept")
        if path == "/return":
            return
        if path == "/refuse":
            await send({"type": "websocket.close", "code": 4401})
            return
        if path == "/deny":
            headers = [(b"content-type", b"application/problem+json")]
            await send({"type": "websocket.http.response.start", "status": 403, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b'{"a":', "more_body": True})
            await send({"type": "websocket.http.response.body", "body": b"1}"})
            return
        if path == "/early-attach":
            scope["extensions"]["tidings.attach"]["attach"](Handler())
        offered = scope["subprotocols"]
        protocol = "tidings.v1" if "tidings.v1" in offered else None
        await send({"type": "websocket.accept", "subprotocol": protocol, "headers": [(b"x-app", b"yes")]})
        if path == "/raise-after":
            raise ValueError("after accept")
        if path == "/return-after":
            return
        if path == "/close-after":
            await send({"type": "websocket.close", "code": 4401, "reason": "no token"})
            return
        if path == "/wait-after":
            await self.release.wait()
        handler = self.new_handler()
        self.handlers.append(handler)
        socket = scope["extensions"]["tidings.attach"]["attach"](handler)
        assert handler.socket is socket
        if self.after_attach:
            self.after_attach(handler)

    async def http(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        body = b""
        if scope["path"] == "/early":
            await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        if scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8000000")]})
            await send({"type": "http.response.body", "body": b"x" * 8_000_000})
            return
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.bodies.append(body)
        path = scope["path"]
        if path == "/wait":
            await self.release.wait()
        if path == "/sleep":
            await asyncio.sleep(0.3)  # time: an answer that takes a while, and still comes within the drain's window
        if path == "/raise":
            raise ValueError("in a request")
        if path == "/return":
            return
        seen = {name: scope[name] for name in ("path", "root_path", "client", "scheme", "method")}
        answer = json.dumps({**seen, "raw_path": scope["raw_path"].decode(), "body": len(body)}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if path == "/raise-after":
            raise ValueError("in an answer")
        if path == "/endless":
            await self.release.wait()
        await send({"type": "http.response.body", "body": answer})


class InProcess(GatewayServer):
    """Leaves the signals of the test process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass
class Served:
    app: App
    server: GatewayServer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def ws(self, path: str = "/v1/ws") -> str:
        return f"ws://127.0.0.1:{self.server.port}{path}"


@asynccontextmanager
async def serving(app: App | None = None, **settings: Any) -> AsyncIterator[Served]:
    """Ends without a drain; a test of the drain calls `server.stop()` itself and waits for `server.ended`."""
    app = app or App()
    server = InProcess(app, ServerSettings(port=0, **settings), Draining())
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.port or task.done(), what="the server listens")
        if task.done():
            await task
        yield Served(app, server)
    finally:
        app.release.set()
        server.stop_now()
        with contextlib.suppress(asyncio.CancelledError):
            await task
