"""Asking one Redis server about itself. What it refuses to say is a fact, too."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import hiredis

from tidings.log.eventlog import READ, new_epoch
from tidings.log.names import Names
from tidings_gateway.bus.canary import CANARY, canary_name
from tidings_gateway.bus.channels import Channels
from tidings_gateway.bus.clock import monotonic_ms
from tidings_gateway.bus.info import info_fields
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.link import Link, LinkParts
from tidings_gateway.bus.resp import RespConnection
from tidings_gateway.bus.trouble import Kind, Trouble, kind_of, trouble
from tidings_gateway.check.conversation import attempt, connected, text
from tidings_gateway.check.facts import Facts
from tidings_gateway.check.locating import locate
from tidings_gateway.check.permissions import TOO_MUCH, trials

if TYPE_CHECKING:
    from tidings.redis_url import RedisUrl
    from tidings_gateway.bus.endpoint import Endpoint
    from tidings_gateway.check.topology import Topology
    from tidings_gateway.settings import Settings

PINGS = 50
DEADLINE_FACTOR = 5
"""The whole conversation may take that many times the Redis timeout."""
SECTIONS = ("server", "clients", "memory", "persistence", "stats", "replication", "cluster")
SETTINGS_OF_REDIS = (
    "maxmemory-policy",
    "save",
    "appendfsync",
    "client-output-buffer-limit",
    "stream-node-max-bytes",
    "min-replicas-to-write",
    "min-slaves-to-write",
)


async def look(url: RedisUrl, settings: Settings) -> tuple[Topology, list[Facts]]:
    """Who is there, and what can be seen of each primary."""
    among, endpoints = await locate(url, settings.redis_timeout_ms / 1000)
    # One after the other: the latency of one is not to be measured while others are asked.
    return among, [await ask(endpoint, settings, sharded=among.kind == "cluster") for endpoint in endpoints]


async def ask(endpoint: Endpoint, settings: Settings, *, sharded: bool = False) -> Facts:
    """All that can be seen of the server at `endpoint`. `sharded`: it is a node of a Cluster, about which a canary for
    one server says nothing. Never raises for Redis' sake; see `Facts.trouble`."""
    seen: dict[str, Any] = {
        "at": str(endpoint),
        "local": endpoint.path is not None or _is_local(endpoint.host),
        "tls": endpoint.tls is not None,
        "verified": endpoint.tls is None or endpoint.tls.verify_mode is ssl.CERT_REQUIRED,
        "password": endpoint.password is not None,
    }
    timeout_s = settings.redis_timeout_ms / 1000
    try:
        async with asyncio.timeout(DEADLINE_FACTOR * timeout_s):
            async with connected(endpoint) as connection:
                seen |= await _talk(connection, Names(settings.prefix), endpoint.username or "default", sharded=sharded)
            # Another one: a connection that is subscribed takes no other command.
            async with connected(endpoint) as connection:
                seen["refused"] |= await _refused_subscriptions(connection, Names(settings.prefix), sharded=sharded)
    except Exception as error:  # noqa: BLE001 - put into words
        return Facts(**{**seen, "trouble": trouble(error, endpoint, doing="the check").words})
    if not sharded:
        seen |= await _canary(endpoint, settings)
    return Facts(**seen)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _talk(connection: RespConnection, names: Names, user: str, *, sharded: bool) -> dict[str, Any]:
    pong = await attempt(connection, "PING")
    if isinstance(pong, hiredis.ReplyError) and kind_of(pong) is not Kind.PERMISSION:
        raise pong
    unseen: dict[str, str] = {}
    info: dict[str, str] = {}
    for section in SECTIONS:
        reply = await attempt(connection, "INFO", section)
        if isinstance(reply, hiredis.ReplyError):
            unseen["INFO"] = str(reply)
            break
        info |= info_fields(reply)
    config: dict[str, str] = {}
    for name in SETTINGS_OF_REDIS:
        reply = await attempt(connection, "CONFIG", "GET", name)
        if isinstance(reply, hiredis.ReplyError):
            unseen["CONFIG GET"] = str(reply)
            break
        config |= dict(_pairs(reply))
    cluster: dict[str, str] = {}
    if info.get("cluster_enabled") == "1":
        cluster = info_fields(await attempt(connection, "CLUSTER", "INFO"))
    whoami = await attempt(connection, "ACL", "WHOAMI")
    user = text(whoami) if isinstance(whoami, (bytes, str)) else user
    refused = await _refused(connection, names, sharded=sharded)
    too_much = await _too_much(connection, user)
    ahead_ms, doubt_ms = await _clock(connection)
    return {
        "info": info,
        "config": config,
        "cluster": cluster,
        "unseen": unseen,
        "user": user,
        "refused": refused,
        "too_much": too_much,
        "clock_ahead_ms": ahead_ms,
        "clock_doubt_ms": doubt_ms,
        "pings_ms": await _pings(connection),
    }


