"""The operator's listener: a second address with an application of its own, and the same bounds as the first.

It is no part of the drain: it answers until the process ends, since the end is what an operator wants to watch.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from tidings_gateway.server.draining import Draining
from tidings_gateway.server.http import HttpProtocol
from tidings_gateway.server.server import configure
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.server.state import GatewayState

if TYPE_CHECKING:
    from tidings_gateway.server.handshake import Application

MAX_CONNECTIONS = 64
"""Besides `SPARE_CONNECTIONS`. Scrapers and probes are few; whoever holds more is none."""
BACKLOG = 64


class CannotListen(Exception):
    """The address cannot be had. `why` is the system's word for it."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(f"{host}:{port}: {why}")
        self.host = host
        self.port = port
        self.why = why


def bind(host: str, port: int) -> socket.socket:
    """Take the address. Before the event loop runs: it may look a name up. Raises `CannotListen`."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        listener = socket.socket(family, kind)
    except OSError as error:
        raise CannotListen(host, port, error.strerror or type(error).__name__) from None
    try:
        # A gateway that is started again must not wait for the connections of the one before to be forgotten.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotListen(host, port, error.strerror or type(error).__name__) from None
    listener.setblocking(False)
    return listener


class AdminServer:
    """Serves `app` on a socket of `bind`, from `start` to `close`, in the running loop. Takes no WebSockets."""

    def __init__(self, app: Application, listener: socket.socket) -> None:
        self._app = app
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._state: GatewayState | None = None

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        settings = replace(ServerSettings(), max_connections=MAX_CONNECTIONS, max_handshakes=0, trusted_proxies="")
        config = configure(self._app, settings)
        config.load()
        state = self._state = GatewayState(settings, Draining(), loop)
        self._server = await loop.create_server(lambda: HttpProtocol(config, state, {}), sock=self._listener)

    async def close(self) -> None:
        """Cut whoever is still connected. Safe to call twice."""
        if self._server is None or self._state is None:
            self._listener.close()
            return
        server, self._server = self._server, None
        server.close()
        for task in list(self._state.tasks):
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()
        self._state.close()
        await asyncio.sleep(0)
