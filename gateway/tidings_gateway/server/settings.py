"""What the server part of the gateway can be told. Plain values: where they come from is the caller's business."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Every bound and deadline of the server. The defaults are the gateway's documented ones."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 lets the kernel choose; the `listening on` line and `GatewayServer.port` say which."""
    base_path: str = ""
    """Path under which a proxy publishes the gateway, `/tidings`. Requests may come with it or already without it."""
    trusted_proxies: str = "127.0.0.1,::1"
    """Whose X-Forwarded-For and X-Forwarded-Proto are believed: addresses or networks, comma separated; "" for none."""
    backlog: int = 2048

    max_connections: int = 10_000
    """Upgrades beyond this many open sockets get 503; TCP connections beyond it and a small reserve are cut unread."""
    max_handshakes: int = 1_000
    """Upgrades the application has not yet answered; one more gets 503."""
    header_timeout_ms: int = 5_000
    """From a connection's first moment, or a request's first byte, to the end of its headers."""
    body_timeout_ms: int = 30_000
    """From the end of the headers to the end of the body."""
    slow_timeout_ms: int = 10_000
    """How long a peer may take nothing of an answer that waits for it."""
    keep_alive_ms: int = 65_000
    """Between an answer and the next request. Longer than the 60 s of common load balancers: the side that is told
    nothing must not be the one that still uses the connection."""
    handshake_timeout_ms: int = 10_000
    """From an upgrade request to the application's answer."""
    max_header_bytes: int = 16_384
    max_headers: int = 100
    max_url_bytes: int = 8_192
    max_pipelined: int = 8
    """Requests that may wait behind an unfinished one on the same connection."""

    max_frame_bytes: int = 8_192
    """One inbound message, all its fragments together; one byte more is close 1009."""
    max_fragments: int = 32
    inbound_frames_per_s: int = 50
    inbound_bytes_per_s: int = 65_536
    """Per socket, within any one counted second; more is close 1008."""
    write_high_water_bytes: int = 65_536
    """A socket is paused above this and writable again below a quarter of it."""
    send_buffer_bytes: int = 0
    """SO_SNDBUF of every connection; 0 leaves it to the kernel, which takes megabytes for a peer that does not read."""
    close_timeout_ms: int = 5_000
    """From our Close frame to the end of the connection, whatever the peer does."""

    drain_grace_ms: int = 5_000
    drain_window_ms: int = 20_000
    drain_settle_ms: int = 2_000
    """After the window: what closes at its very end gets this long to finish, then everything left is aborted."""
    drain_stop_ms: int = 2_000
    """After that: HTTP requests still running and the application's own shutdown get this long."""
    retry_ms: int = 5_000
    """The jitter window a goodbye names, and the Retry-After of a refused upgrade (rounded up to seconds)."""

    @property
    def drain_total_ms(self) -> int:
        """The longest a first SIGTERM may take to end the process."""
        return self.drain_grace_ms + self.drain_window_ms + self.drain_settle_ms + self.drain_stop_ms
