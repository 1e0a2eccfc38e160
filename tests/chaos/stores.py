"""The Redis that a run strikes."""

from __future__ import annotations

import asyncio
from typing import Protocol

import redis

from tests.support.valkey import ValkeyProcess


class Store(Protocol):
    """The Redis under test, whichever shape it has."""

    @property
    def url(self) -> str: ...
    @property
    def primary(self) -> ValkeyProcess: ...
    async def failover(self) -> None:
        """Another server becomes the primary. Returns when it is."""
        ...


class Single:
    """One server that writes through: what it acknowledged, it has."""

    def __init__(self) -> None:
        self.primary = ValkeyProcess("--appendonly", "yes", "--appendfsync", "always")

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
