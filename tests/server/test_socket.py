"""A detached socket against an independent client library, and against peers no library would be."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import Protocol as Parser

from tests.server.serving import App, Handler, Served, serving, text_frame
from tests.support.rawsocket import BINARY, CLOSE, PING, PONG, TEXT, RawSocket, encode_frame, upgrade_request
from tests.support.waiting import until
from tidings_gateway.server.handshake import Handshake
from tidings_gateway.server.http import Cycle, HttpProtocol
from tidings_gateway.server.socket import Socket
from tidings_gateway.server.wire import Inbound

CONT = 0
SMALL = 4096  # socket buffers so small that a peer that does not read is noticed soon


@pytest.fixture
async def served(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    caplog.set_level(logging.INFO)
    async with serving(close_timeout_ms=300, send_buffer_bytes=SMALL, write_high_water_bytes=16_384) as served:
        yield served


async def raw_socket(served: Served, receive_buffer: int | None = None) -> tuple[RawSocket, Handler]:
    raw = await RawSocket.connect(served.ws(), receive_buffer=receive_buffer)
    await until(lambda: len(served.app.handlers), what="the handler is attached")
    return raw, served.app.handler


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info]


async def test_echo_with_an_independent_client(served: Served) -> None:
    """Texts of any length and alphabet come through whole, in order, in both directions."""
    texts = ["", "a", "grüße €", "x" * 126, "y" * 8192, "\U0001f600" * 2000]
    async with connect(served.ws(), compression="deflate") as client:
        assert client.protocol.extensions == []  # offered, and not taken: compression costs memory and invites bombs
        for text in texts:
            await client.send(text)
        assert [await client.recv() for _ in texts] == texts
        assert served.app.handler.texts == texts
    await until(lambda: served.app.handler.closes)
    assert served.app.handler.closes == [1000]


async def test_a_character_may_be_split_over_fragments(served: Served) -> None:
    """UTF-8 is judged for the message, not for its fragments."""
    raw, handler = await raw_socket(served)
    async with raw:
        euro = "€".encode()
        await raw.send_frame(TEXT, euro[:1], fin=False)
        await raw.send_frame(PING, b"between")
        await raw.send_frame(CONT, euro[1:2], fin=False)
        await raw.send_frame(CONT, euro[2:])
        assert (await raw.recv_frame()).opcode == PONG
        assert (await raw.recv_frame()).payload == euro
        assert handler.texts == ["€"]


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        pytest.param([encode_frame(TEXT, b"\xff")], 1007, id="text FF"),
        pytest.param([encode_frame(TEXT, "€".encode()[:2])], 1007, id="truncated character"),
        pytest.param([encode_frame(3, b"a")], 1002, id="opcode 3"),
        pytest.param([encode_frame(TEXT, b"a", masked=False)], 1002, id="unmasked"),
        pytest.param([encode_frame(TEXT, b"a", rsv=4)], 1002, id="RSV1"),
        pytest.param([encode_frame(PING, b"x" * 126)], 1002, id="126 byte ping"),
        pytest.param([encode_frame(CLOSE, (1005).to_bytes(2, "big"))], 1002, id="close 1005"),
        pytest.param([encode_frame(CLOSE, (999).to_bytes(2, "big"))], 1002, id="close 999"),
        pytest.param([encode_frame(CLOSE, (5000).to_bytes(2, "big"))], 1002, id="close 5000"),
        pytest.param([encode_frame(BINARY, b"a")], 1003, id="binary"),
        pytest.param([encode_frame(TEXT, b"x" * 8193)], 1009, id="oversize"),
        pytest.param(
            [encode_frame(TEXT, b"x" * 8000, fin=False), encode_frame(CONT, b"x" * 193)], 1009, id="sum of fragments"
        ),
        pytest.param([encode_frame(TEXT, b"", fin=False), *[encode_frame(CONT, b"", fin=False)] * 40], 1008, id="dust"),
        pytest.param([encode_frame(TEXT, b"x" * 1_000_000)], 1009, id="a megabyte"),
    ],
)
async def test_bad_frames(served: Served, caplog: pytest.LogCaptureFixture, frames: list[bytes], code: int) -> None:
    """An offence closes that socket with the right code, which reaches the peer, in spite of what it still sends;
    it logs no complaint, and the neighbour notices nothing."""
    async with connect(served.ws()) as neighbour:
        raw, handler = await raw_socket(served)
        async with raw:
            sending = asyncio.create_task(raw.send_bytes(b"".join([*frames, *frames])))
            assert (await raw.recv_close())[0] == code
            assert await raw.recv_end() is False, "reset"
            await sending
        await until(lambda: handler.closes)
        assert handler.closes == [code]
        assert handler.texts == []
        await neighbour.send("still there")
        assert await neighbour.recv() == "still there"
    assert complaints(caplog) == []


async def test_pings_are_answered(served: Served) -> None:
    """Every ping of a peer that reads gets its own payload back."""
    raw, _ = await raw_socket(served)
    async with raw:
        for number in range(5):
            await raw.send_frame(PING, b"%d" % number)
            frame = await raw.recv_frame()
            assert (frame.opcode, frame.payload) == (PONG, b"%d" % number)


async def test_ping_flood_of_a_peer_that_never_reads() -> None:
    """Pings that are not rate limited do not grow the buffer past the high water mark, however many come."""
    async with serving(
        send_buffer_bytes=SMALL,
        write_high_water_bytes=16_384,
        inbound_frames_per_s=10**9,
        inbound_bytes_per_s=10**9,
    ) as served:
        raw, handler = await raw_socket(served, receive_buffer=SMALL)
        async with raw:
            pings = encode_frame(PING, b"x" * 125) * 500
            largest = 0
            for _ in range(100):
                await raw.send_bytes(pings)
                largest = max(largest, handler.socket.buffered())
            assert handler.socket.paused
            assert largest <= 16_384 + 127
            # Reading again, it hears of its last ping, and not of the tens of thousands in between.
            await raw.send_frame(PING, b"last")
            payloads: list[bytes] = []
            while not payloads or payloads[-1] != b"last":
                payloads.append((await raw.recv_frame()).payload)
            assert len(payloads) < 1000


async def test_ping_flood_is_closed(served: Served) -> None:
    """With the usual limits a flood of pings ends in 1008, or a reset when the peer does not read, and is not
    answered meanwhile."""
    raw, handler = await raw_socket(served, receive_buffer=SMALL)
    async with raw:
        try:
            async with asyncio.timeout(5):
                while not handler.closes:
                    await raw.send_bytes(encode_frame(PING, b"x" * 125) * 100)
        except OSError:
            pass
        await until(lambda: handler.closes)
        assert handler.closes == [1008]
        assert handler.socket.bytes_written <= 50 * 127 + 200


@pytest.mark.parametrize("payload", [b"", b"x" * 8000])
async def test_inbound_rate(served: Served, payload: bytes) -> None:
    """More frames, or more bytes, than allowed in a second: 1008."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.on_text = lambda socket, text: None
        await raw.send_bytes(encode_frame(TEXT, payload) * 60)
        assert (await raw.recv_close())[0] == 1008
    assert len(handler.texts) <= 50


