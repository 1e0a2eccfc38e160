"""What a detached socket reads: good and bad frames, floods, and bytes that come early."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.client import connect

from tests.server.serving import SMALL, Served, complaints, raw_socket, serving, until_read
from tests.support.rawsocket import BINARY, CLOSE, PING, PONG, TEXT, RawSocket, encode_frame, upgrade_request
from tests.support.waiting import until

CONT = 0


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


@pytest.mark.parametrize(("count", "payload"), [(60, b""), (20, b"x" * 8000)])
async def test_inbound_rate(served: Served, count: int, payload: bytes) -> None:
    """More frames, or more bytes, than allowed in a second: 1008."""
    raw, handler = await raw_socket(served)
    async with raw:
        handler.on_text = lambda socket, text: None
        await raw.send_bytes(encode_frame(TEXT, payload) * count)
        assert (await raw.recv_close())[0] == 1008
    assert len(handler.texts) < count


async def test_inbound_rate_allows_its_limit(served: Served) -> None:
    """Exactly the allowed number of frames in a second is fine."""
    raw, handler = await raw_socket(served)
    async with raw:
        await raw.send_bytes(encode_frame(TEXT, b"x") * 50)
        for _ in range(50):
            assert (await raw.recv_frame()).payload == b"x"
        assert not handler.socket.closing


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


async def test_bytes_that_come_during_the_handshake(served: Served) -> None:
    """Frames that arrive while the application is still deciding wait for the handler."""
    async with await RawSocket.tcp(served.url) as raw:
        await raw.send_bytes(upgrade_request(served.ws("/wait")))
        await until(lambda: served.app.scopes)
        await raw.send_text("early")
        await until_read(served)
        served.app.release.set()
        assert await raw.response() == 101
        assert (await raw.recv_frame()).payload == b"early"


async def test_every_byte_is_a_sign_of_life(served: Served) -> None:
    """`last_received` moves with any byte, also with half a frame."""
    raw, handler = await raw_socket(served)
    async with raw:
        before = handler.socket.last_received
        clock = asyncio.get_running_loop().time
        await until(lambda: clock() > before, what="the loop's clock, which ticks in milliseconds, went on")
        await raw.send_bytes(encode_frame(TEXT, b"x")[:1])
        await until(lambda: handler.socket.last_received > before)
        assert handler.texts == []
