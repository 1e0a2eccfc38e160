"""A gateway by script: says and does what no real one would, or what takes a real one long, to see what a browser makes
of it. It serves the client too, and an empty page, so that all of it is one origin."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.typing import Subprotocol

from tests.support.waiting import POLL_S
from tidings_gateway.assets import client_files

POSITION = "scripted1.7-7"
PAGE = '<!doctype html><script type="module">import * as it from "/tidings.js"; Object.assign(window, it);</script>'
FILES = client_files()  # Read now, before an event loop runs.

Script = Callable[[ServerConnection], Awaitable[None]]


class ScriptedGateway:
    """An async context manager. `scripts`: by the first part of the path that a client connects to."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.scripts = scripts
        self.attempts: dict[str, int] = defaultdict(int)
        """Upgrades asked for."""
        self.ends: dict[str, list[tuple[int, str]]] = defaultdict(list)
        """How connections ended, as seen from here: code and reason."""
        self.refusing: set[str] = set()
        """Those whose upgrades are answered by 503."""
        self.hanging: set[str] = set()
        """Those whose upgrades are never answered."""
        self.in_flight: dict[str, int] = defaultdict(int)
        self.most_in_flight: dict[str, int] = defaultdict(int)
        self._server: Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def __aenter__(self) -> ScriptedGateway:
        self._server = await serve(
            self._run,
            "127.0.0.1",
            0,
            process_request=self._answer,
            subprotocols=[Subprotocol("tidings.v1")],
            open_timeout=None,
            close_timeout=1,
            ping_interval=None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.hanging.clear()
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        if request.headers.get("upgrade") is None:
            asset = FILES.get(path.removeprefix("/"))
            if asset is not None:
                return _response(asset.body, asset.media_type)
            return _response(PAGE.encode(), "text/html")
        name = path.split("/")[1]
        self.attempts[name] += 1
        self.in_flight[name] += 1
        self.most_in_flight[name] = max(self.most_in_flight[name], self.in_flight[name])
        try:
            while name in self.hanging and not connection.transport.is_closing():
                await asyncio.sleep(POLL_S)
            if name in self.refusing:
                await asyncio.sleep(0.02)  # time: a refusal takes a moment, in which a second attempt would be seen
                return _response(b"", "text/plain", HTTPStatus.SERVICE_UNAVAILABLE)
            return None
        finally:
            self.in_flight[name] -= 1

    async def _run(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        name = connection.request.path.split("/")[1]
        try:
            await self.scripts[name](connection)
            await connection.wait_closed()
        except ConnectionClosed:
            pass
        finally:
            self.ends[name].append((connection.close_code or 1006, connection.close_reason or ""))


def _response(body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    headers = Headers({"content-type": kind, "content-length": str(len(body)), "connection": "close"})
    return Response(status, status.phrase, headers, body)


# What scripts are made of.


async def say(connection: ServerConnection, frame: Any) -> None:
    await connection.send(json.dumps(frame))


async def welcome(connection: ServerConnection, *, heartbeat_ms: int = 20_000, timeout_ms: int = 10_000) -> None:
    """Hear the hello, and let the client be live."""
    hello = json.loads(await connection.recv())
    assert hello["type"] == "hello"
    await say(
        connection,
        {
            "type": "welcome",
            "session": "s-1",
            "user": "u",
            "resumed": hello.get("position") == POSITION,
            "position": POSITION,
            "heartbeat_ms": heartbeat_ms,
            "timeout_ms": timeout_ms,
            "server_time": 0,
            "expires_in_ms": None,
        },
    )
    await say(connection, {"type": "synced", "position": POSITION, "replayed": 0})


async def live(connection: ServerConnection) -> None:
    """Live, and nothing more: whatever the client says is heard."""
    await welcome(connection)
    async for _ in connection:
        pass


def closing_with(code: int) -> Script:
    """Live, then closed with `code`; 1005: by a Close frame without one; 1006: without a Close frame."""

    async def script(connection: ServerConnection) -> None:
        await welcome(connection)
        if code == 1006:
            connection.transport.abort()
        elif code == 1005:
            assert connection.protocol.state is State.OPEN
            connection.protocol.send_close()
            connection.send_data()
        else:
            await connection.close(code, f"because {code}")

    return script


def saying(*messages: str | bytes, heartbeat_ms: int = 20_000, timeout_ms: int = 10_000) -> Script:
    """Live, then these messages."""

    async def script(connection: ServerConnection) -> None:
        await welcome(connection, heartbeat_ms=heartbeat_ms, timeout_ms=timeout_ms)
        for message in messages:
            await connection.send(message)
        async for _ in connection:
            pass

    return script
