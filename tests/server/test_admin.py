"""The operator's listener: an address of its own, the same bounds, no WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.server.serving import App
from tests.support.rawsocket import RawSocket
from tidings_gateway.server.admin import AdminServer, CannotListen, bind


@contextlib.asynccontextmanager
async def admin(app: App) -> AsyncIterator[AdminServer]:
    server = AdminServer(app, bind("127.0.0.1", 0))
    await server.start()
    try:
        yield server
    finally:
        app.release.set()
        await server.close()


@pytest.mark.may_block(reason="`bind` is called before the loop runs, except here")
async def test_it_serves_its_application_and_no_websocket() -> None:
    """An upgrade gets 503: nothing here takes a socket."""
    app = App()
    async with admin(app) as server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as http:
        assert (await http.get("/hello")).json()["path"] == "/hello"
        raw = await RawSocket.connect(f"ws://127.0.0.1:{server.port}/v1/ws", expect=503)
        raw.close()


@pytest.mark.may_block(reason="`bind` is called before the loop runs, except here")
async def test_closing_cuts_who_is_still_there() -> None:
    """A scraper that hangs keeps no process alive; closing twice does no harm."""
    app = App()
    server = AdminServer(app, bind("127.0.0.1", 0))
    await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=5) as http:
        hanging = asyncio.create_task(http.get("/wait"))
        async with asyncio.timeout(5):
            while not app.scopes:
                await asyncio.sleep(0)
            await server.close()
            with contextlib.suppress(httpx.HTTPError):
                await hanging
        await server.close()
        with pytest.raises(httpx.ConnectError):
            await http.get("/hello")


def test_an_address_that_cannot_be_had_is_said_in_words() -> None:
    """Taken, not of this machine, or no name."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port}: Address already in use"):
            bind("127.0.0.1", port)
    with pytest.raises(CannotListen, match="Cannot assign"):
        bind("203.0.113.1", 0)
    with pytest.raises(CannotListen, match=r"no\.such\.host\.invalid:0: "):
        bind("no.such.host.invalid", 0)


def test_ipv6_where_there_is_some() -> None:
    """`[::1]:0` of the settings arrives here without its brackets."""
    try:
        listener = bind("::1", 0)
    except CannotListen as error:
        assert error.why  # noqa: PT017 - a machine without IPv6
        return
    assert listener.family == socket.AF_INET6
    listener.close()
