"""Which server is the primary now: the one the URL names, or the one its Sentinels name."""

from __future__ import annotations

from typing import Protocol

from tidings.redis_url import RedisUrl
from tidings_gateway.bus.endpoint import Endpoint, endpoint_of
from tidings_gateway.bus.sentinel import Sentinels
from tidings_gateway.bus.trouble import Trouble


class Locator(Protocol):
    watches: bool
    """Whether `moved` has anything to find out: asked once per canary interval, as long as there is a link."""

    async def locate(self) -> Endpoint:
        """Where to try now; asked before each attempt at a link, since a failover changes it. Raises `Trouble`."""
        ...

    async def moved(self, endpoint: Endpoint, /) -> Trouble | None:
        """Why `endpoint`, to which there is a link, is the primary no longer; None while it is, or nobody can say."""
        ...


class OneServer:
    """The one the URL names. Its name may lead elsewhere by tomorrow: every attempt looks it up."""

    watches = False

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def locate(self) -> Endpoint:
        return self._endpoint

    async def moved(self, _: Endpoint, /) -> Trouble | None:
        return None


def locator_of(url: RedisUrl, *, timeout_ms: float) -> Locator:
    """Raises `InvalidSetting` for certificate files that cannot be read."""
    assert url.kind != "cluster", "whose primaries are many"
    if url.kind == "sentinel":
        return Sentinels(url, timeout_ms=timeout_ms)
    return OneServer(endpoint_of(url))
