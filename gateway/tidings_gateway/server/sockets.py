"""Every open WebSocket of this process, and what they all share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidings_gateway.server.socket import Socket, SocketHandler
from tidings_gateway.server.wire import Inbound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings_gateway.server.settings import ServerSettings


class Sockets:
    """The registry. A socket is in it from its attachment until its handler hears `closed`."""

    def __init__(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.time = loop.time
        self.close_timeout_s = settings.close_timeout_ms / 1000
        self.inbound_frames_per_s = settings.inbound_frames_per_s
        self.inbound_bytes_per_s = settings.inbound_bytes_per_s
        self.draining_retry_ms: int | None = None
        """Set in the drain's window: whoever is attached from then on is asked to go at once."""
        self._settings = settings
        self._open: set[Socket] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Socket]:
        """Over a copy: sockets may come and go meanwhile."""
        return iter(list(self._open))

    def __contains__(self, socket: object) -> bool:
        return socket in self._open

    def attach(
        self, transport: asyncio.Transport, handler: SocketHandler, early: bytes = b"", *, lost: bool = False
    ) -> Socket:
        """Make `transport`, whose reading is paused, a socket of its own. `early` is what came behind the handshake.

        `lost` says that the connection ended before: the handler then hears `opened` and, soon after, `closed(1006)`.
        """
        socket = Socket(self, transport, handler)
        self._open.add(socket)
        if not lost:
            high = self._settings.write_high_water_bytes
            transport.set_write_buffer_limits(high=high, low=high // 4)
            transport.set_protocol(socket)
        socket._tell(handler.opened, socket)
        if lost:
            self.loop.call_soon(socket.connection_lost, None)
        elif early:
            # Later, so that whoever attached finishes first; in order, because reading is still paused.
            self.loop.call_soon(_begin, socket, transport, early)
        else:
            transport.resume_reading()
        if self.draining_retry_ms is not None:
            self.loop.call_soon(socket.drain, self.draining_retry_ms)
        return socket

    def discard(self, socket: Socket) -> None:
        """For the socket itself, at its end."""
        self._open.discard(socket)

    def new_inbound(self) -> Inbound:
        return Inbound(self._settings.max_frame_bytes, self._settings.max_fragments)


def _begin(socket: Socket, transport: asyncio.Transport, early: bytes) -> None:
    socket.data_received(early)
    transport.resume_reading()
