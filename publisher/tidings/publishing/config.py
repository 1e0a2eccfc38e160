"""What a publisher is made from: arguments, else `TIDINGS_*` variables, else defaults; checked once, without I/O."""

from __future__ import annotations

import math
import random
from typing import Any, Literal

from tidings import settings
from tidings.errors import InvalidSetting
from tidings.event import Event
from tidings.log.eventlog import Failover
from tidings.log.names import Names
from tidings.publishing.cluster_route import ClusterRoute
from tidings.publishing.plan import Wire
from tidings.publishing.routes import OneServer, Route
from tidings.publishing.sentinel_route import SentinelRoute
from tidings.redis_url import RedisUrl, parse_redis_url

DEADLINE_S = 2.0
MAX_CONNECTIONS = 16

Kind = Literal["redis", "http"]


class Config:
    """Raises `InvalidSetting`."""

    def __init__(
        self,
        url: str | None,
        *,
        api_key: str | None,
        prefix: str | None,
        log_max_events: int | None,
        log_ttl_s: int | None,
        meta_ttl_s: int | None,
        idempotency_ttl_s: int | None,
        max_event_bytes: int | None,
        failover: str | None,
        deadline_s: float,
        max_connections: int,
    ) -> None:
        if not 0 < deadline_s < math.inf:
            raise InvalidSetting("deadline_s", deadline_s, "must be a number of seconds above 0")
        if max_connections < 1:
            raise InvalidSetting("max_connections", max_connections, "must be at least 1")
        self.deadline_s = deadline_s
        self.max_connections = max_connections
        self.max_event_bytes = settings.MAX_EVENT_BYTES.resolve(max_event_bytes)
        self.rng = random.SystemRandom()
        self.kind: Kind = "http" if url is not None and url.startswith(("http://", "https://")) else "redis"
        if self.kind == "http":
            assert url is not None
            self.url = url
            key = settings.first_secret("api_key", api_key)
            if key is None:
                raise InvalidSetting("api_key", None, "is needed to publish over HTTP (or TIDINGS_API_KEY)")
            if key.startswith("sha256:"):
                raise InvalidSetting("api_key", "(not shown)", "is the digest of a key, not the key")
            if not key.isascii() or not key.isprintable():
                raise InvalidSetting("api_key", "(not shown)", "must be printable ASCII")
            self._api_key = key
            return
        if api_key is not None:
            raise InvalidSetting("api_key", "(not shown)", "is for publishing over HTTP; Redis takes its own password")
        self.redis = parse_redis_url(settings.REDIS_URL.resolve(url))
        self._route = _route(self.redis)
        self._names = Names(settings.PREFIX.resolve(prefix))
        self._limits = settings.log_limits(
            log_max_events=log_max_events,
            log_ttl_s=log_ttl_s,
            meta_ttl_s=meta_ttl_s,
            idempotency_ttl_s=idempotency_ttl_s,
        )
        chosen = settings.FAILOVER.resolve(failover)
        # One server is trusted to keep what it acknowledged. A replica that takes over may not have all of it.
        resync = chosen == "resync" or (chosen == "auto" and self.redis.kind != "single")
        self._failover: Failover = "resync" if resync else "trust"

    def wire(self) -> Wire:
        """A new one for each plan."""
        if self.kind == "http":
            from tidings.publishing.http_wire import HttpWire

            return HttpWire(self._api_key)
        from tidings.publishing.redis_wire import RedisWire

        return RedisWire(self._names, self._limits, self._failover, self.rng, self._route)

    def event(self, type: str, data: Any, key: str | None, time_ms: int) -> Event:
        return Event.encode(type, data, time_ms=time_ms, key=key, max_bytes=self.max_event_bytes)


def _route(url: RedisUrl) -> Route:
    if url.kind == "sentinel":
        return SentinelRoute(url)
    return ClusterRoute(url) if url.kind == "cluster" else OneServer()
