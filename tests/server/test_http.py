"""HTTP on one connection: deadlines, bounds, upgrades, pipelining. By hand, since no client library errs like this."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest

from tests.server.serving import Served, answer, get, serving, until_read
from tests.support.rawsocket import Ended, RawSocket, encode_frame, upgrade_request
from tests.support.waiting import until
from tidings_gateway.server.draining import Phase


@pytest.fixture
async def served(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Served]:
    caplog.set_level(logging.INFO)
    async with serving(header_timeout_ms=300, body_timeout_ms=400, keep_alive_ms=500) as served:
        yield served


@pytest.fixture
async def raw(served: Served) -> AsyncIterator[RawSocket]:
    async with await RawSocket.tcp(served.url) as raw:
        yield raw


# Bounds


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(get(headers="X: " + "y" * 20_000 + "\r\n"), 431, id="one long header"),
        pytest.param(get(headers="X: y\r\n" * 200), 431, id="many headers"),
        pytest.param(get(headers=f"X: {'y' * 1000}\r\n" * 20), 431, id="sum of headers"),
        pytest.param(get("/" + "x" * 9000), 414, id="long URL"),
        pytest.param(b"GET /" + b"x" * 20_000, 414, id="endless URL"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"y" * 30_000, 431, id="endless header"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"y" * 30_000, 431, id="endless header name"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, id="TLS"),
        pytest.param(b"HELO example.com\r\n\r\n", 400, id="mail"),
        pytest.param(
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, id="CL+TE"
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, id="two CL"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", 501, id="unknown TE"),
        pytest.param(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, id="space before colon"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400, id="folded header"),
        pytest.param(b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="raw path"),
        pytest.param(b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400, id="CONNECT"),
    ],
)
async def test_refused_requests(raw: RawSocket, served: Served, request_bytes: bytes, status: int) -> None:
    """What is too large or ambiguous is refused with an answer that arrives, in good order, although more is being
    sent; the application never sees it."""
    sending = asyncio.create_task(raw.send_bytes(request_bytes + b"z" * 100_000))
    assert await raw.response() == status
    assert raw.headers["connection"] == "close"
    assert json.loads(await raw.body())["status"] == status
    assert await raw.recv_end() is False, "reset"
    await sending
    assert served.app.scopes == []


async def test_headers_in_small_pieces_are_counted(raw: RawSocket) -> None:
    """The size bound holds however the headers are cut, also while a single one of them never ends."""
    await raw.send_bytes(b"GET / HTTP/1.1\r\nX: ")
    sent = 0
    while sent < 1_000_000:
        try:
            await raw.send_bytes(b"y" * 1000)
        except OSError:
            break
        sent += 1000
        await asyncio.sleep(0)
        if raw.sock in (await _readable(raw)):
            break
    assert await raw.response() == 431
    assert sent < 20_000


async def _readable(raw: RawSocket) -> list[object]:
    import select

    return list(select.select([raw.sock], [], [], 0)[0])


async def test_large_bodies_do_not_count_as_headers(raw: RawSocket, served: Served) -> None:
    """A body far beyond the header bound, with the next request's first half in the same packets, is fine."""
    body = b"x" * 100_000
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    await raw.send_bytes(post + post + get()[:10])
    assert (await answer(raw))["body"] == 100_000
    assert (await answer(raw))["body"] == 100_000
    await raw.send_bytes(get()[10:])
    assert (await answer(raw))["body"] == 0


async def test_pipelining(raw: RawSocket) -> None:
    """A few requests at once are answered in their order."""
    await raw.send_bytes(b"".join(get(f"/{number}") for number in range(8)))
    assert [(await answer(raw))["path"] for _ in range(8)] == [f"/{number}" for number in range(8)]


async def test_pipelining_is_bounded() -> None:
    """Ten thousand requests in one go behind an unfinished one are not ten thousand requests in memory."""
    async with serving() as served, await RawSocket.tcp(served.url) as raw:
        await raw.send_bytes(get("/wait"))
        await until(lambda: served.app.scopes)
        await raw.send_bytes(get() * 10_000)
        await raw.recv_end()
        served.app.release.set()
        await until(lambda: not served.server.state.tasks)
        assert len(served.app.scopes) == 1


async def test_garbage_behind_an_unfinished_request(raw: RawSocket, served: Served) -> None:
    """Nothing is written into an answer under way: the connection just ends."""
    await raw.send_bytes(get("/endless"))
    assert await raw.response() == 200
    await raw.send_bytes(b"garbage\r\n\r\n")
    with pytest.raises(Ended):
        await raw.body()


# Upgrades


@pytest.mark.parametrize(
    ("change", "status"),
    [
        pytest.param({"Content-Length": "5"}, 400, id="a body"),
        pytest.param({"Transfer-Encoding": "chunked"}, 400, id="a chunked body"),
        pytest.param({"Sec-WebSocket-Version": "8"}, 426, id="version"),
        pytest.param({"Sec-WebSocket-Key": "short"}, 400, id="key"),
    ],
)
async def test_refused_upgrades(served: Served, change: dict[str, str], status: int) -> None:
    """A wrong handshake is told what is wrong at once; the application never sees it."""
    async with await RawSocket.connect(served.ws(), headers=change, expect=status) as raw:
        if status == 426:
            assert raw.headers["sec-websocket-version"] == "13"
        assert await raw.recv_end() is False
    assert served.app.scopes == []


async def test_upgrade_with_a_body_that_is_there(raw: RawSocket, served: Served) -> None:
    """The body's bytes are neither frames nor a second request."""
    request = upgrade_request(served.ws(), {"Content-Length": "29"})
    await raw.send_bytes(request + b"GET /smuggled HTTP/1.1\r\n\r\n...")
    assert await raw.response() == 400
    assert await raw.recv_end() is False
    assert served.app.scopes == []


