"""What all connections of one server share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from uvicorn.server import ServerState

from tidings_gateway.server.deadlines import Deadlines
from tidings_gateway.server.handshake import Handshake
from tidings_gateway.server.http import HttpProtocol
from tidings_gateway.server.sockets import Sockets
from tidings_gateway.server.upgrade import Refusal, unavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection

    from tidings_gateway.server.draining import Draining
    from tidings_gateway.server.settings import ServerSettings
    from tidings_gateway.server.socket import Socket

SPARE_CONNECTIONS = 256
"""TCP connections above `max_connections` that are still read: health checks and publishers must get through, and one
upgrade too many deserves its 503."""


class GatewayState(ServerState):
    """Made once, when the loop runs."""

    def __init__(
        self,
        settings: ServerSettings,
        draining: Draining,
        loop: asyncio.AbstractEventLoop,
        refused: Counter[str] | None = None,
    ) -> None:
        """`refused` counts the upgrades that were, by a word."""
        super().__init__()
        self.refused: Counter[str] = Counter() if refused is None else refused
        self.settings = settings
        self.draining = draining
        self.open = Sockets(settings, loop)
        self.handshakes: set[Handshake] = set()
        self.header_deadlines = Deadlines(loop, settings.header_timeout_ms / 1000, HttpProtocol.headers_late)
        self.body_deadlines = Deadlines(loop, settings.body_timeout_ms / 1000, HttpProtocol.body_late)
        self.slow_deadlines = Deadlines(loop, settings.slow_timeout_ms / 1000, HttpProtocol.nothing_taken)
        self.idle_deadlines = Deadlines(loop, settings.keep_alive_ms / 1000, HttpProtocol.idle_too_long)
        self.handshake_deadlines = Deadlines(loop, settings.handshake_timeout_ms / 1000, Handshake.answer_late)

    def upgrade_refusal(self) -> Refusal | None:
        """Why no upgrade is taken just now, however right it is."""
        settings = self.settings
        if self.draining.refusing:
            return self._draining_refusal()
        if len(self.handshakes) >= settings.max_handshakes:
            self.refused["handshakes"] += 1
            return unavailable("Too many handshakes are under way.", settings.retry_ms)
        if len(self.open) + len(self.handshakes) >= settings.max_connections:
            self.refused["connections"] += 1
            return unavailable("Too many connections.", settings.retry_ms)
        return None

    def full(self) -> bool:
        """Not even a refusal can be afforded: descriptors are about to run out."""
        taken = len(self.connections) + len(self.handshakes) + len(self.open)
        return taken >= self.settings.max_connections + SPARE_CONNECTIONS

    def close(self) -> None:
        """No deadline fires any more."""
        self.header_deadlines.close()
        self.body_deadlines.close()
        self.slow_deadlines.close()
        self.idle_deadlines.close()
        self.handshake_deadlines.close()

    # What the drain sees

    def sockets(self) -> Collection[Socket]:
        return list(self.open)

    def start_refusing(self) -> None:
        self.open.draining_retry_ms = self.settings.retry_ms
        for handshake in list(self.handshakes):
            handshake.refuse(self._draining_refusal())
        for connection in self.connections:
            if isinstance(connection, HttpProtocol):
                connection.end_keep_alive()

    def busy(self) -> bool:
        if self.tasks:
            return True
        http = (connection for connection in self.connections if isinstance(connection, HttpProtocol))
        return any(connection.transport.get_write_buffer_size() for connection in http)

    def _draining_refusal(self) -> Refusal:
        self.refused["draining"] += 1
        return unavailable("This server is about to stop. Another one answers.", self.settings.retry_ms)
