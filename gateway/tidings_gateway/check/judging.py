"""Facts in, findings out: every topic in turn. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings_gateway.check import access, durability, link, memory, ours, server
from tidings_gateway.check.facts import Facts
from tidings_gateway.check.finding import Finding, fail

if TYPE_CHECKING:
    from tidings_gateway.settings import Settings


def judge(facts: Facts, settings: Settings, *, users: int, event_bytes: int) -> list[Finding]:
    """The worst first; among equals in the order of the topics. `users`: connected to one gateway at a time."""
    if facts.trouble:
        words = f"It cannot be asked anything: {facts.trouble}."
        found = [
            fail("connection", words, "TIDINGS_REDIS_URL, the network, or Redis' own log"),
            *access.judge(facts, ""),
        ]
        found = [finding for finding in found if finding.topic in ("connection", "encryption")]
    else:
        failover = "resync" if settings.failover == "resync" else "trust"
        found = [
            *server.judge(facts),
            *memory.judge(facts, users),
            *durability.judge(facts, failover),
            *link.judge(facts, users, event_bytes, settings.redis_timeout_ms),
            *access.judge(facts, settings.prefix),
        ]
    found += ours.judge(settings)
    return sorted(found, key=lambda finding: -finding.level)
