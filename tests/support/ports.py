"""Ports that stay free while nobody listens on them."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_rng = random.SystemRandom()


_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _first_ephemeral() -> int:
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768


def free_port() -> int:
    """A port of 127.0.0.1 below those that the kernel gives to outgoing connections.

    A server that is stopped and started again needs its port back; a port from the kernel's own range may meanwhile
    have become the near end of somebody's connection.
    """
    low, high = 10_240, _first_ephemeral()
    if high - low < 1000:
        low, high = 10_240, 65_536
    for _ in range(1000):
        port = _rng.randrange(low, high)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port found")
