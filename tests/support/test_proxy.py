"""The fault proxy does what its name says, in both directions."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.proxy import FaultProxy, ThreadedProxy
from tests.support.waiting import until


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A server that sends back what it gets; gives its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


@pytest.fixture
async def proxy(echo: int) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(echo) as proxy:
        yield proxy


async def test_passes_bytes_and_counts_them(proxy: FaultProxy) -> None:
    """What goes in comes out, and both directions are counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"x" * 100_000)
    assert await reader.readexactly(100_000) == b"x" * 100_000
    assert (proxy.accepted, proxy.bytes_up, proxy.bytes_down) == (1, 100_000, 100_000)
    writer.close()
    await writer.wait_closed()
    await until(lambda: not proxy.links, what="the proxy forgets a connection that ended")


async def test_delay_shifts_without_serialising(proxy: FaultProxy) -> None:
    """Two requests sent together both come back after one delay, not one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.delay(200, "down")
    begin = time.monotonic()
    writer.write(b"a")
    await asyncio.sleep(0.05)  # time: the second request follows the first within one delay
    writer.write(b"b")
    assert await reader.readexactly(2) == b"ab"
    assert 0.2 <= time.monotonic() - begin < 0.38
    writer.close()
    await writer.wait_closed()


async def test_hold_keeps_and_release_delivers(proxy: FaultProxy) -> None:
    """Held bytes do not arrive, and all of them arrive in order after the release."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.hold("down")
    writer.write(b"abc")
    await until(lambda: proxy.bytes_up == 3)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.1)
    proxy.release()
    assert await reader.readexactly(3) == b"abc"
    writer.close()
    await writer.wait_closed()


async def test_blackhole_swallows_new_connections(proxy: FaultProxy, echo: int) -> None:
    """A black hole accepts and never answers, and the server sees nothing of it."""
    proxy.blackhole()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"abc")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.1)
    assert proxy.bytes_up == 0
    proxy.pass_all()
    assert await reader.readexactly(3) == b"abc"
    writer.close()
    await writer.wait_closed()


async def test_reset_is_a_real_rst(proxy: FaultProxy) -> None:
    """The client sees ECONNRESET, not an orderly end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"a")
    await reader.readexactly(1)
    assert proxy.reset() == 1
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()


async def test_cut_after_counts_bytes_exactly(proxy: FaultProxy) -> None:
    """Exactly the given number of bytes arrives before the reset, and the fault happens once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.cut_after(5, "down")
    writer.write(b"0123456789")
    await until(lambda: proxy.bytes_down == 5 and not proxy.links)
    with pytest.raises(ConnectionResetError):
        await reader.readexactly(6)
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()
    await writer.wait_closed()


async def test_throttle_limits_the_rate(proxy: FaultProxy) -> None:
    """20 kB at 50 kB/s takes about 0.4 s."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    proxy.throttle(50_000, "down")
    begin = time.monotonic()
    writer.write(b"x" * 20_000)
    await reader.readexactly(20_000)
    assert time.monotonic() - begin > 0.3
    writer.close()
    await writer.wait_closed()


async def test_refuse_resets_newcomers_only(proxy: FaultProxy) -> None:
    """`refuse` leaves open connections alone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(b"a")
    await reader.readexactly(1)
    proxy.refuse()
    other, other_writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    with pytest.raises(ConnectionResetError):
        await other.read(1)
    other_writer.close()
    writer.write(b"b")
    assert await reader.readexactly(1) == b"b"
    writer.close()
    await writer.wait_closed()


def test_works_from_a_thread() -> None:
    """Blocking code drives the same proxy."""
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, ThreadedProxy(listener.getsockname()[1]) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port), timeout=5)
        server, _ = listener.accept()
        with client, server:
            client.sendall(b"hi")
            assert server.recv(2) == b"hi"
            assert proxy.call(lambda p: p.reset()) == 1
            with pytest.raises(ConnectionResetError):
                client.recv(1)