async def test_inbound_rate_allows_its_limit(served: Served) -> None:
    """Exactly the allowed number of frames in a second is fine."""
    raw, handler = await raw_socket(served)
    async with raw:
        await raw.send_bytes(encode_frame(TEXT, b"x") * 50)
        for _ in range(50):
            assert (await raw.recv_frame()).payload == b"x"
        assert not handler.socket.closing


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


async def test_close_goes_behind_what_was_written(served: Served) -> None:
    """The Close frame is the last thing a peer reads, after everything written before; nothing follows it."""
    raw, handler = await raw_socket(served, receive_buffer=SMALL)
    async with raw:
        for _ in range(100):
            handler.socket.write(text_frame(b"x" * 1000))
        handler.socket.close(1013, "too slow")
        handler.socket.write(text_frame(b"too late"))
        handler.socket.close(1000)
        for _ in range(100):
            assert (await raw.recv_frame()).payload == b"x" * 1000
        assert (await raw.recv_frame()).close == (1013, "too slow")
        await raw.send_frame(CLOSE, (1013).to_bytes(2, "big"))
        assert await raw.recv_end() is False
    await until(lambda: handler.closes)
    assert handler.closes == [1013]


@pytest.mark.parametrize("reads", [True, False])
async def test_a_peer_that_does_not_answer_the_close_is_cut_off(served: Served, reads: bool) -> None:
    """close_timeout_ms after our Close frame the connection is reset, whether or not the peer reads."""
    raw, handler = await raw_socket(served, receive_buffer=SMALL)
    async with raw:
        if not reads:
            while not handler.socket.paused:
                handler.socket.write(text_frame(b"x" * 1000))
                await asyncio.sleep(0)
        started = time.monotonic()
        handler.socket.close(1013)
        if reads:
            assert (await raw.recv_close())[0] == 1013
        await until(lambda: handler.closes)
        assert 0.25 < time.monotonic() - started < 2
        assert handler.closes == [1013]
        assert await raw.recv_end() is True


async def test_data_after_our_close_is_ignored(served: Served) -> None:
    """A peer that goes on sending after our Close frame is not listened to, and its own Close frame is still found
    behind what it had sent."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.socket.close(4400, "no")
        await raw.send_bytes(encode_frame(TEXT, b"x") * 20 + encode_frame(PING, b"?"))
        assert (await raw.recv_frame()).close == (4400, "no")
        await raw.send_frame(CLOSE, (4400).to_bytes(2, "big"))
        assert await raw.recv_end() is False
    assert handler.texts == []


async def test_a_flood_after_our_close_is_bounded(served: Served) -> None:
    """Whoever answers a refusal with an endless stream is not read for long, and is gone with the close timeout."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.socket.close(4400)
        sent = 0
        try:
            async with asyncio.timeout(5):
                while True:
                    await raw.send_bytes(encode_frame(TEXT, b"x" * 8000) * 16)
                    sent += 16 * 8000
        except OSError:
            pass
        await until(lambda: handler.closes)
        assert handler.closes == [4400]
    assert handler.texts == []
    assert sent < 64_000_000


