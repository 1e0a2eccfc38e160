"""The registry of open sockets."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import connect

from tests.server.serving import Handler, serving
from tests.support.rawsocket import RawSocket
from tests.support.waiting import until


async def test_a_socket_is_listed_until_its_handler_hears_closed() -> None:
    """Listed from the attachment on; no longer when `closed` is called, so whoever counts then counts right."""
    async with serving() as served:
        sockets = served.server.state.open
        counts: list[int] = []
        served.app.new_handler = lambda: Handler(on_closed=lambda: counts.append(len(sockets)))
        first = await connect(served.ws())
        second = await RawSocket.connect(served.ws())
        await until(lambda: len(sockets) == 2)
        assert all(handler.socket in sockets for handler in served.app.handlers)
        await first.close()
        await until(lambda: counts == [1])
        second.reset()
        await until(lambda: counts == [1, 0])


async def test_iterating_while_sockets_leave() -> None:
    """Going through all sockets is safe although what is done to one may end others."""
    async with serving() as served:
        sockets = served.server.state.open
        clients = [await RawSocket.connect(served.ws()) for _ in range(5)]
        await until(lambda: len(sockets) == 5)
        for socket in sockets:
            socket.abort()
            await asyncio.sleep(0)
        await until(lambda: not sockets)
        for client in clients:
            client.close()


async def test_attached_while_draining_is_asked_to_go_at_once() -> None:
    """A handshake that was accepted before the window and attached in it gets its goodbye like everybody else."""
    async with serving() as served:
        served.server.state.open.draining_retry_ms = 700
        async with asyncio.timeout(5), connect(served.ws()) as client:
            assert await client.recv() == "goodbye"
            await client.wait_closed()
            assert client.close_code == 1012
        await until(lambda: served.app.handler.closes)
        assert served.app.handler.calls == ["opened", "drain 700", "closed"]


async def test_attached_to_a_connection_that_is_gone() -> None:
    """The peer left between accept and attach: the handler hears `opened` and then `closed(1006)`, not from within
    the attachment."""
    async with serving() as served:
        inside: list[list[int]] = []
        served.app.after_attach = lambda handler: inside.append(list(handler.closes))
        raw = await RawSocket.connect(served.ws("/wait-after"))
        (transport,) = [handshake._transport for handshake in served.server.state.handshakes]
        raw.reset()
        transport.abort()  # reading is paused, so the reset is not seen before the first write
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        served.app.release.set()
        await until(lambda: served.app.handlers and served.app.handler.closes)
        assert served.app.handler.calls == ["opened", "closed"]
        assert served.app.handler.closes == [1006]
        assert inside == [[]]
        assert len(served.server.state.open) == 0


async def test_attached_to_a_connection_that_was_reset_unseen() -> None:
    """Reading is paused during the handshake, so a reset may only be seen after the attachment: `closed(1006)`."""
    async with serving() as served:
        raw = await RawSocket.connect(served.ws("/wait-after"))
        raw.reset()
        served.app.release.set()
        await until(lambda: served.app.handlers and served.app.handler.closes)
        assert served.app.handler.closes == [1006]
