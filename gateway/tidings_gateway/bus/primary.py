"""One primary, and the one task that keeps a link to it: opens it, watches it, replaces it, and says so in words."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from tidings.errors import StoreUnavailable
from tidings.log.page import Page
from tidings.log.script import Command
from tidings_gateway.bus.link import RETRY_AFTER_S, Link, LinkParts
from tidings_gateway.bus.locate import Locator
from tidings_gateway.bus.resp import reject
from tidings_gateway.bus.trouble import Kind, Trouble
from tidings_gateway.core.pacing import full_jitter

log = logging.getLogger("tidings.bus")

RETRY_BASE_MS = 100
"""A connection that was merely cut is replaced before anybody notices."""

RETRY_CAP_MS = 2_000
"""Often enough that users have their events within 5 s of Redis' return; seldom enough that the dozens of gateways of a
fleet, at two connections an attempt, do not trouble a Redis that is starting."""

SETTLED_MS = 10_000
"""A link that lived this long ends a series of failures: only then the retries start from the base again."""

PROVED_MS = 1_000
"""A link that lived this long is worth a line in the log. One that dies at once, time after time, is not."""


class Primary:
    """`locator` says where it is now. `run` is the body of the owner task and ends only when cancelled."""

    def __init__(self, locator: Locator, parts: LinkParts) -> None:
        self.link: Link | None = None
        """The link in use; None while there is none."""
        self.generation = 0
        """Of the newest link; 0 before the first."""
        self.attempts = 0
        """Links tried so far, opened or not."""
        self.why_down = "no connection to Redis was tried yet"
        """One sentence; empty while the link is up."""
        self.kind_down: Kind | None = None
        self.opened = 0
        """Links that were."""
        self.troubles: Counter[str] = Counter()
        """Of links that ended or could not be opened, by kind."""
        self._heard_ms = parts.clock_ms()
        self._locator = locator
        self._parts = parts
        self._down_since_ms = parts.clock_ms()
        self._told: str | None = None
        """The trouble the log spoke of last; empty when it said that Redis is reached."""

    @property
    def up(self) -> bool:
        return self.link is not None

    @property
    def relinks(self) -> int:
        """Links that replaced an earlier one."""
        return max(0, self.opened - 1)

    @property
    def down_ms(self) -> float:
        """How long there has been no link; 0 while there is one."""
        return 0.0 if self.link is not None else self._parts.clock_ms() - self._down_since_ms

    @property
    def heard_ms(self) -> float:
        """When the last byte came over a subscribed connection, this link's or an earlier one's; before the first link,
        when we began to try."""
        if self.link is not None:
            self._heard_ms = self.link.heard_ms
        return self._heard_ms

    def want(self, channel: bytes) -> None:
        self._parts.channels.want(channel)
        if self.link is not None:
            self.link.subscriber.speak_soon()

    def unwant(self, channel: bytes) -> None:
        # No need to speak: the tick sees when the linger is over.
        self._parts.channels.unwant(channel, self._parts.clock_ms())

    def confirmed(self, channel: bytes) -> int | None:
        return self._parts.channels.confirmed(channel)

    def read(self, command: Command) -> asyncio.Future[Page]:
        if self.link is not None:
            return self.link.read(command)
        future: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        reject(future, StoreUnavailable(self.why_down, retry_after_s=RETRY_AFTER_S))
        return future

    async def ping(self) -> float:
        if self.link is None:
            raise StoreUnavailable(self.why_down, retry_after_s=RETRY_AFTER_S)
        return await self.link.ping()

    # The owner task

    async def run(self) -> None:
        attempt = 0
        while True:
            lived_ms = await self._live_once()
            if lived_ms >= SETTLED_MS:
                attempt = 0
            await asyncio.sleep(full_jitter(RETRY_BASE_MS, RETRY_CAP_MS, attempt, self._parts.rng) / 1000)
            attempt += 1

    async def _live_once(self) -> float:
        """Open a link and watch it until it is over. Returns how long it lived, in ms."""
        self.attempts += 1
        try:
            link = await Link.open(await self._locator.locate(), self._parts)
        except Trouble as why:
            self._down(why)
            return 0
        except Exception as error:
            log.exception("opening a link failed by a fault of our own")
            self._down(Trouble(Kind.FAULT, f"a fault of the gateway itself: {type(error).__name__}"))
            return 0
        if link.trouble is not None:
            self._down(link.trouble)
            return 0
        opened_ms = self._parts.clock_ms()
        self._up(link)
        watch = asyncio.ensure_future(self._watch(link)) if self._locator.watches else None
        try:
            while link.trouble is None:
                await asyncio.wait([link.lost], timeout=link.tick_ms / 1000)
                if watch is not None and watch.done() and link.trouble is None:
                    raise AssertionError("nobody watches where the primary is") from watch.exception()
                now_ms = self._parts.clock_ms()
                link.tick(now_ms)
                if now_ms - opened_ms >= PROVED_MS:
                    self._tell_up(link)
        except Exception as error:
            log.exception("watching a link failed by a fault of our own")
            link.lose(Trouble(Kind.FAULT, f"a fault of the gateway itself: {type(error).__name__}"))
        finally:
            link.lose(Trouble(Kind.STOPPED, "the gateway is stopping"))
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        lived_ms = self._parts.clock_ms() - opened_ms
        if lived_ms >= PROVED_MS:
            self._tell_up(link)
        self._tell_down(link.trouble)
        return lived_ms

    async def _watch(self, link: Link) -> None:
        """An old primary that lives on, or was cut off with us, may go on for a long time: ask those who decide."""
        while link.trouble is None:
            await asyncio.sleep(self._parts.limits.canary_interval_ms / 1000)
            why = await self._locator.moved(link.endpoint)
            if why is not None:
                link.lose(why)

    def _up(self, link: Link) -> None:
        self.generation = self._parts.next_generation()
        self.link = link
        self.opened += 1
        self.why_down, self.kind_down = "", None
        link.on_lost = self._lost
        link.follow_table(self.generation)

    def _lost(self, why: Trouble) -> None:
        self._heard_ms = self.heard_ms
        self.link = None
        self._down_since_ms = self._parts.clock_ms()
        self.troubles[why.kind.value] += 1
        self.why_down, self.kind_down = why.words, why.kind
        self._parts.channels.reset(self._parts.listener.last_active)
        try:
            self._parts.listener.link_lost()
        except Exception:
            log.exception("the listener failed to take the loss of the link")

    def _down(self, why: Trouble) -> None:
        self.troubles[why.kind.value] += 1
        self.why_down, self.kind_down = why.words, why.kind
        self._tell_down(why)

    # Once per change, in words

    def _tell_down(self, why: Trouble | None) -> None:
        if why is None or why.kind is Kind.STOPPED:
            return
        if why.words != self._told:
            self._told = why.words
            log.warning("%s; trying again until it works", why.words)

    def _tell_up(self, link: Link) -> None:
        if self._told == "":
            return
        self._told = ""
        log.info("Redis at %s is reached (link %d)", link.endpoint, self.generation)
