"""A TCP proxy that does to connections what networks do: delay, hold, black-hole, reset, throttle, cut.

Runs in the test's event loop (`async with FaultProxy(port) as proxy`), or in a thread of its own for blocking tests
(`with ThreadedProxy(port) as proxy: proxy.call(lambda p: p.hold("down"))`).

``up`` is from the client to the server, ``down`` from the server to the client. Every fault may be switched on and off
at any time and acts on the connections that exist as well as on later ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

Way = Literal["up", "down", "both"]
T = TypeVar("T")

CHUNK = 16384
MAX_BUFFERED_BYTES = 262144
"""Per connection and direction; beyond it the proxy stops reading, as a full network path would."""
FLUSH_POLL_S = 0.001


class Flow:
    """The faults of one direction, shared by all connections, and what went through."""

    def __init__(self) -> None:
        self.bytes = 0
        """Bytes forwarded so far, all connections together."""
        self.delay_s = 0.0
        self.rate: float | None = None
        self.cut_after: int | None = None
        self.open = asyncio.Event()
        self.open.set()


class Link:
    """One proxied connection."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.client = client
        self.server: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        """Both ends see the connection reset by peer (RST): nothing buffered is delivered any more."""
        for writer in (self.client, self.server):
            if writer is not None:
                abort(writer.transport)
        self.proxy.links.discard(self)


