"""The canary: something that is written, published, and must be heard again in time.

Every other sign of life can lie. A frozen server and a half-open connection raise nothing; a demoted primary answers
PING and delivers nothing; a subscription can be gone while commands work. Pure: time is an argument.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

from tidings.log.script import Command, Script

KEY_LIFE_MS = 60_000
"""The key is never read; it only has to go away by itself after the gateway did."""

_TEXT = files("tidings_gateway.bus").joinpath("canary.lua").read_text("utf-8")
CANARY = Script("canary", _TEXT, hashlib.sha1(_TEXT.encode(), usedforsecurity=False).hexdigest())


def canary_name(prefix: str, gateway_id: str, tag: str = "0") -> bytes:
    """Key and channel of one gateway's canary. `tag` chooses the cluster slot."""
    return f"{prefix}:gw:{gateway_id}:{{{tag}}}".encode("ascii")


class Canary:
    """One is under way at a time: sent, then heard; the next leaves `interval_ms` after the one before."""

    def __init__(self, name: bytes, token: str, *, interval_ms: float, sharded: bool = False) -> None:
        """`token` makes this canary's messages differ from those of the link before. `sharded`: its channel is."""
        self.name = name
        self._publish = b"SPUBLISH" if sharded else b"PUBLISH"
        self.lag_ms: float | None = None
        """From sending the last one to hearing it; None until the first was heard."""
        self._token = token
        self._interval_ms = interval_ms
        self._count = 0
        self.sent_ms: float | None = None
        """When the last one was sent; None before the first."""
        self._awaited: bytes | None = None

    @property
    def awaited(self) -> bool:
        """Whether one is under way."""
        return self._awaited is not None

    def due(self, now_ms: float) -> bool:
        return self._awaited is None and (self.sent_ms is None or now_ms - self.sent_ms >= self._interval_ms)

    def send(self, now_ms: float) -> Command:
        """The call that writes and publishes the next one."""
        self._count += 1
        self.sent_ms = now_ms
        self._awaited = f"{self._token}.{self._count}".encode("ascii")
        return Command(CANARY, (self.name,), (self._awaited, b"%d" % KEY_LIFE_MS, self.name, self._publish))

    def heard(self, payload: bytes, now_ms: float) -> None:
        """Anything but the one under way is not ours, or comes late from an earlier link."""
        if payload == self._awaited and self.sent_ms is not None:
            self.lag_ms = now_ms - self.sent_ms
            self._awaited = None
