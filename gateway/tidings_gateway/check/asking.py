"""Asking one Redis server about itself. What it refuses to say is a fact, too."""

from __future__ import annotations

import asyncio
import ipaddress
import random
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import hiredis

from tidings.log.eventlog import new_epoch
from tidings.log.names import Names
from tidings.redis_url import parse_redis_url
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.endpoint import endpoint_of
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.locate import locator_of
from tidings_gateway.bus.resp import RespConnection
from tidings_gateway.bus.trouble import Kind, Trouble, kind_of, trouble
from tidings_gateway.check.facts import Facts
from tidings_gateway.check.permissions import TOO_MUCH, trials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidings_gateway.bus.endpoint import Endpoint
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


async def ask(settings: Settings) -> Facts:
    """All that can be seen of the server the settings name, or of the primary that their Sentinels name.

    Never raises for Redis' sake; see `Facts.trouble`. Raises `InvalidSetting`.
    """
    url = parse_redis_url(settings.redis_url)
    endpoint = endpoint_of(url)
    try:
        endpoint = await locator_of(url, timeout_ms=settings.redis_timeout_ms).locate()
    except Trouble as why:
        return Facts(**_way_in(endpoint), trouble=why.words)
    seen = _way_in(endpoint)
    timeout_s = settings.redis_timeout_ms / 1000
    try:
        async with asyncio.timeout(DEADLINE_FACTOR * timeout_s):
            async with _connection(endpoint, timeout_s) as connection:
                seen |= await _talk(connection, Names(settings.prefix), endpoint.username or "default")
            # Another one: a connection that is subscribed takes no other command.
            async with _connection(endpoint, timeout_s) as connection:
                seen["refused"] |= await _refused_subscriptions(connection, Names(settings.prefix))
    except Exception as error:  # noqa: BLE001 - put into words
        return Facts(**{**seen, "trouble": trouble(error, endpoint, doing="the check").words})
    seen |= await _canary(settings)
    return Facts(**seen)


def _way_in(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "at": str(endpoint),
        "local": endpoint.path is not None or _is_local(endpoint.host),
        "tls": endpoint.tls is not None,
        "verified": endpoint.tls is None or endpoint.tls.verify_mode is ssl.CERT_REQUIRED,
        "password": endpoint.password is not None,
    }


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@asynccontextmanager
async def _connection(endpoint: Endpoint, timeout_s: float) -> AsyncIterator[RespConnection]:
    async with asyncio.timeout(timeout_s):
        connection = await endpoint.connect(lambda: RespConnection(turn_replies=64, turn_ms=5, clock_ms=_now_ms))
    try:
        if endpoint.auth is not None:
            await connection.send(*endpoint.auth)
        yield connection
    finally:
        connection.fail(None)


def _now_ms() -> float:
    return time.monotonic() * 1000


async def _talk(connection: RespConnection, names: Names, user: str) -> dict[str, Any]:
    pong = await _try(connection, "PING")
    if isinstance(pong, hiredis.ReplyError) and kind_of(pong) is not Kind.PERMISSION:
        raise pong
    unseen: dict[str, str] = {}
    info: dict[str, str] = {}
    for section in SECTIONS:
        reply = await _try(connection, "INFO", section)
        if isinstance(reply, hiredis.ReplyError):
            unseen["INFO"] = str(reply)
            break
        info |= _fields(reply)
    config: dict[str, str] = {}
    for name in SETTINGS_OF_REDIS:
        reply = await _try(connection, "CONFIG", "GET", name)
        if isinstance(reply, hiredis.ReplyError):
            unseen["CONFIG GET"] = str(reply)
            break
        config |= dict(_pairs(reply))
    cluster: dict[str, str] = {}
    if info.get("cluster_enabled") == "1":
        cluster = _fields(await _try(connection, "CLUSTER", "INFO"))
    whoami = await _try(connection, "ACL", "WHOAMI")
    user = _text(whoami) if isinstance(whoami, (bytes, str)) else user
    refused = await _refused(connection, names)
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


