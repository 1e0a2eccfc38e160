"""The demo's load balancer: who gets a request, and what both ends see of each other."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from tests.support.waiting import until
from tidings_gateway.demo.front import MAX_HEAD_BYTES, Front


class Upstream:
    """Answers every request with its name, and keeps what it was sent; an upgrade is echoed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heads: list[bytes] = []
        self.open = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await until(lambda: self.open == 0, what=f"no connection to {self.name} is left")

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self._writers.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if b"upgrade: websocket" in head:
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
                while data := await reader.read(65_536):
                    writer.write(data)
                    await writer.drain()
            else:
                body = self.name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            self._writers.discard(writer)
            writer.close()


class Scene:
    def __init__(self, backend: Upstream, gateways: list[Upstream]) -> None:
        self.backend = backend
        self.gateways = gateways
        self.taking = [gateway.port for gateway in gateways]
        self.front = Front(backend.port, lambda: self.taking)
        self.port = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        reader, writer = await self.connect()
        try:
            writer.write(request)
            async with asyncio.timeout(5):
                return await reader.read()
        finally:
            writer.close()

    async def get(self, path: str, headers: bytes = b"") -> bytes:
        return await self.ask(b"GET %b HTTP/1.1\r\nhost: x\r\n%b\r\n" % (path.encode(), headers))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream(name)) for name in ("backend", "A", "B")]
        made = Scene(upstreams[0], upstreams[1:])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            made.port = probe.getsockname()[1]
        await made.front.start(made.port)
        stack.push_async_callback(made.front.stop)
        yield made


@pytest.mark.parametrize(
    ("path", "backend"),
    [
        ("/", True),
        ("/?x=1", True),
        ("/demo/state", True),
        ("/v1/ws", False),
        ("/tidings.js", False),
        ("/demo", False),
        ("/demonstration", False),
        ("/livez?/demo/", False),
    ],
)
async def test_the_path_decides(scene: Scene, path: str, backend: bool) -> None:
    """The page and its application on one side, everything else to a gateway."""
    answer = await scene.get(path)
    assert answer.endswith(b"backend") is backend


async def test_gateways_take_turns(scene: Scene) -> None:
    """Round robin among those that take newcomers."""
    names = [(await scene.get("/livez"))[-1:] for _ in range(6)]
    assert sorted(names) == [b"A"] * 3 + [b"B"] * 3
    assert names[0] != names[1]


async def test_a_draining_gateway_gets_no_newcomers(scene: Scene) -> None:
    """While it lets its sessions go, the others take everybody."""
    scene.taking = scene.taking[1:]
    assert {(await scene.get("/livez"))[-1:] for _ in range(4)} == {b"B"}


async def test_an_unreachable_gateway_costs_a_try_of_the_next(scene: Scene) -> None:
    """It may have died since it was last asked."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # bound, not listening: refuses connections
        scene.taking = [probe.getsockname()[1], scene.gateways[1].port]
        assert {(await scene.get("/livez"))[-1:] for _ in range(4)} == {b"B"}


async def test_without_a_gateway_it_says_when_to_come_back(scene: Scene) -> None:
    """503 with Retry-After, while the page stays reachable."""
    scene.taking = []
    answer = await scene.get("/v1/ws")
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in answer
    assert (await scene.get("/")).endswith(b"backend")


async def test_a_connection_is_for_one_request(scene: Scene) -> None:
    """The next one on it may be for somebody else; an upgrade is passed on as it came."""
    await scene.get("/demo/state", b"Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n")
    head = scene.backend.heads[-1].lower()
    assert head.count(b"connection:") == 1
    assert b"\r\nconnection: close\r\n" in head
    assert b"keep-alive" not in head
    upgrade = b"GET /v1/ws HTTP/1.1\r\nhost: x\r\nConnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
    reader, writer = await scene.connect()
    writer.write(upgrade)
    await reader.readuntil(b"\r\n\r\n")
    assert upgrade in [head for gateway in scene.gateways for head in gateway.heads]
    writer.close()


async def test_an_upgraded_connection_is_copied_both_ways(scene: Scene) -> None:
    """Whatever comes, in both directions, until one side ends it."""
    reader, writer = await scene.connect()
    writer.write(b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    sent = b"x" * 1_000_000
    writer.write(sent)
    async with asyncio.timeout(10):
        assert await reader.readexactly(len(sent)) == sent
        writer.write_eof()
        assert await reader.read() == b""
    writer.close()
    await until(lambda: all(gateway.open == 0 for gateway in scene.gateways), what="the gateway's side is closed too")


async def test_tabs_are_counted_by_gateway(scene: Scene) -> None:
    """What shows a drain: a WebSocket counts from its upgrade until either side is gone; a request never."""
    tabs = [await scene.connect() for _ in range(4)]
    for reader, writer in tabs:
        writer.write(b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
    await scene.get("/livez")
    ports = [gateway.port for gateway in scene.gateways]
    assert [scene.front.tabs(port) for port in ports] == [2, 2]
    scene.gateways[0].cut()
    await until(lambda: [scene.front.tabs(port) for port in ports] == [0, 2], what="those of A are gone")
    for _, writer in tabs:
        writer.close()
    await until(lambda: scene.front.tabs(ports[1]) == 0, what="those of B are gone")


async def test_an_answer_comes_to_who_has_said_all_it_had_to(scene: Scene) -> None:
    """A client may end its own side once its request is out, and still wait for the answer."""
    reader, writer = await scene.connect()
    writer.write(b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n" + b"x" * 500_000)
    writer.write_eof()
    async with asyncio.timeout(10):
        assert (await reader.read(-1)).endswith(b"x" * 500_000)
    writer.close()


async def test_a_killed_gateway_is_seen_by_the_page(scene: Scene) -> None:
    """The page must reconnect at once, not after its heartbeat."""
    reader, writer = await scene.connect()
    writer.write(b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    for gateway in scene.gateways:
        gateway.cut()
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_a_page_that_is_gone_is_seen_by_the_gateway(scene: Scene) -> None:
    """Also one whose connection was reset: its session must not wait for a heartbeat."""
    reader, writer = await scene.connect()
    writer.write(b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    linger_not = struct.pack("ii", 1, 0)  # close sends RST
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
    writer.transport.abort()
    await until(lambda: all(gateway.open == 0 for gateway in scene.gateways), what="the gateway's side is closed too")


@pytest.mark.parametrize("request_head", [b"nonsense\r\n\r\n", b"GET /\r\n\r\n", b"\x16\x03\x01\r\n\r\n"])
async def test_what_is_no_request_is_refused(scene: Scene, request_head: bytes) -> None:
    """Among others a TLS handshake."""
    assert (await scene.ask(request_head)).startswith(b"HTTP/1.1 400")


async def test_an_endless_head_is_cut(scene: Scene) -> None:
    """It is held in memory until it is complete, so it is bounded."""
    reader, writer = await scene.connect()
    writer.write(b"GET / HTTP/1.1\r\nx: " + b"x" * (MAX_HEAD_BYTES * 4))
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_stopping_cuts_everybody(scene: Scene) -> None:
    """The demo ends while pages are connected."""
    reader, writer = await scene.connect()
    writer.write(b"GET /v1/ws HTTP/1.1\r\nupgrade: websocket\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await scene.front.stop()
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    with pytest.raises(OSError):
        await scene.connect()
