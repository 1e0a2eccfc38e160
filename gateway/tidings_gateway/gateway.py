"""A gateway: what all its connections share, wired once by `app.py`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidings_gateway.core import frames

if TYPE_CHECKING:
    from tidings_gateway.auth.origin import OriginPolicy
    from tidings_gateway.auth.tokens import TokenVerifier
    from tidings_gateway.core.closing import Close
    from tidings_gateway.core.frames import Frame
    from tidings_gateway.hub import Hub
    from tidings_gateway.session import Limits
    from tidings_gateway.settings import Settings
    from tidings_gateway.ticker import Ticker


class Connection(Protocol):
    """What everybody may see of a client's connection, whatever its transport."""

    transport: str
    """Its name among the metrics' labels."""

    @property
    def queued_bytes(self) -> int: ...


@dataclass(slots=True)
class Gateway:
    id: str
    """Names this process; session ids begin with it."""
    settings: Settings
    hub: Hub
    ticker: Ticker
    limits: Limits
    tokens: TokenVerifier
    origins: OriginPolicy
    connections: set[Connection] = field(default_factory=set)
    """Those open now, of every transport. Bounded by `max_connections`, checked when a connection opens."""
    _sessions: int = 0

    def now(self) -> float:
        return self.ticker.now()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def new_session_id(self) -> str:
        self._sessions += 1
        return f"{self.id}-{self._sessions}"

    def goodbye(self, row: Close, retry_ms: int | None = None) -> Frame | None:
        """The frame before a planned close; None for the codes that have no retry time."""
        if row.retry_ms is None:
            return None
        return frames.goodbye(row.code, self.settings.retry_ms if retry_ms is None else retry_ms)