async def _try(connection: RespConnection, *words: str) -> Any:
    """The reply, an error included."""
    try:
        return await connection.send(*words)
    except hiredis.ReplyError as error:
        return error


async def _refused(connection: RespConnection, names: Names) -> dict[str, str]:
    """What Tidings needs and this user may not. Other errors (full, a replica, no such script) are no refusal."""
    refused: dict[str, str] = {}
    for name, words in trials(names, _nobody()):
        reply = await _try(connection, *words)
        if _is_refusal(reply):
            refused.setdefault(name, str(reply))
    return refused


async def _refused_subscriptions(connection: RespConnection, names: Names) -> dict[str, str]:
    channel = names.channel(_nobody()).decode()
    # Each has one confirmation, which then is a reply like any other.
    replies = [(verb, await _try(connection, verb, channel)) for verb in ("SUBSCRIBE", "UNSUBSCRIBE")]
    return {verb.lower(): str(reply) for verb, reply in replies if _is_refusal(reply)}


def _nobody() -> str:
    return f"check-{new_epoch(random.SystemRandom())}"


def _is_refusal(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOPERM")


async def _too_much(connection: RespConnection, user: str) -> tuple[str, ...]:
    """Only for a user who may ask; one who may not has little."""
    found = []
    for name, words in TOO_MUCH:
        reply = await _try(connection, "ACL", "DRYRUN", user, *words)
        if isinstance(reply, bytes) and reply == b"OK":
            found.append(name)
    return tuple(found)


async def _clock(connection: RespConnection) -> tuple[float | None, float]:
    before = time.time()
    reply = await _try(connection, "TIME")
    after = time.time()
    if not isinstance(reply, list):
        return None, 0.0
    theirs = int(reply[0]) + int(reply[1]) / 1_000_000
    return (theirs - (before + after) / 2) * 1000, (after - before) * 500


async def _pings(connection: RespConnection) -> tuple[float, ...]:
    times = []
    for _ in range(PINGS):
        sent_ms = _now_ms()
        if isinstance(await _try(connection, "PING"), hiredis.ReplyError):
            return ()
        times.append(_now_ms() - sent_ms)
    return tuple(sorted(times))


class _Nobody:
    """Hears what the bus hears, which here is only the canary's own business."""

    def record_received(self, channel: bytes, payload: bytes) -> None: ...
    def channel_on(self, channel: bytes, generation: int) -> None: ...
    def channel_off(self, channel: bytes) -> None: ...
    def link_lost(self) -> None: ...

    def last_active(self, channel: bytes) -> int:  # noqa: ARG002 - it has no channels
        return 0


async def _canary(settings: Settings) -> dict[str, Any]:
    """The gateway's own link, opened once: it proves the way in both directions, or says what is wrong."""
    limits = BusLimits(redis_timeout_ms=settings.redis_timeout_ms, canary_timeout_ms=settings.canary_timeout_ms)
    bus = Bus(settings.redis_url, Names(settings.prefix), _Nobody(), limits)
    await bus.start()
    try:
        async with asyncio.timeout(1.5 * settings.redis_timeout_ms / 1000):
            while not bus.up and not bus.troubles:  # noqa: ASYNC110 - two plain fields
                await asyncio.sleep(0.005)
    except TimeoutError:
        pass
    finally:
        seen = {"canary_ms": bus.lag_ms, "canary_trouble": bus.why_down}
        await bus.close()
    return seen


def _fields(reply: Any) -> dict[str, str]:
    """`name:value` lines, as INFO gives them."""
    lines = _text(reply).splitlines() if isinstance(reply, (bytes, str)) else []
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _pairs(reply: Sequence[Any]) -> Iterator[tuple[str, str]]:
    flat = [_text(item) for item in reply]
    return zip(flat[::2], flat[1::2], strict=True)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
