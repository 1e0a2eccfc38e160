"""One primary of a Cluster: its link, its channels and the task that keeps them; what it hears goes to the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidings.log.page import Page
from tidings.log.script import Command
from tidings.redis_url import Address
from tidings_gateway.bus.channels import Channels
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.link import LinkParts
from tidings_gateway.bus.locate import OneServer
from tidings_gateway.bus.owner import Owner
from tidings_gateway.bus.primary import Primary
from tidings_gateway.bus.subscriber import BusListener


class Whole(Protocol):
    """The bus it is a part of, which is told who speaks."""

    def record_received(self, member: Member, channel: bytes, payload: bytes) -> None: ...
    def link_lost(self, member: Member) -> None: ...
    def misplaced(self, member: Member, channels: Sequence[bytes], error: str) -> bool: ...
    def redirected(self, member: Member, command: Command, error: str) -> asyncio.Future[Page] | None: ...


class Member:
    """To its own link it is listener and sharding in one. `parts` makes what its links are made of."""

    def __init__(
        self,
        address: Address,
        whole: Whole,
        endpoint: Endpoint,
        parts: Callable[[Member], LinkParts],
        listener: BusListener,
        limits: BusLimits,
    ) -> None:
        self.address = address
        self.channels = Channels(linger_ms=limits.linger_ms, batch=limits.subscribe_batch)
        self._whole = whole
        self._listener = listener
        self.primary = Primary(OneServer(endpoint), parts(self))
        self._owner = Owner(self.primary.run, f"bus owner {address}")

    def start(self) -> None:
        self._owner.start()

    async def close(self) -> None:
        await self._owner.close()

    # What its link tells.

    def record_received(self, channel: bytes, payload: bytes) -> None:
        self._whole.record_received(self, channel, payload)

    def channel_on(self, channel: bytes, generation: int) -> None:
        self._listener.channel_on(channel, generation)

    def channel_off(self, channel: bytes) -> None:
        self._listener.channel_off(channel)

    def link_lost(self) -> None:
        self._whole.link_lost(self)

    def last_active(self, channel: bytes) -> int:
        return self._listener.last_active(channel)

    def misplaced(self, channels: Sequence[bytes], error: str) -> bool:
        return self._whole.misplaced(self, channels, error)

    def redirected(self, command: Command, error: str) -> asyncio.Future[Page] | None:
        return self._whole.redirected(self, command, error)