async def test_upgrade_behind_an_unfinished_request(raw: RawSocket, served: Served) -> None:
    """An upgrade before the answer to an earlier request ends the connection; no answer is broken by a 101."""
    await raw.send_bytes(get("/wait") + upgrade_request(served.ws()))
    await until(lambda: served.app.scopes)
    served.app.release.set()
    with pytest.raises(Ended):
        await raw.response()
    assert [scope["type"] for scope in served.app.scopes] == ["http"]


async def test_upgrade_behind_a_finished_request(raw: RawSocket, served: Served) -> None:
    """A connection may be used for a request first, and then become a WebSocket."""
    await raw.send_bytes(get())
    await answer(raw)
    await raw.send_bytes(upgrade_request(served.ws()))
    assert await raw.response() == 101
    await raw.send_text("hi")
    assert (await raw.recv_frame()).payload == b"hi"
    await asyncio.sleep(0.8)  # time: longer than every deadline of HTTP
    await raw.send_text("still there")
    assert (await raw.recv_frame()).payload == b"still there"


async def test_unknown_upgrades_are_ignored(raw: RawSocket) -> None:
    """A client that offers another protocol gets a plain answer (RFC 9110 7.8), and the connection ends."""
    await raw.send_bytes(get("/x", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"))
    assert (await answer(raw))["path"] == "/x"
    assert raw.headers["connection"] == "close"
    assert await raw.recv_end() is False


async def test_what_follows_an_ignored_upgrade_is_ignored(raw: RawSocket, served: Served) -> None:
    """Whatever the client sends in the belief that its protocol was taken does not disturb the plain answer."""
    await raw.send_bytes(get("/wait", "Connection: Upgrade\r\nUpgrade: h2c\r\n"))
    await until(lambda: served.app.scopes)
    await raw.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    await until_read(served)
    served.app.release.set()
    assert (await answer(raw))["path"] == "/wait"
    assert await raw.recv_end() is False


async def test_frames_are_not_requests(raw: RawSocket, served: Served) -> None:
    """A frame without an upgrade is no HTTP."""
    await raw.send_bytes(encode_frame(1, b"hello"))
    assert await raw.response() == 400


# Answers


@pytest.mark.parametrize(("path", "status"), [("/raise", 500), ("/return", 500)])
async def test_failing_application(raw: RawSocket, caplog: pytest.LogCaptureFixture, path: str, status: int) -> None:
    """A failure is a 500 without details, logged once, and the end of the connection."""
    await raw.send_bytes(get(path))
    assert await raw.response() == status
    assert b"ValueError" not in await raw.body()
    assert await raw.recv_end() is False
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_failure_in_an_answer(raw: RawSocket, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that cannot be completed is cut off, so that nobody takes it for whole."""
    await raw.send_bytes(get("/raise-after"))
    assert await raw.response() == 200
    with pytest.raises(Ended):
        await raw.body()
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


async def test_no_access_log(raw: RawSocket, caplog: pytest.LogCaptureFixture) -> None:
    """URLs hold tickets: none is logged, whatever happens to its request."""
    await raw.send_bytes(get("/?ticket=sesame") + get("/raise?ticket=sesame"))
    await answer(raw)
    assert await raw.response() == 500
    assert "sesame" not in caplog.text


async def test_no_server_header(raw: RawSocket) -> None:
    """Nobody is told what runs here."""
    await raw.send_bytes(get())
    await answer(raw)
    assert "server" not in raw.headers
    assert "date" in raw.headers


# The base path


@pytest.mark.parametrize("base", ["/tidings", "/tidings/"])
@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/v1/ws", "/tidings/v1/ws"),  # a proxy that takes the prefix away; or a probe that goes past it
        ("/tidings/v1/ws", "/tidings/v1/ws"),  # a proxy that leaves it
        ("/tidingsx", "/tidings/tidingsx"),
        ("/tidings", "/tidings"),
        ("/a%20b", "/tidings/a b"),
    ],
)
async def test_base_path(base: str, path: str, seen: str) -> None:
    """The application sees one and the same path whether or not the proxy in front takes the prefix away."""
    async with serving(base_path=base) as served, await RawSocket.tcp(served.url) as raw:
        await raw.send_bytes(get(path))
        body = await answer(raw)
        assert (body["path"], body["root_path"]) == (seen, "/tidings")


async def test_whose_forwarded_address_is_believed() -> None:
    """X-Forwarded-For counts from a trusted proxy only."""
    headers = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n"
    for trusted, client in (("127.0.0.1", "203.0.113.9"), ("10.0.0.0/8", "127.0.0.1"), ("", "127.0.0.1")):
        async with serving(trusted_proxies=trusted) as served, await RawSocket.tcp(served.url) as raw:
            await raw.send_bytes(get(headers=headers))
            assert (await answer(raw))["client"][0] == client  # type: ignore[index]


# Draining


async def test_window_ends_keep_alive(served: Served) -> None:
    """In the window requests are still answered, the one under way and new ones, each the last of its connection."""
    async with await RawSocket.tcp(served.url) as waiting, await RawSocket.tcp(served.url) as idle:
        await idle.send_bytes(get())
        await answer(idle)
        await waiting.send_bytes(get("/wait"))
        await until(lambda: len(served.app.scopes) == 2)
        served.server.draining.enter(Phase.WINDOW)
        served.server.state.start_refusing()
        served.app.release.set()
        await idle.send_bytes(get())
        for raw in (waiting, idle):
            await answer(raw)
            assert raw.headers["connection"] == "close"
            assert await raw.recv_end() is False
