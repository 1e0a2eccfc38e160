"""An independent client of the WebSocket contract. It shares no code with the gateway: what both get wrong in the same
way would never be seen.

It keeps its position by the rules for clients, reconnects with full jitter, and records everything. What breaks the
contract (a hole in the ids, a repeat, a frame out of place) goes into `violations`; a test ends by asserting that this
list is empty (`check()`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import websockets
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from tests.support.follower import Follower, Frame
from tests.support.observed import Closed, Received
from tests.support.proxy import abort
from tests.support.waiting import until

STOPPING = frozenset({1000, 4400, 4403, 4409})
RETRY_MS_CODES = frozenset({1012, 1013, 4429})
MAX_TOKENS_REFUSED = 3
HEALTHY_S = 10.0


class Client(Follower):
    """One page of one user. `urls`: WebSocket addresses, one of which is picked at random for each attempt.

    `token` may be a function, called for each attempt. `position`: what an earlier page stored. `refetch` stands for
    the page fetching its own state; until it returns, the position is held back; when it raises, it is called again
    after the next reconnect. `base_ms`, `cap_ms`: the jitter's window for the first attempt and at most.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        token: str | Callable[[], str],
        *,
        name: str = "client",
        position: str | None = None,
        replay: int | None = None,
        refetch: Callable[[str], Awaitable[None]] | None = None,
        base_ms: float = 50,
        cap_ms: float = 1000,
        rng: random.Random | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        super().__init__(position)
        self.urls = [urls] if isinstance(urls, str) else list(urls)
        self.token = token
        self.name = name
        self.replay = replay
        self.refetch = refetch
        self.base_ms = base_ms
        self.cap_ms = cap_ms
        self.rng = rng or random.Random()
        self.receive_buffer = receive_buffer

        self.closes: list[Closed] = []
        self.refused: list[str] = []
        """Attempts that did not become a connection, and why."""
        self.stopped: str | None = None
        """Why it will not reconnect any more."""

        self.ws: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._refetching: asyncio.Task[None] | None = None
        self._attempt = 0
        self._tokens_refused = 0

    # Driving it

    def start(self) -> Client:
        self._task = asyncio.create_task(self._run(), name=f"client {self.name}")
        return self

    async def close(self) -> None:
        """Close with 1000 and stay closed."""
        self.stopped = self.stopped or "closed by the test"
        if self.ws is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ws.close(), 2)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> Client:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def cut(self) -> bool:
        """The network tears the connection (RST). False when there was none."""
        if self.ws is None:
            return False
        abort(self.ws.transport)
        return True

    async def until_synced(self, deadline_s: float = 10, *, connection: int | None = None) -> None:
        """Connected, and caught up: on that connection or a later one, when given (they count from 1)."""

        def done() -> bool:
            if self.stopped:
                raise AssertionError(f"{self.name} stopped: {self.stopped}")
            return self.synced and self.connections >= (connection or 1)

        try:
            await until(done, deadline_s, f"{self.name} is synced")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.explain()}") from None

    async def until_events(self, count: int, deadline_s: float = 10) -> list[Received]:
        """At least `count` durable events in all."""
        await until(lambda: len(self.events) >= count, deadline_s, f"{self.name} has {count} events; {self.explain()}")
        return self.events

    def explain(self) -> str:
        """Its state in one line, for messages."""
        return (
            f"connections={self.connections} synced={self.synced} position={self.position} stored={self.stored} "
            f"events={len(self.events)} closes={[(c.code, c.reason) for c in self.closes[-3:]]} "
            f"refused={self.refused[-3:]} violations={self.violations[:3]} stopped={self.stopped}"
        )

    async def send(self, frame: Frame) -> None:
        assert self.ws is not None, "not connected"
        await self.ws.send(json.dumps(frame))

    # Connecting

    async def _run(self) -> None:
        while not self.stopped:
            wait_ms = await self._one_connection()
            if not self.stopped:
                await asyncio.sleep(wait_ms / 1000)

    async def _one_connection(self) -> float:
        """One attempt and, if it succeeds, one connection to its end. Returns how long to wait before the next."""
        try:
            ws = await self._connect()
        except (OSError, TimeoutError, InvalidHandshake, EOFError) as error:
            status = error.response.status_code if isinstance(error, InvalidStatus) else None
            self.refused.append(f"HTTP {status}" if status else type(error).__name__)
            return self._backoff()
        self.connected()
        self.ws = ws
        begin = time.monotonic()
        try:
            with contextlib.suppress(ConnectionClosed):
                await self._hello(ws)
                await self._listen(ws)
            if ws.close_code is None:
                await ws.wait_closed()
        finally:
            self.ws = None
            self._abandon_refetch()
            self.lost()
            ws.transport.abort()
        code = ws.close_code or 1006
        self.closes.append(Closed(code, ws.close_reason or "", self.connections, time.monotonic(), self.goodbye))
        if time.monotonic() - begin >= HEALTHY_S:
            self._attempt = 0
        return self._after(code)

    async def _connect(self) -> ClientConnection:
        url = self.rng.choice(self.urls)
        options: dict[str, Any] = {}
        if self.receive_buffer is not None:
            options["sock"] = await _small_socket(url, self.receive_buffer)
        return await connect(
            url,
            subprotocols=[websockets.Subprotocol("tidings.v1")],
            compression=None,
            ping_interval=None,
            open_timeout=10,
            close_timeout=1,
            max_size=None,
            max_queue=None,
            proxy=None,
            **options,
        )

    async def _hello(self, ws: ClientConnection) -> None:
        hello: Frame = {"type": "hello", "token": self.token if isinstance(self.token, str) else self.token()}
        if self.stored is not None:
            hello["position"] = self.stored
        elif self.replay is not None:
            hello["replay"] = self.replay
        await ws.send(json.dumps(hello))

    async def _listen(self, ws: ClientConnection) -> None:
        patience_s = 30.0
        while True:
            try:
                # The watchdog counts frames only; the server's heartbeats are frames, so this is never too strict.
                async with asyncio.timeout(patience_s):
                    text = await ws.recv()
            except TimeoutError:
                self.refused.append("silent")
                abort(ws.transport)
                return
            if not isinstance(text, str):
                self.violation(f"a binary frame: {text[:40]!r}")
                continue
            frame = json.loads(text)
            kind = frame.get("type")
            if kind == "heartbeat":
                await ws.send(json.dumps({"type": "heartbeat", "position": self.position}))
            elif kind == "welcome":
                patience_s = (frame["heartbeat_ms"] + frame["timeout_ms"]) / 1000
                self._tokens_refused = 0
            if self.take(frame):
                self._start_refetch()

    def _after(self, code: int) -> float:
        if code in STOPPING:
            self.stopped = self.stopped or f"closed with {code}"
            return 0
        if code == 4401:
            self._tokens_refused += 1
            if self._tokens_refused >= MAX_TOKENS_REFUSED:
                self.stopped = "token refused three times"
        retry_ms = (self.goodbye or {}).get("retry_ms")
        if code == 1012 and retry_ms is not None:
            return self.rng.uniform(0, retry_ms)
        return self._backoff(floor_ms=retry_ms if code in RETRY_MS_CODES and retry_ms else 0)

    def _backoff(self, floor_ms: float = 0) -> float:
        window = max(floor_ms, min(self.cap_ms, self.base_ms * 2**self._attempt))
        self._attempt = min(self._attempt + 1, 16)
        return self.rng.uniform(0, window)

    def _start_refetch(self) -> None:
        if self.refetch is None:
            self.refetched()
            return
        self._abandon_refetch()
        assert self.position is not None
        self._refetching = asyncio.create_task(self._refetch(self.position), name=f"refetch {self.name}")

    async def _refetch(self, position: str) -> None:
        assert self.refetch is not None
        try:
            await self.refetch(position)
        except Exception as error:  # noqa: BLE001 - the page's own fault, whatever it is
            self.refused.append(f"refetch: {type(error).__name__}")
            return
        self.refetched()

    def _abandon_refetch(self) -> None:
        if self._refetching is not None:
            self._refetching.cancel()
            self._refetching = None


async def _small_socket(url: str, receive_buffer: int) -> Any:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    return sock
