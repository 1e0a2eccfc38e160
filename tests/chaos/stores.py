"""The Redis that a run strikes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

import redis

from tests.chaos.plan import StrikeKind
from tests.support.sentinels import Sentinels
from tests.support.valkey import ValkeyProcess

WRITES_THROUGH = ("--appendonly", "yes", "--appendfsync", "always")


class Store(Protocol):
    """The Redis under test, whichever shape it has."""

    @property
    def url(self) -> str: ...
    @property
    def primary(self) -> ValkeyProcess:
        """The one that is it now."""
        ...

    async def failover(self) -> None:
        """Another server becomes the primary. Returns when it is."""
        ...

    async def __aenter__(self) -> Store: ...
    async def __aexit__(self, *_: object) -> None: ...


class Single:
    """One server that writes through: what it acknowledged, it has."""

    def __init__(self) -> None:
        self.primary = ValkeyProcess(*WRITES_THROUGH)

    @property
    def url(self) -> str:
        return self.primary.url

    async def failover(self) -> None:
        raise redis.RedisError("a single server has nothing to fail over to")

    async def __aenter__(self) -> Single:
        await asyncio.to_thread(self.primary.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.primary.close)


class Watched:
    """A primary and a replica under three Sentinels. What a primary acknowledged a moment before its end, the other may
    lack."""

    def __init__(self) -> None:
        self.servers = Sentinels(*WRITES_THROUGH, "--shutdown-timeout", "0", count=3)

    @property
    def url(self) -> str:
        return self.servers.url

    @property
    def primary(self) -> ValkeyProcess:
        return self.servers.primary

    async def failover(self) -> None:
        # One that follows within seconds of a death has to wait until the dead server is a replica again.
        await asyncio.to_thread(self.servers.wait_replicating, 30)
        await asyncio.to_thread(self.servers.failover, 30)

    async def __aenter__(self) -> Watched:
        try:
            await asyncio.to_thread(self.servers.start)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.servers.close)


def store_for(strikes: Iterable[StrikeKind]) -> Store:
    """The simplest that can be struck so."""
    return Watched() if "failover" in strikes else Single()
