"""The bus of a Cluster: a `Primary` for each of its primaries, and a map that says whose channels are where.

Each of them has its own link, canary and channel table, just as a single one has; what fails on one is felt by its
users alone. Generations are counted once for all, so a page still proves only under its own channel's confirmation.

Where a channel lives is learned in two ways. A node that lost a slot names the new owner (MOVED), and the channel goes
there at once. And whenever something is in doubt (a link is down, a channel has no home), the nodes are asked for the
whole map: all of them, since one that was cut off does not know that it is wrong, and the one that has heard of the
newest decision of the Cluster (its greatest epoch) is believed. When nothing is in doubt, nobody is asked.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from tidings.errors import StoreUnavailable
from tidings.log.eventlog import DEFAULT_LIMITS, PAGE_BYTES, PAGE_EVENTS, READ, Failover, new_epoch
from tidings.log.names import Names
from tidings.log.page import Page
from tidings.log.script import Command
from tidings.publishing.slots import parse_redirect
from tidings.redis_url import Address, parse_redis_url
from tidings_gateway.bus.canary import CANARY, canary_name
from tidings_gateway.bus.clock import monotonic_ms
from tidings_gateway.bus.clusterstate import ClusterState
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.link import RETRY_AFTER_S, LinkParts
from tidings_gateway.bus.member import Member
from tidings_gateway.bus.owner import Owner
from tidings_gateway.bus.reads import Reads
from tidings_gateway.bus.resp import reject
from tidings_gateway.bus.slots import Slots, slot_of_channel
from tidings_gateway.bus.subscriber import BusListener
from tidings_gateway.bus.topology import Topology
from tidings_gateway.bus.trouble import Kind, Trouble
from tidings_gateway.core.pacing import full_jitter

log = logging.getLogger("tidings.bus")

LOOK_BASE_MS = 100
LOOK_CAP_MS = 1_000
"""Between two looks at the map, while something is in doubt: a failover of the Cluster takes seconds, and a look asks a
handful of nodes."""

MAX_BOUNCES = 8
"""How often a slot may be sent on from one look at the map to the next. Two nodes that each name the other would
otherwise keep us busy until they agree."""


class ClusterBus(ClusterState):
    """As `Bus`, whose arguments these are. Raises `InvalidSetting` for a URL that cannot be used."""

    def __init__(
        self,
        redis_url: str,
        names: Names,
        listener: BusListener,
        limits: BusLimits | None = None,
        *,
        meta_ttl_s: int = DEFAULT_LIMITS.meta_ttl_s,
        failover: Failover = "resync",
        clock_ms: Callable[[], float] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(clock_ms or monotonic_ms)
        self._limits = limits or BusLimits()
        self._names = names
        self._listener = listener
        self._rng = rng or random.SystemRandom()
        self._reads = Reads(names, self._rng, meta_ttl_s, failover, lone_key=True)
        self._topology = Topology(parse_redis_url(redis_url), timeout_ms=self._limits.redis_timeout_ms)
        self._slots = Slots()
        self._homes: dict[bytes, Member | None] = {}
        """Every wanted channel, and where it was subscribed; None: nobody is known to serve its slot."""
        self._bounces: Counter[int] = Counter()
        self._named: dict[Address, None] = {}
        """Who was named as a new owner since the last look, and so knows more than others."""
        self._next_generation = partial(next, itertools.count(1))
        self._doubted = asyncio.Event()
        self._told = ""
        self._looks = Owner(self._look_always, "cluster map")
        self._closed = False
        self.gateway_id = new_epoch(self._rng)
        """Names this gateway to Redis: in CLIENT LIST and in its canaries."""

    async def start(self) -> None:
        """Returns at once and never fails for Redis' sake: see `up` and `why_down`."""
        if not self._closed:
            self._looks.start()

    async def close(self) -> None:
        """Cut all links. Safe to call twice."""
        self._closed = True
        await self._looks.close()
        for member in list(self._members.values()):
            await member.close()

    # Channels

    def want(self, channel: bytes) -> None:
        if channel not in self._homes:
            self._homes[channel] = None
            self._homeless += 1
        self._settle(channel)

    def unwant(self, channel: bytes) -> None:
        if channel not in self._homes:
            return
        home = self._homes.pop(channel)
        if home is None:
            self._homeless -= 1
        else:
            home.primary.unwant(channel)

    def confirmed(self, channel: bytes) -> int | None:
        home = self._homes.get(channel)
        return home.primary.confirmed(channel) if home is not None else None

    def _settle(self, channel: bytes) -> None:
        """Let the channel live where its slot is served, as far as is known."""
        address = self._slots.owner(slot_of_channel(channel))
        self._move_in(channel, self._members.get(address) if address is not None else None)

    def _move_in(self, channel: bytes, member: Member | None) -> None:
        home = self._homes[channel]
        self._homes[channel] = member
        self._homeless += (member is None) - (home is None)
        if home is not None and home is not member and home.channels.forget(channel):
            self._listener.channel_off(channel)
        if member is not None:
            member.primary.want(channel)
        else:
            self._doubted.set()

    # What the members tell.

    def misplaced(self, member: Member, channels: Sequence[bytes], error: str) -> bool:
        """`member` does not subscribe these channels of one slot."""
        if not error.startswith(("MOVED ", "CLUSTERDOWN", "TRYAGAIN", "ASK ")):
            return False
        slot = slot_of_channel(channels[0])
        self._learn(member, slot, error)
        for channel in channels:
            if self._homes.get(channel) is member:
                self._settle(channel)
            else:
                # Wanted no more; or it lives elsewhere already.
                member.channels.forget(channel)
        return True

    def redirected(self, member: Member, command: Command, error: str) -> asyncio.Future[Page] | None:
        """`member` does not answer a read. While a slot is on its way, what is absent here may be there already."""
        if error.startswith(("MOVED ", "CLUSTERDOWN")):
            # The subscription is gone with the slot; the read that follows the next one proves what this cannot.
            self._learn(member, slot_of_channel(command.keys[0]), error)
            return None
        if not error.startswith("ASK "):
            return None
        try:
            there = self._members.get(parse_redirect(error, member.address).address)
        except ValueError:
            return None
        if there is None or there.primary.link is None:
            self._doubted.set()
            return None
        asked = Command(command.script, command.keys, (*command.args[:-1], b"asked"))
        return there.primary.link.read(asked, asking=True)

    def _learn(self, member: Member, slot: int, error: str) -> None:
        self._doubted.set()
        owner: Address | None = None
        self._bounces[slot] += 1
        if error.startswith("MOVED ") and self._bounces[slot] <= MAX_BOUNCES:
            try:
                owner = parse_redirect(error, member.address).address
            except ValueError:
                log.warning("Redis at %s said where a slot is in words nobody understands", member.address)
        if owner is not None:
            self._named[owner] = None
        if self._slots.owner(slot) in (member.address, None):
            self._slots.move(slot, None if owner == member.address else owner)

    def link_lost(self, member: Member) -> None:
        self._doubted.set()
        for channel in member.channels:
            self._listener.channel_off(channel)

    def record_received(self, member: Member, channel: bytes, payload: bytes) -> None:
        self._speaking = member
        self._listener.record_received(channel, payload)

    def canary(self, member: Member) -> bytes:
        tag = self._slots.tag(member.address, self._rng)
        if tag is None:
            raise Trouble(Kind.MOVED, f"Redis at {member.address} serves no slot of the Cluster")
        return canary_name(self._names.prefix, self.gateway_id, tag)

    # The map

    @property
    def _in_doubt(self) -> bool:
        return self._map_trouble is not None or not self._slots.covered or not self.whole

    async def _look_always(self) -> None:
        attempt = 0
        # Also should it ever be started again: what was in doubt then is in doubt still.
        self._doubted.set()
        while True:
            await self._doubted.wait()
            self._doubted.clear()
            try:
                await self._look()
            except Trouble as why:
                self._map_trouble = why
                self._tell(why.words)
            attempt = attempt + 1 if self._in_doubt else 0
            await asyncio.sleep(full_jitter(LOOK_BASE_MS, LOOK_CAP_MS, attempt, self._rng) / 1000)
            if self._in_doubt:
                self._doubted.set()

    async def _look(self) -> None:
        named, self._named = self._named, {}
        up = (address for address, member in self._members.items() if member.primary.up)
        found = await self._topology.ask(first=(*named, *up))
        self._map_trouble = None
        self._told = ""
        self._bounces.clear()
        self._slots.adopt(found)
        primaries = self._slots.primaries
        for address in primaries - self._members.keys():
            self._members[address] = self._member(address)
            self._members[address].start()
        for channel in list(self._homes):
            self._settle(channel)
        for address in self._members.keys() - primaries:
            log.info("Redis at %s serves no slot of the Cluster any more", address)
            # Ours until it has ended: `close` may come meanwhile.
            await self._members[address].close()
            self._remember(self._members.pop(address))

    def _member(self, address: Address) -> Member:
        return Member(
            address,
            self,
            self._topology.endpoint(address),
            lambda member: LinkParts(
                gateway_id=self.gateway_id,
                canary_name=partial(self.canary, member),
                scripts=(READ, CANARY),
                channels=member.channels,
                listener=member,
                limits=self._limits,
                next_generation=self._next_generation,
                clock_ms=self._clock_ms,
                rng=self._rng,
                sharding=member,
            ),
            self._listener,
            self._limits,
        )

    def _tell(self, words: str) -> None:
        if words != self._told:
            self._told = words
            log.warning("%s; trying again until it works", words)

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
        """As `Bus.read`. It goes to where the user's channel lives, since only a page from there proves anything."""
        command = self._reads.command(user, position, last=last, limit=limit, max_bytes=max_bytes)
        channel = self._names.channel(user)
        home = self._homes.get(channel)
        if home is None:
            address = self._slots.owner(slot_of_channel(channel))
            home = self._members.get(address) if address is not None else None
        if home is not None:
            return home.primary.read(command)
        future: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        why = self.why_down or "no node of the Cluster serves the user's slot"
        reject(future, StoreUnavailable(why, retry_after_s=RETRY_AFTER_S))
        return future

    async def ping(self) -> float:
        """The longest round trip to any primary in ms. Raises `StoreUnavailable`."""
        if not self._members:
            raise StoreUnavailable(self.why_down, retry_after_s=RETRY_AFTER_S)
        return max([await member.primary.ping() for member in self.primaries])
