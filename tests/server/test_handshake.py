"""The application's half of a WebSocket handshake, and what happens when it does not do it."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.server.serving import serving
from tests.support.rawsocket import RawSocket, upgrade_request
from tests.support.waiting import until
from tidings_gateway.server.draining import Phase


async def test_accepted() -> None:
    """The subprotocol the application chose, and its headers, are in the answer; the scope is the parsed request."""
    async with serving() as served:
        url = served.ws("/v1/ws") + "?ticket=a%20b"
        headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "Origin": "https://app.example.com"}
        async with connect(url, subprotocols=["other", "tidings.v1"], additional_headers=headers) as client:  # type: ignore[list-item]
            assert client.subprotocol == "tidings.v1"
            assert client.response is not None
            assert client.response.headers["x-app"] == "yes"
            assert "sec-websocket-extensions" not in client.response.headers
        (scope,) = served.app.scopes
        assert scope["type"] == "websocket"
        assert scope["path"] == "/v1/ws"
        assert scope["query_string"] == b"ticket=a%20b"
        assert scope["subprotocols"] == ["other", "tidings.v1"]
        assert scope["scheme"] == "wss"
        assert scope["client"][0] == "203.0.113.9"
        assert (b"origin", b"https://app.example.com") in scope["headers"]
        assert "method" not in scope


async def test_no_subprotocol_is_required() -> None:
    """A client that offers none is accepted with none."""
    async with serving() as served, connect(served.ws()) as client:
        assert client.subprotocol is None


@pytest.mark.parametrize(
    ("path", "status"), [("/refuse", 403), ("/deny", 403), ("/raise", 500), ("/return", 500), ("/early-attach", 500)]
)
async def test_refused(caplog: pytest.LogCaptureFixture, path: str, status: int) -> None:
    """An application that refuses, fails or forgets to answer gives a whole HTTP answer, and the connection ends.
    Only a failure is logged."""
    async with serving() as served:
        async with await RawSocket.connect(served.ws(path), expect=status) as raw:
            assert raw.headers["connection"] == "close"
            assert raw.headers["content-type"] == "application/problem+json"
            assert "date" in raw.headers
            body = json.loads(await raw.body())
            assert body == {"a": 1} if path == "/deny" else body["status"] == status
            assert await raw.recv_end() is False
        assert not served.server.state.handshakes
        failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(failed) == (status == 500)


@pytest.mark.parametrize(
    ("path", "close"),
    [
        ("/raise-after", (1011, "server fault")),
        ("/return-after", (1011, "server fault")),
        ("/close-after", (4401, "no token")),
    ],
)
async def test_closed_after_accept(path: str, close: tuple[int, str]) -> None:
    """An application that has accepted and does not attach: its close code, else 1011."""
    async with serving() as served:
        async with connect(served.ws(path)) as client:
            await client.wait_closed()
            assert (client.close_code, client.close_reason) == close
        await until(lambda: not served.server.state.open)


async def test_denied_as_the_client_library_sees_it() -> None:
    """A refusal is a plain HTTP answer to an independent client, body and all."""
    async with serving() as served:
        with pytest.raises(InvalidStatus) as refused:
            await connect(served.ws("/deny"))
        assert refused.value.response.status_code == 403
        assert refused.value.response.body == b'{"a":1}'


async def test_an_application_that_does_not_decide() -> None:
    """After the handshake timeout the client gets 503 and the application is cancelled."""
    async with serving(handshake_timeout_ms=100) as served:
        async with await RawSocket.connect(served.ws("/wait"), expect=503) as raw:
            assert await raw.recv_end() is False
        await until(lambda: served.app.errors)
        assert isinstance(served.app.errors[0], asyncio.CancelledError)
        assert not served.server.state.tasks


async def test_an_application_that_does_not_attach() -> None:
    """The same deadline ends a connection that was accepted and then forgotten, with 1011."""
    async with serving(handshake_timeout_ms=100) as served:
        async with connect(served.ws("/wait-after")) as client:
            await client.wait_closed()
            assert client.close_code == 1011
        await until(lambda: not served.server.state.tasks and not served.server.state.open)


@pytest.mark.parametrize("path", ["/wait", "/wait-after"])
async def test_drain_with_handshakes_under_way(caplog: pytest.LogCaptureFixture, path: str) -> None:
    """When the window opens, who is not accepted yet gets 503 with Retry-After, and the application, which goes on,
    finds it gone; who is accepted gets the goodbye. No complaint is logged."""
    async with serving(retry_ms=3000) as served:
        async with await RawSocket.tcp(served.url) as raw:
            await raw.send_bytes(upgrade_request(served.ws(path)))
            await until(lambda: served.app.scopes)
            if path == "/wait-after":
                await raw.response()
            served.server.draining.enter(Phase.WINDOW)
            served.server.state.start_refusing()
            if path == "/wait":
                assert await raw.response() == 503
                assert raw.headers["retry-after"] == "3"
            served.app.release.set()
            if path == "/wait-after":
                assert (await raw.recv_frame()).payload == b"goodbye"
                assert (await raw.recv_frame()).close == (1012, "draining")
            else:
                assert await raw.recv_end() is False
        await until(lambda: not served.server.state.tasks)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_client_that_leaves_meanwhile() -> None:
    """A client that leaves during the handshake costs nothing but the handshake."""
    async with serving() as served:
        raw = await RawSocket.tcp(served.url)
        await raw.send_bytes(upgrade_request(served.ws("/wait")))
        await until(lambda: served.app.scopes)
        raw.reset()
        served.app.release.set()
        await until(lambda: not served.server.state.handshakes and not served.server.state.open)
        assert all(handler.closes == [1006] for handler in served.app.handlers)
