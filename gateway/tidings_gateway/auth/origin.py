"""The origin of a page: exact matches against a list, nothing else.

Browsers let any page open a WebSocket to any server, with that server's cookies. This check is what stands between a
stranger's page and a user's session (cross-site WebSocket hijacking), so it compares whole strings: no suffixes, no
patterns, no case folding.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tidings_gateway.settings.values import LOCALHOST

_LOCAL = re.compile(r"https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.ASCII)

MAX_SHOWN = 200
"""How much of a refused origin is repeated to the developer who has to add it."""


@dataclass(frozen=True, slots=True)
class OriginCheck:
    """`origin` is None when the request had none, which only a program other than a browser page does."""

    origin: str | None
    allowed: bool

    @property
    def shown(self) -> str:
        """The origin for a message or a log line: printable ASCII, bounded."""
        text = (self.origin or "")[:MAX_SHOWN]
        return "".join(char if " " < char <= "~" else "?" for char in text)


class OriginPolicy:
    """The origins of our own pages."""

    def __init__(self, allowed: Iterable[str]) -> None:
        entries = frozenset(allowed)
        self._localhost = LOCALHOST in entries
        self._exact = entries - {LOCALHOST}

    def allows(self, origin: str) -> bool:
        return origin in self._exact or (self._localhost and _LOCAL.fullmatch(origin) is not None)

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> OriginCheck:
        """`headers` as in an ASGI scope. Two Origin headers are refused: which one counts would be a guess."""
        found = [value for name, value in headers if name == b"origin"]
        if not found:
            return OriginCheck(None, True)
        origin = found[0].decode("latin-1")
        return OriginCheck(origin, len(found) == 1 and self.allows(origin))
