"""Facts in, findings out: every topic in turn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tidings_gateway.check import access, durability, link, memory, ours, server, topology
from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, fail
from tidings_gateway.check.topology import Topology
from tidings_gateway.wiring import failover

if TYPE_CHECKING:
    from tidings_gateway.settings import Settings


def judge(
    servers: Sequence[Facts],
    settings: Settings,
    *,
    users: int,
    event_bytes: int,
    among: Topology | None = None,
) -> list[Finding]:
    """The worst first; among equals in the order of the topics. `servers`: the primaries; `among`: how they were found.
    `users`: connected to one gateway at a time."""
    among = among or Topology()
    found = list(topology.judge(among))
    each = [_server(facts, settings, among, users, event_bytes) for facts in servers]
    found += _together([facts.at for facts in servers], each)
    found += ours.judge(settings)
    return sorted(found, key=lambda finding: -finding.level)


def _server(facts: Facts, settings: Settings, among: Topology, users: int, event_bytes: int) -> list[Finding]:
    sharded = among.kind == "cluster"
    if facts.trouble:
        words = f"It cannot be asked anything: {facts.trouble}."
        told = [fail("connection", words, "TIDINGS_REDIS_URL, the network, or Redis' own log")]
        return told + [finding for finding in access.judge(facts, settings.prefix) if finding.topic == "encryption"]
    return [
        *server.judge(facts, sharded=sharded),
        *memory.judge(facts, users),
        *durability.judge(facts, failover(settings)),
        *link.judge(facts, users, event_bytes, settings.redis_timeout_ms),
        *access.judge(facts, settings.prefix, sharded=sharded),
    ]


def _together(names: Sequence[str], found: Sequence[Sequence[Finding]]) -> list[Finding]:
    """What is true of all servers is said once; what is not, with the server's name."""
    if len(found) == 1:
        return list(found[0])
    common = {finding for finding in (found[0] if found else ()) if all(finding in others for others in found)}
    merged = [finding for finding in (found[0] if found else ()) if finding in common]
    for name, findings in zip(names, found, strict=True):
        merged += [replace(finding, words=f"{name}: {finding.words}") for finding in findings if finding not in common]
    return merged