@pytest.mark.parametrize(("payload", "code"), [(b"", 1005), (b"\x03\xe8bye", 1000), (b"\x11\x30", 4400)])
async def test_close_of_the_peer(served: Served, payload: bytes, code: int) -> None:
    """The peer's Close frame is answered with its own payload behind what was written, then the connection ends."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.socket.write(text_frame("before"))
        await raw.send_frame(CLOSE, payload)
        assert (await raw.recv_frame()).payload == b"before"
        frame = await raw.recv_frame()
        assert (frame.opcode, frame.payload) == (CLOSE, payload)
        assert await raw.recv_end() is False
    await until(lambda: handler.closes)
    assert handler.closes == [code]
    handler.socket.write(b"nobody hears")
    handler.socket.close(1000)
    handler.socket.abort()
    assert handler.socket.peer is None or isinstance(handler.socket.peer, tuple)
    assert handler.calls == ["opened", "closed"]


async def test_end_without_close(served: Served) -> None:
    """A peer that half closes without a Close frame gets what was written, and the socket is closed."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.socket.write(text_frame("last"))
        raw.sock.shutdown(1)
        assert (await raw.recv_frame()).payload == b"last"
        assert await raw.recv_end() is False
    await until(lambda: handler.closes)
    assert handler.closes == [1006]


async def test_half_closed_peer_that_does_not_read(served: Served) -> None:
    """What was written to a half closed peer is not kept for longer than the close timeout."""
    raw, handler = await raw_socket(served, receive_buffer=SMALL)
    async with raw:
        while not handler.socket.paused:
            handler.socket.write(text_frame(b"x" * 1000))
            await asyncio.sleep(0)
        raw.sock.shutdown(1)
        await until(lambda: handler.closes, 2)
        assert handler.closes == [1006]


@pytest.mark.parametrize("writing", [False, True])
async def test_reset(served: Served, caplog: pytest.LogCaptureFixture, writing: bool) -> None:
    """RST ends the socket with 1006, once, also while data waits for the peer. No complaint is logged."""
    raw, handler = await raw_socket(served, receive_buffer=SMALL)
    if writing:
        while not handler.socket.paused:
            handler.socket.write(text_frame(b"x" * 1000))
            await asyncio.sleep(0)
    raw.reset()
    await until(lambda: handler.closes)
    handler.socket.write(text_frame("nobody hears"))
    await asyncio.sleep(0)
    assert handler.closes == [1006]
    assert handler.socket.closing
    assert len(served.server.state.open) == 0
    assert complaints(caplog) == []


async def test_abort(served: Served) -> None:
    """abort() resets the connection; `closed` comes later, once, and not from within the call."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.socket.abort()
        assert handler.closes == []
        handler.socket.abort()
        handler.socket.close(1000)
        assert await raw.recv_end() is True
    await until(lambda: handler.closes)
    assert handler.closes == [1006]


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


async def test_bytes_that_come_with_the_upgrade(served: Served) -> None:
    """Frames in the same packet as the handshake are not lost; they come first, and only after `attach` returned."""
    order: list[str] = []
    served.app.after_attach = lambda handler: order.extend(["attached", *handler.texts])
    async with await RawSocket.tcp(served.url) as raw:
        first = encode_frame(TEXT, b"first")
        await raw.send_bytes(upgrade_request(served.ws()) + first + first[:3])
        await raw.send_bytes(first[3:])
        await raw.send_text("last")
        assert await raw.response() == 101
        assert [(await raw.recv_frame()).payload for _ in range(3)] == [b"first", b"first", b"last"]
    assert order == ["attached"]


async def test_every_byte_is_a_sign_of_life(served: Served) -> None:
    """`last_received` moves with any byte, also with half a frame."""
    raw, handler = await raw_socket(served)
    async with raw:
        before = handler.socket.last_received
        await asyncio.sleep(0.01)  # time: uvloop's clock ticks in milliseconds
        await raw.send_bytes(encode_frame(TEXT, b"x")[:1])
        await until(lambda: handler.socket.last_received > before)
        assert handler.texts == []


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
    gc.collect()
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
        kinds = (Socket, Inbound, Parser, Handshake, HttpProtocol, Cycle)
        await until(lambda: not [thing for thing in gc.get_objects() if isinstance(thing, kinds)])
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


async def test_client_library_sees_a_clean_close(served: Served) -> None:
    """To an independent client our close is a complete handshake with code and reason."""
    async with connect(served.ws()) as client:
        await until(lambda: served.app.handlers)
        served.app.handler.socket.close(1012, "draining")
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1012, "draining")
    assert closed.value.sent is not None
