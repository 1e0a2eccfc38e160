"""The bus: what the gateway hears from Redis, and what it asks of it.

One subscribed connection for all users, one for commands, replaced together. Nothing here waits for a client, and no
client's disconnect cuts a command half-way.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from tidings.log.eventlog import (
    DEFAULT_LIMITS,
    PAGE_BYTES,
    PAGE_EVENTS,
    READ,
    Failover,
    new_epoch,
)
from tidings.log.names import Names
from tidings.log.page import Page
from tidings.redis_url import parse_redis_url
from tidings_gateway.bus.canary import CANARY, canary_name
from tidings_gateway.bus.channels import Channels
from tidings_gateway.bus.clock import monotonic_ms
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.link import LinkParts
from tidings_gateway.bus.locate import locator_of
from tidings_gateway.bus.owner import Owner
from tidings_gateway.bus.primary import Primary
from tidings_gateway.bus.reads import Reads
from tidings_gateway.bus.subscriber import BusListener

__all__ = ["Bus", "BusLimits", "BusListener"]


class Bus:
    """Construct and `start` it inside the event loop it belongs to; all methods belong to that loop.

    `names` says which installation this is. `failover` and `meta_ttl_s` go into every read, see `read_command`.
    `clock_ms` must never jump. `rng` must be a `random.SystemRandom` outside of tests.
    Raises `InvalidSetting` for a URL that cannot be used.
    """

    def __init__(
        self,
        redis_url: str,
        names: Names,
        listener: BusListener,
        limits: BusLimits | None = None,
        *,
        meta_ttl_s: int = DEFAULT_LIMITS.meta_ttl_s,
        failover: Failover = "trust",
        clock_ms: Callable[[], float] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        limits = limits or BusLimits()
        url = parse_redis_url(redis_url)
        rng = rng or random.SystemRandom()
        self._reads = Reads(names, rng, meta_ttl_s, failover)
        self._clock_ms = clock_ms or monotonic_ms
        self._channels = Channels(linger_ms=limits.linger_ms, batch=limits.subscribe_batch)
        gateway_id = new_epoch(rng)
        self.gateway_id = gateway_id
        """Names this gateway to Redis: in CLIENT LIST and in its canary."""
        self._primary = Primary(
            locator_of(url, timeout_ms=limits.redis_timeout_ms),
            LinkParts(
                gateway_id=gateway_id,
                canary_name=lambda: canary_name(names.prefix, gateway_id),
                scripts=(READ, CANARY),
                channels=self._channels,
                listener=listener,
                limits=limits,
                next_generation=partial(next, itertools.count(1)),
                clock_ms=self._clock_ms,
                rng=rng,
            ),
        )
        self._owner = Owner(self._primary.run, "bus owner")

    async def start(self) -> None:
        """Begin to keep a link. Returns at once and never fails for Redis' sake: see `up` and `why_down`."""
        self._owner.start()

    async def close(self) -> None:
        """Cut the link. Reads under way fail with `StoreUnavailable`. Safe to call twice."""
        await self._owner.close()

    # State

    @property
    def up(self) -> bool:
        """There is a link, proved when it was opened by a canary that was written, published and heard, and by one each
        interval since. A link that died is noticed, and this is False, at most an interval and a time-out later."""
        return self._primary.up

    @property
    def whole(self) -> bool:
        """All users can be served: of one server the same as `up`."""
        return self._primary.up

    @property
    def down_ms(self) -> float:
        """How long there has been no link, in ms, from the start on; 0 while there is one."""
        return self._primary.down_ms

    @property
    def reached(self) -> bool:
        """Whether there ever was a link."""
        return self._primary.generation > 0

    @property
    def generation(self) -> int:
        """Of the newest link; 0 before the first. A channel may be confirmed under a greater one, see `confirmed`."""
        return self._primary.generation

    @property
    def why_down(self) -> str:
        """Why there is no link, as a sentence without secrets; empty while there is one."""
        return self._primary.why_down

    @property
    def writes_refused(self) -> str:
        """Redis' own words while it is the primary and takes no writes (full, too few replicas, disk); else empty."""
        link = self._primary.link
        return link.writes_refused if link is not None else ""

    @property
    def lag_ms(self) -> float | None:
        """From writing the last canary to hearing it; None while there is no link."""
        link = self._primary.link
        return link.canary.lag_ms if link is not None else None

    @property
    def links(self) -> int:
        """How many there were, this one included."""
        return self._primary.opened

    @property
    def relinks(self) -> int:
        """How many of them replaced an earlier one."""
        return self._primary.relinks

    @property
    def silent_s(self) -> float:
        """How long ago the last bytes came over a subscribed connection, in s, also while there is no link."""
        return self.age_s()

    @property
    def troubles(self) -> Counter[str]:
        """Of links that ended or could not be opened, by the value of their `Kind`."""
        return self._primary.troubles

    @property
    def channels(self) -> int:
        """In the table: wanted, or lingering."""
        return len(self._channels)

    @property
    def reads_outstanding(self) -> int:
        """Scripts sent and not yet answered."""
        link = self._primary.link
        return link.scripts.outstanding if link is not None else 0

    @property
    def reads_queued(self) -> int:
        link = self._primary.link
        return link.scripts.queued if link is not None else 0

    def age_s(self) -> float:
        """How long ago the last bytes came over the subscribed connection: while a record is handed on, its own, since
        nothing more is read until all that came is handed on. Goes on through times without a link."""
        return (self._clock_ms() - self._primary.heard_ms) / 1000

    # Channels

    def want(self, channel: bytes) -> None:
        """Subscribe, unless it is subscribed; the listener's `channel_on` tells when that is confirmed. No count is
        kept: one `unwant` ends it, after the linger."""
        self._primary.want(channel)

    def unwant(self, channel: bytes) -> None:
        self._primary.unwant(channel)

    def confirmed(self, channel: bytes) -> int | None:
        """The generation under which the channel's subscription was confirmed; None when it is not in force now.

        A page proves what it proves only for a reader whose channel was confirmed, under one and the same generation,
        from before the read until after the page came.
        """
        return self._primary.confirmed(channel)

    # Reads

    def read(
        self,
        user: str,
        position: bytes | None,
        *,
        last: int = 0,
        limit: int = PAGE_EVENTS,
        max_bytes: int = PAGE_BYTES,
    ) -> asyncio.Future[Page]:
        """What follows `position` in the user's log; None: the top, after the last `last` entries.

        What is asked in one tick of the loop leaves in one write. The future may be cancelled at any time: a read that
        was sent is answered all the same, and its reply dropped. It raises `StoreUnavailable` when there is no link,
        when the link is lost before the answer, and when too many reads wait already.
        Raises `InvalidUser` and `InvalidPosition` at once.
        """
        return self._primary.read(self._reads.command(user, position, last=last, limit=limit, max_bytes=max_bytes))

    async def ping(self) -> float:
        """The round trip to Redis in ms. Raises `StoreUnavailable`."""
        return await self._primary.ping()
