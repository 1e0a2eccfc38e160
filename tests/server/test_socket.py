"""A detached socket: writing, its handler's failures, and what it costs while idle."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from websockets.asyncio.client import connect
from websockets.protocol import Protocol as Parser

from tests.server.serving import SMALL, App, Handler, Served, raw_socket, serving, text_frame
from tests.support.rawsocket import CLOSE, TEXT, RawSocket, encode_frame
from tests.support.waiting import until
from tidings_gateway.server.handshake import Handshake
from tidings_gateway.server.http import Cycle, HttpProtocol
from tidings_gateway.server.socket import Socket
from tidings_gateway.server.wire import Inbound


async def test_slow_reader(served: Served) -> None:
    """A peer that does not read pauses its own socket and nobody else's. `buffered` and `bytes_written` say what the
    kernel has taken; `writable` comes when it reads on, and everything arrives."""
    raw, slow = await raw_socket(served, receive_buffer=SMALL)
    frame = text_frame(b"x" * 1000)
    written = 0
    async with connect(served.ws()) as neighbour, raw:
        while not slow.socket.paused:
            slow.socket.write(frame)
            written += 1
            await asyncio.sleep(0)
        slow.socket.writelines([frame, frame])
        written += 2
        assert "writable" not in slow.calls
        assert slow.socket.bytes_written == written * len(frame)
        taken = slow.socket.bytes_written - slow.socket.buffered()
        assert 0 < taken < slow.socket.bytes_written
        assert 16_384 < slow.socket.buffered() < 16_384 + 4 * len(frame)
        started = time.monotonic()
        await neighbour.send("quick")
        assert await neighbour.recv() == "quick"
        assert time.monotonic() - started < 1
        for _ in range(written):
            assert len((await raw.recv_frame()).payload) == 1000
        await until(lambda: slow.socket.buffered() == 0)
        assert slow.calls.count("writable") == 1
        assert not slow.socket.paused


async def test_writable_may_write_until_paused_again(served: Served) -> None:
    """A handler that fills the transport in every `writable` is called again and again, and never over-fills it."""
    raw, handler = await raw_socket(served, receive_buffer=SMALL)
    frame = text_frame(b"x" * 1000)
    left = 300

    def fill(socket: Socket) -> None:
        nonlocal left
        while left and not socket.paused:
            socket.write(frame)
            left -= 1

    handler.on_writable = fill
    async with raw:
        fill(handler.socket)
        assert left > 0
        for _ in range(300):
            assert len((await raw.recv_frame()).payload) == 1000
            assert handler.socket.buffered() <= 16_384 + 2 * len(frame)
    assert handler.calls.count("writable") > 3


@pytest.mark.parametrize("where", ["on_opened", "on_text", "on_writable", "on_drain", "on_closed"])
async def test_failing_handler(served: Served, caplog: pytest.LogCaptureFixture, where: str) -> None:
    """An exception in any callback closes that socket with 1011 and is logged once; `closed` still comes once."""

    def fail(*_: object) -> None:
        raise ValueError(where)

    served.app.new_handler = lambda: Handler(**{where: fail})  # type: ignore[arg-type]
    async with await RawSocket.connect(served.ws(), receive_buffer=SMALL) as raw:
        await until(lambda: served.app.handlers)
        handler = served.app.handler
        if where == "on_text":
            await raw.send_bytes(encode_frame(TEXT, b"a") * 3)
        elif where == "on_writable":
            while not handler.socket.paused:
                handler.socket.write(text_frame(b"x" * 1000))
                await asyncio.sleep(0)
        elif where == "on_drain":
            handler.socket.drain(1)
        elif where == "on_closed":
            handler.socket.close(1011, "server fault")
        assert await raw.recv_close() == (1011, "server fault")
        await raw.send_frame(CLOSE, (1011).to_bytes(2, "big"))
        assert await raw.recv_end() is False
    await until(lambda: handler.closes)
    assert handler.closes == [1011]
    assert handler.texts == (["a"] if where == "on_text" else [])
    errors = [record for record in caplog.records if record.exc_info]
    assert len(errors) == 1
    assert where in str(errors[0].exc_info)


async def test_peer_address(served: Served) -> None:
    """`peer` is the address the connection comes from."""
    raw, handler = await raw_socket(served)
    async with raw:
        assert handler.socket.peer == raw.sock.getsockname()


async def test_an_idle_socket_keeps_no_parser(served: Served) -> None:
    """What is needed to read a frame is let go when the frame is read: 1.5 KB each, for thousands of idle sockets."""
    gc.collect()
    before = sum(isinstance(thing, Parser) for thing in gc.get_objects())
    raws = [await raw_socket(served) for _ in range(20)]
    for raw, _ in raws:
        await raw.send_text("hello")
        await raw.recv_frame()
    assert sum(isinstance(thing, Parser) for thing in gc.get_objects()) == before
    for raw, _ in raws:
        raw.close()


async def test_closed_sockets_need_no_cycle_collector(served: Served) -> None:
    """Whatever served a connection is freed with its last reference: no cycle keeps it until a full collection, which
    stops the process for as long as it takes (django/channels_redis #212)."""
    kinds = (Socket, Inbound, Parser, Handshake, HttpProtocol, Cycle)
    gc.collect()
    # What an earlier test of this process still holds (a failure keeps its frames) is not ours to judge.
    before = [thing for thing in gc.get_objects() if isinstance(thing, kinds)]
    known = set(map(id, before))
    gc.disable()
    try:
        for ending in ("close", "reset"):
            raw, handler = await raw_socket(served)
            await raw.send_text("hello")
            await raw.recv_frame()
            getattr(raw, ending)()
            await until(lambda: served.app.handler.closes)
            del handler.socket, handler
            served.app.handlers.clear()
        async with await RawSocket.tcp(served.url) as plain:
            await plain.send_bytes(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            await plain.recv_end()
        served.app.scopes.clear()
        await until(lambda: all(id(t) in known for t in gc.get_objects() if isinstance(t, kinds)))
    finally:
        gc.enable()


async def test_no_timer_per_idle_socket() -> None:
    """Many sockets, no timer handles: only a closing socket owns one."""
    async with serving(App()) as served:
        clients = [await connect(served.ws()) for _ in range(10)]
        await until(lambda: len(served.app.handlers) == 10)
        assert all(handler.socket._timer is None for handler in served.app.handlers)
        for client in clients:
            await client.close()