class FaultProxy:
    """Forwards 127.0.0.1:`port` (chosen when started) to `target_host:target_port`."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1", *, receive_buffer: int | None = None) -> None:
        """`receive_buffer`: SO_RCVBUF of the sockets towards the target, to make a slow reader visible early."""
        self.target = (target_host, target_port)
        self.receive_buffer = receive_buffer
        self.port = 0
        self.links: set[Link] = set()
        self.accepted = 0
        """Connections accepted so far."""
        self.refusing = False
        self._up = Flow()
        self._down = Flow()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def bytes_up(self) -> int:
        return self._up.bytes

    @property
    def bytes_down(self) -> int:
        return self._down.bytes

    async def start(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """Resets what is open and stops listening. Returns when all its tasks are gone."""
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def __aenter__(self) -> FaultProxy:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def note(self, data: bytes) -> None:
        """What came from a client, as it came. For a test to look at."""

    # Faults

    def delay(self, ms: float, way: Way = "both") -> None:
        """What arrives from now on is passed on `ms` later; the order stays, the throughput too."""
        for flow in self._flows(way):
            flow.delay_s = ms / 1000

    def hold(self, way: Way = "both") -> None:
        """Keep everything, also the end of a connection, until `release`. Nothing is lost."""
        for flow in self._flows(way):
            flow.open.clear()

    def release(self, way: Way = "both") -> None:
        for flow in self._flows(way):
            flow.open.set()

    def blackhole(self) -> None:
        """Nothing goes through in either direction, new connections are accepted and never answered, nobody is told
        that the other side went away. `release` ends it."""
        self.hold("both")

    def throttle(self, bytes_per_s: float | None, way: Way = "both") -> None:
        """At most that many bytes per second and connection; None lifts it."""
        for flow in self._flows(way):
            flow.rate = bytes_per_s

    def cut_after(self, count: int | None, way: Literal["up", "down"] = "down") -> None:
        """Reset the connection that carries the byte after the next `count` bytes; then the fault is over.

        Exactly `count` more bytes are forwarded, wherever that falls in a message.
        """
        self._flows(way)[0].cut_after = count

    def reset(self) -> int:
        """RST to both ends of every open connection. Returns how many there were."""
        links = list(self.links)
        for link in links:
            link.reset()
        return len(links)

    def refuse(self, on: bool = True) -> None:
        """New connections are reset at once."""
        self.refusing = on

    def pass_all(self) -> None:
        """End every fault."""
        self.refusing = False
        for flow in (self._up, self._down):
            flow.delay_s, flow.rate, flow.cut_after = 0.0, None, None
            flow.open.set()

    def _flows(self, way: Way) -> list[Flow]:
        return {"up": [self._up], "down": [self._down], "both": [self._up, self._down]}[way]

    # Connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refusing:
            abort(writer.transport)
            return
        link = Link(self, writer)
        self.links.add(link)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._run(link, reader)
        except* (OSError, asyncio.CancelledError):
            pass  # Either side went away, or the proxy is closed.
        finally:
            link.reset()
            self._tasks.discard(task)

    async def _run(self, link: Link, reader: asyncio.StreamReader) -> None:
        # A black hole swallows the dialling too: the server must not see a connection that cannot exist.
        await self._up.open.wait()
        sock = socket.socket()
        try:
            sock.setblocking(False)
            if self.receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
            await asyncio.get_running_loop().sock_connect(sock, self.target)
            server_reader, link.server = await asyncio.open_connection(sock=sock, limit=CHUNK)
        except BaseException:
            sock.close()
            raise
        up = Pump(self._up, link, reader, link.server)
        down = Pump(self._down, link, server_reader, link.client)
        async with asyncio.TaskGroup() as group:
            for pump in (up, down):
                group.create_task(pump.read())
                group.create_task(pump.write())


class Pump:
    """One direction of one connection: a reader that stamps what comes, and a writer that lets it go when due."""

    def __init__(self, flow: Flow, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.flow = flow
        self.link = link
        self.reader = reader
        self.writer = writer
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.buffered = 0
        self.changed = asyncio.Event()

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        data = b"start"
        while data:
            while self.buffered >= MAX_BUFFERED_BYTES:
                self.changed.clear()
                await self.changed.wait()
            data = await self.reader.read(CHUNK)
            if self.flow is self.link.proxy._up:
                self.link.proxy.note(data)
            self.waiting.append((loop.time() + self.flow.delay_s, data))
            self.buffered += len(data)
            self.changed.set()

    async def write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self.waiting:
                self.changed.clear()
                await self.changed.wait()
            due, data = self.waiting.popleft()
            if (pause := due - loop.time()) > 0:
                await asyncio.sleep(pause)
            await self.flow.open.wait()
            if not data:
                with contextlib.suppress(OSError, RuntimeError):
                    self.writer.write_eof()
                return
            await self._forward(data)
            self.buffered -= len(data)
            self.changed.set()

    async def _forward(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            flow = self.flow
            await flow.open.wait()
            size = len(view) if flow.rate is None else max(1, min(len(view), int(flow.rate / 20)))
            cut = flow.cut_after is not None and flow.cut_after < size
            if flow.cut_after is not None:
                size = min(size, flow.cut_after)
                flow.cut_after = None if cut else flow.cut_after - size
            if size:
                self.writer.write(bytes(view[:size]))
                await self.writer.drain()
                flow.bytes += size
                view = view[size:]
            if cut:
                await self._flushed()
                self.link.reset()
                raise ConnectionResetError("cut")
            if flow.rate is not None:
                await asyncio.sleep(size / flow.rate)

    async def _flushed(self) -> None:
        # RST throws away what is still in our buffer, and the promise is that `count` bytes were passed on.
        while self.writer.transport.get_write_buffer_size() and not self.writer.transport.is_closing():
            await asyncio.sleep(FLUSH_POLL_S)


class ThreadedProxy:
    """A `FaultProxy` in a thread of its own, for tests that block."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._thread.start()
        self._proxy = self.run(_make(target_port, target_host))
        self.port = self._proxy.port
        self.url = self._proxy.url

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def call(self, action: Callable[[FaultProxy], T]) -> T:
        """Run `action` with the proxy, in its thread, and return what it returns."""

        async def act() -> T:
            return action(self._proxy)

        return self.run(act())

    def close(self) -> None:
        self.run(self._proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> ThreadedProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _make(port: int, host: str) -> FaultProxy:
    return await FaultProxy(port, host).start()


def abort(transport: asyncio.WriteTransport) -> None:
    """Close with RST instead of FIN (SO_LINGER 0), dropping what is buffered."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
