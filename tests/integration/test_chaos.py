"""The short version of `make chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.plan import Plan
from tests.chaos.run import run


@pytest.mark.timeout(180)
async def test_nothing_is_lost_repeated_or_resynced_under_constant_damage() -> None:
    """Two gateways, each once drained and once killed, every client cut every 1 to 5 s, 500 events/s for 15 s: every
    acknowledged event reaches every client of its user once, in order, and nobody is told to resync."""
    report = await run(Plan(seconds=15, seed=15, recovery_s=30))
    assert report.ok, f"\n{report}"
    assert report.verdict.counts["acknowledged"] > 1500, f"the machine was too slow for this to mean much\n{report}"


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_same_for_a_minute(seed: int) -> None:
    """`make chaos` with fixed seeds."""
    report = await run(Plan(seconds=60, seed=seed))
    assert report.ok, f"\n{report}"


@pytest.mark.timeout(180)
async def test_nothing_is_lost_or_repeated_while_redis_is_struck() -> None:
    """Killed, frozen, paused, full, its subscriptions cut and its data flushed, each once while 60 clients run: what
    was acknowledged is received or covered by a resync, and everybody has live events 5 s after each
    (centrifugal/centrifugo PR #163, redis/redis-py #2089)."""
    plan = Plan(
        seconds=30,
        clients=60,
        rate=150,
        redis=("kill", "freeze", "pause", "pubsub-kill", "flush", "oom"),
        strike_s=(0.5, 2.5),
        calm_s=3.5,
        seed=7,
        recovery_s=30,
    )
    report = await run(plan)
    assert report.ok, f"\n{report}"
    assert report.verdict.counts["acknowledged"] > 1000, f"the machine was too slow for this to mean much\n{report}"


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
async def test_the_same_with_longer_strikes(seed: int) -> None:
    """`make chaos REDIS=…` with fixed seeds; of a Redis that writes through, no strike but a flush costs a resync."""
    plan = Plan(seconds=90, redis=("kill", "freeze", "pause", "pubsub-kill", "oom"), seed=seed)
    report = await run(plan)
    assert report.ok, f"\n{report}"
    report = await run(Plan(seconds=60, redis=("flush", "kill"), seed=seed))
    assert report.ok, f"\n{report}"


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
async def test_failovers_among_the_other_strikes(seed: int) -> None:
    """`make chaos REDIS=kill,freeze,pubsub-kill,failover,flush,oom`: a primary and a replica under three Sentinels.
    What was acknowledged is received, or a resync covers it."""
    report = await run(Plan(seconds=90, redis=("kill", "freeze", "pubsub-kill", "failover", "flush", "oom"), seed=seed))
    assert report.ok, f"\n{report}"
