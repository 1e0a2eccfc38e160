"""The handmade WebSocket connection against a real server library."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.support.rawsocket import PING, PONG, TEXT, RawSocket


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """A server that sends back what it gets; "flood" makes it send without end."""

    async def handle(connection: ServerConnection) -> None:
        try:
            async for message in connection:
                await connection.send(message)
                while message == "flood":
                    await connection.send("x" * 65536)
        except ConnectionClosed:
            pass

    async with serve(handle, "127.0.0.1", 0, ping_interval=None, compression=None) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/"


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
async def test_frames_of_every_length(url: str, size: int) -> None:
    """All three encodings of a length, in both directions."""
    async with await RawSocket.connect(url) as raw:
        await raw.send_text("é"[: size and 1] + "x" * max(0, size - 2))
        frame = await raw.recv_frame()
    assert frame.opcode == TEXT
    assert len(frame.payload) == size


async def test_control_frames_are_seen(url: str) -> None:
    """A ping is answered by a pong, an unmasked frame by a close with 1002."""
    async with await RawSocket.connect(url) as raw:
        await raw.send_frame(PING, b"hi")
        frame = await raw.recv_frame()
        assert (frame.opcode, frame.payload) == (PONG, b"hi")
        await raw.nothing(0.05)
        await raw.send_frame(TEXT, b"{}", masked=False)
        assert (await raw.recv_close())[0] == 1002
        assert await raw.recv_end() is False


async def test_a_peer_that_stops_reading_stops_the_server(url: str) -> None:
    """Without a `recv…` call nothing is read: the server's send ends up waiting. Reading again finds what it sent."""
    async with await RawSocket.connect(url, receive_buffer=4096) as raw:
        await raw.send_text("flood")
        assert (await raw.recv_frame()).payload == b"flood"
        assert len((await raw.recv_frame()).payload) == 65536
        raw.reset()
