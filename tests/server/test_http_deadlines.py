"""The deadlines of an HTTP connection, and what does not put them off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest

from tests.server.serving import Served, answer, get, serving
from tests.support.rawsocket import Ended, RawSocket, upgrade_request
from tests.support.waiting import until


@pytest.fixture
async def served(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    caplog.set_level(logging.INFO)
    async with serving(header_timeout_ms=300, body_timeout_ms=400, keep_alive_ms=500, slow_timeout_ms=600) as served:
        yield served


@pytest.fixture
async def raw(served: Served) -> AsyncIterator[RawSocket]:
    async with await RawSocket.tcp(served.url) as raw:
        yield raw


async def ends(raw: RawSocket, within: tuple[float, float], since: float) -> None:
    """The connection ends, in good order, so many seconds after `since`."""
    assert await raw.recv_end() is False
    assert within[0] <= time.monotonic() - since <= within[1]


async def test_a_silent_connection_is_closed(raw: RawSocket) -> None:
    """Who connects and says nothing is closed, without an answer, at the header deadline."""
    started = time.monotonic()
    with pytest.raises(Ended):
        await raw.response()
    assert 0.25 <= time.monotonic() - started <= 2


async def test_slow_headers(raw: RawSocket) -> None:
    """One byte now and then does not prolong the header deadline: 408."""
    started = time.monotonic()
    try:
        for byte in get() * 5:
            await raw.send_bytes(bytes([byte]))
            await asyncio.sleep(0.05)  # time: the slow client itself
    except OSError:
        pass
    assert time.monotonic() - started < 2
    assert await raw.response() == 408


async def test_slow_upgrade(raw: RawSocket, served: Served) -> None:
    """Half an upgrade is closed at the same deadline, and never reaches the application."""
    started = time.monotonic()
    await raw.send_bytes(upgrade_request(served.ws())[:-10])
    assert await raw.response() == 408
    await ends(raw, (0.25, 2), started)
    assert served.app.scopes == []


async def test_slow_second_request(raw: RawSocket) -> None:
    """The header deadline counts again for the second request of a connection, from its first byte on, and line ends
    before it do not put it off."""
    await raw.send_bytes(get())
    await answer(raw)
    started = time.monotonic()
    try:
        while time.monotonic() - started < 3:
            await raw.send_bytes(b"\r\n")
            await asyncio.sleep(0.05)  # time: the slow client itself
    except OSError:
        pass
    assert time.monotonic() - started < 2


async def test_half_of_a_second_request(raw: RawSocket) -> None:
    """Who begins a second request and does not end it is told so, like with the first."""
    await raw.send_bytes(get())
    await answer(raw)
    await raw.send_bytes(get()[:10])
    assert await raw.response() == 408


async def test_half_of_a_pipelined_request(raw: RawSocket, served: Served) -> None:
    """A request that was begun while the answer before it is still awaited has its time after that answer."""
    await raw.send_bytes(get("/wait") + get("/next") + get("/last")[:10])
    await until(lambda: served.app.scopes)
    await asyncio.sleep(0.8)  # time: longer than every deadline of this server
    served.app.release.set()
    assert (await answer(raw))["path"] == "/wait"
    assert (await answer(raw))["path"] == "/next"
    await raw.send_bytes(get("/last")[10:])
    assert (await answer(raw))["path"] == "/last"


async def test_an_answer_before_the_end_of_the_body(raw: RawSocket) -> None:
    """The rest of a body that was answered already is read and forgotten, and the idle time counts from its end."""
    await raw.send_bytes(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
    assert await raw.response() == 413
    await raw.send_bytes(b"second")
    await raw.send_bytes(get())
    assert (await answer(raw))["body"] == 0
    await raw.send_bytes(b"POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
    assert await raw.response() == 413
    await raw.send_bytes(b"second")
    await ends(raw, (0.4, 2), time.monotonic())


async def test_slow_body(raw: RawSocket, served: Served) -> None:
    """A body that does not arrive ends the connection at the body deadline, and the application hears of it."""
    started = time.monotonic()
    await raw.send_bytes(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf")
    await until(lambda: served.app.scopes)
    await raw.send_bytes(b"more")
    await ends(raw, (0.3, 2), started)
    await until(lambda: served.app.bodies == [b"halfmore"])


async def test_idle_keep_alive(raw: RawSocket) -> None:
    """A connection is kept for the next request, and closed when none comes."""
    for _ in range(3):
        await raw.send_bytes(get())
        await answer(raw)
    await ends(raw, (0.4, 2), time.monotonic())


async def test_a_long_answer_has_no_deadline(raw: RawSocket, served: Served) -> None:
    """The client that waits for a long poll is not idle."""
    await raw.send_bytes(get("/wait"))
    await until(lambda: served.app.scopes)
    await asyncio.sleep(0.8)  # time: longer than every deadline of this server
    served.app.release.set()
    await answer(raw)


async def test_many_slow_clients_do_not_stop_a_healthy_one(served: Served) -> None:
    """300 silent, half and trickling connections: a healthy client is answered at once, and all of them end."""
    slow = [await RawSocket.tcp(served.url) for _ in range(300)]
    for number, raw in enumerate(slow):
        if number % 3:
            await raw.send_bytes(get()[: number % 20 + 1])
    started = time.monotonic()
    async with await RawSocket.tcp(served.url) as healthy:
        await healthy.send_bytes(get())
        await answer(healthy)
        assert time.monotonic() - started < 1
    await until(lambda: not served.server.state.connections, what="all connections are gone")
    assert len(served.server.state.header_deadlines) == 0
    for raw in slow:
        raw.close()


@pytest.mark.parametrize("request_", [get("/large"), get("/large", "Connection: close\r\n"), 3 * get("/large")])
async def test_an_answer_that_nobody_takes(served: Served, request_: bytes) -> None:
    """Who asks and does not read is cut: a connection costs a place and a buffer, and nobody may keep them for ever.
    Whether the answer was handed over whole, the last one on its connection, or one of many."""
    async with await RawSocket.tcp(served.url, receive_buffer=4096) as deaf:
        sending = asyncio.create_task(deaf.send_bytes(request_))
        await until(lambda: served.app.scopes)
        await until(lambda: not served.server.state.connections, 10, "the connection is gone")
        sending.cancel()


async def test_an_answer_that_is_taken_slowly() -> None:
    """Whoever takes some of it, a little at a time, gets it all, far beyond the deadline."""
    loop = asyncio.get_running_loop()
    async with (
        serving(slow_timeout_ms=1_000) as served,
        await RawSocket.tcp(served.url, receive_buffer=32_768) as slow,
    ):
        await slow.send_bytes(get("/large"))
        began, taken = time.monotonic(), 0
        while taken < 8_000_000:
            async with asyncio.timeout(5):
                got = await loop.sock_recv(slow.sock, 65_536)
            assert got, "it was cut"
            taken += len(got)
            await asyncio.sleep(0.02)  # time: the slow client itself
        assert time.monotonic() - began > 1.5