async def _refused(connection: RespConnection, names: Names, *, sharded: bool) -> dict[str, str]:
    """What Tidings needs and this user may not. Other errors (full, a replica, no such script) are no refusal."""
    refused: dict[str, str] = {}
    for name, words in trials(names, _nobody(), sharded=sharded):
        reply = await attempt(connection, *words)
        if _is_refusal(reply):
            refused.setdefault(name, str(reply))
    return refused


async def _refused_subscriptions(connection: RespConnection, names: Names, *, sharded: bool) -> dict[str, str]:
    channel = names.channel(_nobody()).decode()
    # Each has one confirmation, which then is a reply like any other.
    verbs = ("SSUBSCRIBE", "SUNSUBSCRIBE") if sharded else ("SUBSCRIBE", "UNSUBSCRIBE")
    replies = [(verb, await attempt(connection, verb, channel)) for verb in verbs]
    return {verb.lower(): str(reply) for verb, reply in replies if _is_refusal(reply)}


def _nobody() -> str:
    return f"check-{new_epoch(random.SystemRandom())}"


def _is_refusal(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOPERM")


async def _too_much(connection: RespConnection, user: str) -> tuple[str, ...]:
    """Only for a user who may ask; one who may not has little."""
    found = []
    for name, words in TOO_MUCH:
        reply = await attempt(connection, "ACL", "DRYRUN", user, *words)
        if isinstance(reply, bytes) and reply == b"OK":
            found.append(name)
    return tuple(found)


async def _clock(connection: RespConnection) -> tuple[float | None, float]:
    before = time.time()
    reply = await attempt(connection, "TIME")
    after = time.time()
    if not isinstance(reply, list):
        return None, 0.0
    theirs = int(reply[0]) + int(reply[1]) / 1_000_000
    return (theirs - (before + after) / 2) * 1000, (after - before) * 500


async def _pings(connection: RespConnection) -> tuple[float, ...]:
    times = []
    for _ in range(PINGS):
        sent_ms = monotonic_ms()
        if isinstance(await attempt(connection, "PING"), hiredis.ReplyError):
            return ()
        times.append(monotonic_ms() - sent_ms)
    return tuple(sorted(times))


class _Nobody:
    """Hears what the link hears, which here is only the canary's own business."""

    def record_received(self, channel: bytes, payload: bytes) -> None: ...
    def channel_on(self, channel: bytes, generation: int) -> None: ...
    def channel_off(self, channel: bytes) -> None: ...
    def link_lost(self) -> None: ...
    def last_active(self, channel: bytes) -> int:  # noqa: ARG002 - there is none
        return 0


async def _canary(endpoint: Endpoint, settings: Settings) -> dict[str, Any]:
    """A gateway's own link, opened once: it proves the way in both directions, or says what is wrong."""
    rng = random.SystemRandom()
    gateway_id = new_epoch(rng)
    limits = BusLimits(redis_timeout_ms=settings.redis_timeout_ms, canary_timeout_ms=settings.canary_timeout_ms)
    parts = LinkParts(
        gateway_id=gateway_id,
        canary_name=lambda: canary_name(settings.prefix, gateway_id),
        scripts=(READ, CANARY),
        channels=Channels(linger_ms=limits.linger_ms, batch=limits.subscribe_batch),
        listener=_Nobody(),
        limits=limits,
        next_generation=lambda: 1,
        clock_ms=monotonic_ms,
        rng=rng,
    )
    try:
        link = await Link.open(endpoint, parts)
    except Trouble as why:
        return {"canary_trouble": why.words}
    link.lose(Trouble(Kind.STOPPED, "the check is over"))
    return {"canary_ms": link.canary.lag_ms}


def _pairs(reply: Sequence[Any]) -> Iterator[tuple[str, str]]:
    flat = [text(item) for item in reply]
    return zip(flat[::2], flat[1::2], strict=True)
