"""Every way a detached socket ends, begun by either side or by neither."""

from __future__ import annotations

import asyncio
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.server.serving import SMALL, Served, complaints, raw_socket, text_frame
from tests.support.rawsocket import CLOSE, PING, TEXT, encode_frame
from tests.support.waiting import until


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
