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
