"""The bounds on connections of a whole server."""

from __future__ import annotations

import pytest

from tests.server.serving import App, serving
from tests.support.rawsocket import RawSocket, upgrade_request
from tests.support.waiting import until
from tidings_gateway.server import state
from tidings_gateway.server.draining import Phase


async def test_one_socket_too_many() -> None:
    """Beyond max_connections an upgrade gets 503 with Retry-After; plain requests go on; a place that is free again
    is given again."""
    async with serving(max_connections=2, retry_ms=1500) as served:
        raws = [await RawSocket.connect(served.ws()) for _ in range(2)]
        async with await RawSocket.connect(served.ws(), expect=503) as refused:
            assert refused.headers["retry-after"] == "2"
        async with await RawSocket.tcp(served.url) as plain:
            await plain.send_bytes(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await plain.response() == 200
        raws.pop().close()
        await until(lambda: len(served.server.state.open) == 1)
        raws.append(await RawSocket.connect(served.ws()))
        for raw in raws:
            raw.close()


async def test_one_handshake_too_many() -> None:
    """A hanging application cannot pile up handshakes: beyond max_handshakes an upgrade gets 503."""
    async with serving(max_handshakes=2) as served:
        waiting = [await RawSocket.tcp(served.url) for _ in range(2)]
        for raw in waiting:
            await raw.send_bytes(upgrade_request(served.ws("/wait")))
        await until(lambda: len(served.server.state.handshakes) == 2)
        async with await RawSocket.connect(served.ws(), expect=503):
            pass
        served.app.release.set()
        for raw in waiting:
            assert await raw.response() == 101
            raw.close()
        async with await RawSocket.connect(served.ws()):
            pass


async def test_one_connection_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond max_connections and the reserve, connections are cut unread: descriptors must not run out."""
    monkeypatch.setattr(state, "SPARE_CONNECTIONS", 1)
    async with serving(App(), max_connections=1) as served:
        idle = [await RawSocket.tcp(served.url) for _ in range(2)]
        await until(lambda: len(served.server.state.connections) == 2)
        async with await RawSocket.tcp(served.url) as cut:
            await cut.recv_end()
        assert len(served.server.state.connections) == 2
        idle.pop().close()
        await until(lambda: len(served.server.state.connections) == 1)
        idle.pop().close()


async def test_a_draining_server_refuses_upgrades() -> None:
    """In the window an upgrade is refused before the application sees it: 503, Retry-After, problem+json."""
    async with serving(retry_ms=5000) as served:
        served.server.draining.enter(Phase.WINDOW)
        async with await RawSocket.connect(served.ws(), expect=503) as raw:
            assert raw.headers["retry-after"] == "5"
            assert raw.headers["content-type"] == "application/problem+json"
        assert served.app.scopes == []
