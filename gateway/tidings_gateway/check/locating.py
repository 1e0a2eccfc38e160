"""Asking Sentinels, or nodes of a Cluster, where the primaries are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import hiredis

from tidings.publishing.slots import parse_slots
from tidings.redis_url import Address
from tidings_gateway.bus.endpoint import Endpoint, endpoint_of, sentinels_of
from tidings_gateway.bus.info import info_fields
from tidings_gateway.bus.sentinel import Sentinels
from tidings_gateway.bus.trouble import Trouble, trouble
from tidings_gateway.check.conversation import attempt, connected, text
from tidings_gateway.check.topology import SentinelFacts, Topology

if TYPE_CHECKING:
    from tidings.redis_url import RedisUrl


async def locate(url: RedisUrl, timeout_s: float) -> tuple[Topology, list[Endpoint]]:
    """Who is there, and the primaries to be asked further. Never raises for Redis' sake; see `Topology.trouble`."""
    if url.kind == "sentinel":
        return await _by_sentinels(url, timeout_s)
    if url.kind == "cluster":
        return await _by_nodes(url, timeout_s)
    return Topology(), [endpoint_of(url)]


async def _by_sentinels(url: RedisUrl, timeout_s: float) -> tuple[Topology, list[Endpoint]]:
    asked = (_sentinel(endpoint, url.service or "", timeout_s) for endpoint in sentinels_of(url))
    facts = tuple(await asyncio.gather(*asked))
    service = url.service or ""
    try:
        # The one a gateway would go to: when Sentinels disagree, that is not the one named first.
        primary = await Sentinels(url, timeout_ms=1000 * timeout_s).locate()
    except Trouble:
        return Topology("sentinel", service, facts, trouble=f"No Sentinel says where {service} is"), []
    return Topology("sentinel", service, facts), [primary]


async def _sentinel(endpoint: Endpoint, service: str, timeout_s: float) -> SentinelFacts:
    at = str(endpoint)
    try:
        async with asyncio.timeout(timeout_s), connected(endpoint) as connection:
            reply = await attempt(connection, "SENTINEL", "MASTER", service)
    except Exception as error:  # noqa: BLE001 - put into words
        return SentinelFacts(at, f"The Sentinel cannot be asked: {trouble(error, endpoint, doing='the check').words}")
    if isinstance(reply, hiredis.ReplyError):
        return SentinelFacts(at, f"The Sentinel {at} does not say where {service} is: {reply}")
    told = _pairs(reply)
    return SentinelFacts(
        at,
        primary=str(Address(told["ip"], int(told["port"]))),
        flags=tuple(told.get("flags", "").split(",")),
        quorum=int(told.get("quorum", "0")),
        sentinels=int(told.get("num-other-sentinels", "0")) + 1,
        replicas=int(told.get("num-slaves", "0")),
    )


async def _by_nodes(url: RedisUrl, timeout_s: float) -> tuple[Topology, list[Endpoint]]:
    words = []
    for address in url.addresses:
        endpoint = endpoint_of(url, address)
        try:
            async with asyncio.timeout(timeout_s), connected(endpoint) as connection:
                # Nobody but this check needs it, so a user may lack it.
                info = info_fields(await attempt(connection, "CLUSTER", "INFO"))
                slots = parse_slots(await connection.send("CLUSTER", "SLOTS"), address)
        except Exception as error:  # noqa: BLE001 - put into words
            words.append(trouble(error, endpoint, doing="the check").words)
            continue
        shards = {str(found.primary): len(found.nodes) - 1 for found in slots.ranges}
        primaries = dict.fromkeys(found.primary for found in slots.ranges)
        return Topology("cluster", cluster=info, shards=shards), [endpoint_of(url, primary) for primary in primaries]
    return Topology("cluster", trouble=f"No node of the Cluster answers: {'; '.join(words)}"), []


def _pairs(reply: Any) -> dict[str, str]:
    flat = [text(item) for item in reply]
    return dict(zip(flat[::2], flat[1::2], strict=True))
