"""Ports that stay free while nobody listens on them."""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")

_SHARES = 8
"""Workers beyond these share their ports with another."""


def _first_ephemeral() -> int:
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768


def _own_ports() -> Iterator[int]:
    """The ports of this worker, round and round, from a place of its own for each run.

    Drawn at random a port comes twice sooner or later, to two servers of one test or to two workers at once: each
    found it free, and one of them cannot listen.
    """
    low, high = 10_240, _first_ephemeral()
    if high - low < 1000 * _SHARES:
        low, high = 10_240, 65_536
    worker = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    share = range(low, high)[worker % _SHARES :: _SHARES]
    start = random.SystemRandom().randrange(len(share))
    return itertools.chain(share[start:], itertools.cycle(share))


_ports = _own_ports()


def free_port() -> int:
    """A port of 127.0.0.1 below those that the kernel gives to outgoing connections, and not one of the last thousand
    that were asked for.

    A server that is stopped and started again needs its port back; a port from the kernel's own range may meanwhile
    have become the near end of somebody's connection.
    """
    for port in itertools.islice(_ports, 1000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port found")
