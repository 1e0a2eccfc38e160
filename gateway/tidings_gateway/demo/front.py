"""A small load balancer: one address in front of the demo's backend and its gateways.

It works on bytes: the head of a request says where the connection goes, the rest is copied both ways. A gateway that
drains or is dead gets no newcomers, and one that cannot be reached after all costs a try of the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Sequence

log = logging.getLogger("tidings.demo")

MAX_HEAD_BYTES = 32_768
HEAD_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 1.0
CLOSE_TIMEOUT_S = 5.0
COPY_BYTES = 65_536
MAX_CONNECTIONS = 2_000

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\ncache-control: no-store\r\n"
    b"connection: close\r\n\r\n"
)
_BAD = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Front:
    """`backend` is the port of the demo's own application; `gateways` gives the ports of those that take newcomers."""

    def __init__(self, backend: int, gateways: Callable[[], Sequence[int]]) -> None:
        self._backend = backend
        self._gateways = gateways
        self._turn = itertools.count()
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._tabs: Counter[int] = Counter()

    def tabs(self, port: int) -> int:
        """How many WebSockets go to the gateway on this port just now."""
        return self._tabs[port]

    async def start(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        """Cut every connection."""
        if self._server is not None:
            self._server.close()
        while self._handlers:
            for task in self._handlers:
                task.cancel()
            await asyncio.wait(self._handlers)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve_one(reader, writer))
        self._handlers.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handlers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection through the front ended with an error", exc_info=error)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._handlers) > MAX_CONNECTIONS:
                writer.write(_BUSY)
            else:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # nothing that could be answered
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        finally:
            await _closed(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        target = _target(head)
        if target is None:
            writer.write(_BAD)
            return
        upstream = await self._connect(target)
        if upstream is None:
            writer.write(_BUSY)
            return
        port, (up_reader, up_writer) = upstream
        is_tab = _is_upgrade(head)
        self._tabs[port] += is_tab
        try:
            up_writer.write(head if is_tab else _for_one_request(head))
            await _relay((reader, writer), (up_reader, up_writer))
        finally:
            self._tabs[port] -= is_tab
            if not self._tabs[port]:
                del self._tabs[port]  # a gateway that is started again has another port
            await _closed(up_writer)

    async def _connect(self, target: bytes) -> tuple[int, Stream] | None:
        for port in self._ports(target):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return port, await asyncio.open_connection("127.0.0.1", port)
        return None

    def _ports(self, target: bytes) -> Sequence[int]:
        path = target.partition(b"?")[0]
        if path == b"/" or path.startswith(b"/demo/"):
            return [self._backend]
        ports = list(self._gateways())
        if not ports:
            return []
        first = next(self._turn) % len(ports)
        return ports[first:] + ports[:first]


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _relay(page: Stream, gateway: Stream) -> None:
    """Copy both ways until the gateway's side has ended, or either was cut: the caller then closes both, so that a page
    learns that its gateway was killed, and a gateway that its page is gone."""
    up = asyncio.create_task(_copy(page[0], gateway[1]))
    down = asyncio.create_task(_copy(gateway[0], page[1]))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if up.done() and up.exception() is None:
            await asyncio.wait((down,))  # what was asked is sent; the answer may still be on its way
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """What was written is flushed, for a bounded time."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(COPY_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        with contextlib.suppress(OSError):
            writer.write_eof()


def _target(head: bytes) -> bytes | None:
    parts = head.partition(b"\r\n")[0].split(b" ")
    return parts[1] if len(parts) == 3 and parts[2].startswith(b"HTTP/1.") else None


def _is_upgrade(head: bytes) -> bool:
    return b"\r\nupgrade: websocket\r\n" in head.lower()


def _for_one_request(head: bytes) -> bytes:
    """The next request of the connection may be for somebody else: so there is none."""
    lines = [
        line
        for line in head[:-4].split(b"\r\n")
        if not line.lower().startswith((b"connection:", b"keep-alive:", b"proxy-connection:"))
    ]
    return b"\r\n".join([*lines, b"connection: close", b"", b""])
