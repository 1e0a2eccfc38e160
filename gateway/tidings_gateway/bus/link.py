"""A link: one subscribed connection and one command connection to one primary, born, proved and replaced together.

Whatever is wrong with either of them, the whole link goes: then a read through the link and a record heard through it
always come from the same server, which is what proves that nothing fell between the two.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import hiredis

from tidings.errors import StoreUnavailable
from tidings.log.eventlog import parse_page
from tidings.log.page import Page
from tidings.log.script import Command, Script
from tidings_gateway.bus.canary import Canary
from tidings_gateway.bus.channels import Channels
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.handshake import greet
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.resp import ConnectionLost, RespConnection, reject
from tidings_gateway.bus.scripts import QueueFull, ScriptRunner
from tidings_gateway.bus.sharded import ShardedSubscriber
from tidings_gateway.bus.subscriber import BusListener, Subscriber
from tidings_gateway.bus.trouble import FATAL, Kind, Trouble, kind_of, trouble

log = logging.getLogger("tidings.bus")

TICK_MS = 100
"""How often a link looks at its clocks; each deadline is noticed at most this late."""

PATIENCE = 3
"""While bytes still come in, a deadline is extended, at most to this many times its length: then it is not Redis that
is slow to answer but this process that is slow to listen, and a new link would only add to its work."""

RETRY_AFTER_S = 2.0
"""When to ask again after Redis was away: no two attempts at a new link are further apart than this."""

_REFUSED_WRITES = ("OOM", "NOREPLICAS", "MISCONF")
"""This is the primary, it can be read and heard, and it takes no writes just now."""


def _ignore(_: object) -> None:
    pass


class Sharding(Protocol):
    """What a node of a Cluster refuses because a slot is elsewhere, or on its way, and who takes care of it then.
    `error` is what the node said."""

    def misplaced(self, channels: Sequence[bytes], error: str) -> bool:
        """It does not subscribe these channels, all of one slot. False: it is not for that reason."""
        ...

    def redirected(self, command: Command, error: str) -> asyncio.Future[Page] | None:
        """It does not answer this read. The future is the answer of somebody else, or None."""
        ...


@dataclass(frozen=True, slots=True)
class LinkParts:
    """What outlives a link and is handed from one to the next."""

    gateway_id: str
    canary_name: Callable[[], bytes]
    """For each link anew: in a Cluster its slot must be one that the node serves. May raise `Trouble`."""
    scripts: Sequence[Script]
    channels: Channels
    listener: BusListener
    limits: BusLimits
    next_generation: Callable[[], int]
    clock_ms: Callable[[], float]
    rng: random.Random
    sharding: Sharding | None = None
    """Those who know the other nodes, when this is a node of a Cluster."""


class Link:
    """Made by `open`. Its owner calls `tick` every `tick_ms` and learns from `lost` when it is over; `on_lost` is
    called in that very moment, before anything else of the event loop runs."""

    def __init__(self, endpoint: Endpoint, parts: LinkParts, commands: RespConnection, pubsub: RespConnection) -> None:
        limits = parts.limits
        loop = asyncio.get_running_loop()
        self.endpoint = endpoint
        self.trouble: Trouble | None = None
        """Why the link is over; None as long as it is not."""
        self.lost: asyncio.Future[Trouble] = loop.create_future()
        self.on_lost: Callable[[Trouble], None] = _ignore
        self.writes_refused = ""
        """Redis' own words when it takes no writes although it is the primary (full, too few replicas, disk)."""
        self.tick_ms = min(TICK_MS, limits.redis_timeout_ms / 4, limits.canary_interval_ms / 4)
        name, token, sharding = parts.canary_name(), f"{parts.rng.getrandbits(64):x}", parts.sharding
        self.canary = Canary(name, token, interval_ms=limits.canary_interval_ms, sharded=sharding is not None)
        self._limits = limits
        self._parts = parts
        self._commands = commands
        self._pubsub = pubsub
        self._read_trouble = ""
        self._ready: asyncio.Future[None] = loop.create_future()
        self._ticked_ms = parts.clock_ms()
        self._tick_was_late = False
        self.scripts = ScriptRunner(
            commands,
            parts.scripts,
            max_outstanding=limits.reads_outstanding,
            max_queued=limits.reads_queued,
        )
        kind = Subscriber if sharding is None else partial(ShardedSubscriber, on_misplaced=sharding.misplaced)
        self.subscriber: Subscriber = kind(
            pubsub,
            parts.channels,
            parts.listener,
            next_generation=parts.next_generation,
            canary=name,
            on_canary_on=self._sing,
            on_canary=self._heard,
            on_refused=self._refused,
            clock_ms=parts.clock_ms,
        )
        commands.on_lost = pubsub.on_lost = self._connection_lost

    @classmethod
    async def open(cls, endpoint: Endpoint, parts: LinkParts) -> Link:
        """Connect twice, and return when the first canary was written, published and heard: a link that is given back
        works in both directions. Takes at most the Redis timeout. Raises `Trouble`."""
        opened: list[RespConnection] = []

        async def connect(to: Endpoint, turn_replies: int) -> RespConnection:
            limits = parts.limits
            connection = await to.connect(
                lambda: RespConnection(turn_replies=turn_replies, turn_ms=limits.turn_ms, clock_ms=parts.clock_ms)
            )
            opened.append(connection)
            return connection

        try:
            async with asyncio.timeout(parts.limits.redis_timeout_ms / 1000):
                commands = await connect(endpoint, parts.limits.turn_pages)
                name = f"tidings-{parts.gateway_id}"
                sharded = parts.sharding is not None
                server = await greet(
                    commands, endpoint, name=f"{name}-commands", scripts=parts.scripts, sharded=sharded
                )
                pubsub = await connect(endpoint.at(commands.peer), parts.limits.turn_records)
                other = await greet(pubsub, endpoint, name=f"{name}-pubsub", sharded=sharded)
                if server != other:
                    raise Trouble(
                        Kind.DEAF,
                        f"two connections to {endpoint} reached two servers: what stands between must not spread them",
                    )
                link = cls(endpoint, parts, commands, pubsub)
                link.subscriber.open()
                await link._ready
        except BaseException as error:
            for connection in opened:
                connection.fail(None)
            if isinstance(error, TimeoutError) and endpoint.tls is not None and not opened:
                # A server without TLS waits for the rest of what it takes for a command.
                raise Trouble(
                    Kind.TLS, f"{endpoint} does not answer a TLS handshake: without TLS, frozen, or unreachable"
                ) from error
            if isinstance(error, Exception) and not isinstance(error, Trouble):
                raise trouble(error, endpoint, doing="the opening of a link") from error
            raise
        return link

    # Use

    @property
    def heard_ms(self) -> float:
        """When the last byte came over the subscribed connection."""
        return self._pubsub.last_received_ms

    def follow_table(self, generation: int) -> None:
        self.subscriber.follow_table(generation)

    def read(self, command: Command, *, asking: bool = False) -> asyncio.Future[Page]:
        """Send a read; see `Bus.read`. `asking`: its slot is on its way to this node."""
        future: asyncio.Future[Page] = asyncio.get_running_loop().create_future()

        try:
            self.scripts.run(command, partial(self._answered, future, command), caller=future, asking=asking)
        except QueueFull as full:
            reject(future, StoreUnavailable(str(full), retry_after_s=RETRY_AFTER_S))
        return future

    def _answered(self, future: asyncio.Future[Page], command: Command, reply: Any) -> None:
        if isinstance(reply, (ConnectionLost, hiredis.ReplyError)):
            if not self._redirected(future, command, reply):
                reject(future, self._unavailable(reply))
        elif not future.done():
            try:
                future.set_result(parse_page(reply))
            except (ValueError, TypeError, AttributeError) as error:
                log.exception("Redis answered a read with something that is no page")
                reject(future, StoreUnavailable(f"no page: {error}"))

    def _redirected(self, future: asyncio.Future[Page], command: Command, error: Exception) -> bool:
        if self._parts.sharding is None or not isinstance(error, hiredis.ReplyError) or future.done():
            return False
        answer = self._parts.sharding.redirected(command, str(error))
        if answer is None:
            return False
        answer.add_done_callback(partial(_pass_on, future))
        return True

    def _unavailable(self, error: ConnectionLost | hiredis.ReplyError) -> StoreUnavailable:
        what = self.trouble or trouble(error, self.endpoint, doing="a read")
        if isinstance(error, hiredis.ReplyError):
            if kind_of(error) in FATAL:
                self.lose(what)
            elif what.words != self._read_trouble:
                self._read_trouble = what.words
                log.warning("a read failed, and others may: %s", what.words)
        return StoreUnavailable(what.words, retry_after_s=RETRY_AFTER_S)

    async def ping(self) -> float:
        """The round trip of a PING, in ms. Raises `StoreUnavailable`."""
        sent_ms = self._parts.clock_ms()
        try:
            await self._commands.send("PING")
        except (ConnectionLost, hiredis.ReplyError) as error:
            raise self._unavailable(error) from error
        return self._parts.clock_ms() - sent_ms

    # Its signs of life

    def tick(self, now_ms: float) -> None:
        """Look at every deadline."""
        late = now_ms - self._ticked_ms > 2 * self.tick_ms and not self._tick_was_late
        self._ticked_ms = now_ms
        self._tick_was_late = late
        if late:
            # This process stood still, and the answers may be waiting in the sockets: let the loop read them first.
            return
        limits = self._limits
        silent = self._overdue(
            self._commands.oldest_sent_ms, self._commands, limits.redis_timeout_ms, now_ms
        ) or self._overdue(self.subscriber.oldest_sent_ms, self._pubsub, limits.redis_timeout_ms, now_ms)
        if silent:
            self.lose(trouble(TimeoutError(), self.endpoint))
        elif self.canary.awaited and self._overdue(self.canary.sent_ms, self._pubsub, limits.canary_timeout_ms, now_ms):
            self.lose(
                Trouble(Kind.DEAF, f"what is published at {self.endpoint} is not heard: the canary did not come back")
            )
        else:
            if self.canary.due(now_ms):
                self._sing()
            if self._parts.channels.due(now_ms):
                self.subscriber.speak_soon()

    def _overdue(self, since_ms: float | None, connection: RespConnection, timeout_ms: float, now_ms: float) -> bool:
        if since_ms is None or now_ms - since_ms <= timeout_ms:
            return False
        if connection.behind:
            # The answer may have come and wait behind thousands of others, which this process is slow to hand on. A new
            # link would make it begin anew, with all of them, and end in the same way.
            return False
        return now_ms - connection.last_received_ms > timeout_ms or now_ms - since_ms > PATIENCE * timeout_ms

    def _sing(self) -> None:
        self.scripts.run(self.canary.send(self._parts.clock_ms()), self._sung, urgent=True)

    def _sung(self, reply: object) -> None:
        if isinstance(reply, ConnectionLost):
            return
        refused = ""
        if isinstance(reply, hiredis.ReplyError):
            refused = str(reply)
            if not refused.startswith(_REFUSED_WRITES):
                self._refused(reply)
                return
        if refused.split(" ")[0] != self.writes_refused.split(" ")[0]:
            if refused:
                log.warning("Redis at %s takes no writes: %s", self.endpoint, refused)
            else:
                log.info("Redis at %s takes writes again", self.endpoint)
        self.writes_refused = refused

    def _heard(self, payload: bytes) -> None:
        self.canary.heard(payload, self._parts.clock_ms())
        if not self._ready.done() and not self.canary.awaited:
            self._ready.set_result(None)

    # Its end

    def _refused(self, error: hiredis.ReplyError) -> None:
        self.lose(trouble(error, self.endpoint, doing="a command every link needs"))

    def _connection_lost(self, cause: BaseException | None) -> None:
        self.lose(trouble(ConnectionLost(cause), self.endpoint))

    def lose(self, why: Trouble) -> None:
        """Give the link up: both connections are cut, everybody who waits for an answer is told. Harmless if it is over
        already."""
        if self.trouble is not None:
            return
        self.trouble = why
        self._commands.fail(None)
        self._pubsub.fail(None)
        self.scripts.lose(ConnectionLost(why))
        reject(self._ready, why)
        self.lost.set_result(why)
        self.on_lost(why)


def _pass_on(future: asyncio.Future[Page], answer: asyncio.Future[Page]) -> None:
    error = answer.exception() if not answer.cancelled() else StoreUnavailable("the answer was dropped")
    if error is not None:
        reject(future, error)
    elif not future.done():
        future.set_result(answer.result())
