"""The bounds of the bus: the ones that are promised, and that they make sense together."""

from __future__ import annotations

from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.primary import RETRY_CAP_MS


def test_the_promised_times() -> None:
    """A canary every 2 s that must be heard within 4 s, and a return within 5 s of Redis' own: the wait for the next
    attempt and a whole opening must fit into that."""
    limits = BusLimits()
    assert (limits.canary_interval_ms, limits.canary_timeout_ms) == (2_000, 4_000)
    assert RETRY_CAP_MS + limits.redis_timeout_ms < 5_000


def test_a_gateway_full_of_sessions_can_ask_at_once() -> None:
    """After a lost link every session reads its log: the queue holds 20,000 of them, while Redis holds at most 64 MiB
    of answers for us."""
    limits = BusLimits()
    assert limits.reads_outstanding + limits.reads_queued >= 20_000
    assert limits.reads_outstanding * 131_072 <= 64 * 1024 * 1024
    assert limits.subscribe_batch == 512
