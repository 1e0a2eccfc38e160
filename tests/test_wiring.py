"""What `tidings serve` and `tidings tail` are made of."""

from __future__ import annotations

from typing import Literal

import pytest

from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.cluster import ClusterBus
from tidings_gateway.settings import Settings
from tidings_gateway.wiring import create_bus, create_hub, failover, session_limits


@pytest.mark.parametrize(
    ("url", "setting", "meant"),
    [
        ("redis://cache", "auto", "trust"),
        ("unix:///run/valkey.sock", "auto", "trust"),
        ("redis+sentinel://a,b/orders", "auto", "resync"),
        ("redis+cluster://a,b", "auto", "resync"),
        ("redis://cache", "resync", "resync"),
        ("redis+sentinel://a,b/orders", "trust", "trust"),
    ],
)
def test_what_auto_means(url: str, setting: Literal["auto", "trust", "resync"], meant: str) -> None:
    """Where a replica may take over, what it lacks is not taken for nothing, unless the operator knows better."""
    assert failover(Settings(redis_url=url, failover=setting)) == meant


@pytest.mark.parametrize(
    ("url", "kind"),
    [("redis://cache", Bus), ("redis+sentinel://a,b/orders", Bus), ("redis+cluster://a,b", ClusterBus)],
)
def test_the_bus_is_of_the_kind_that_the_url_names(url: str, kind: type) -> None:
    """One server and Sentinels have one primary; a Cluster has several."""
    settings = Settings(redis_url=url)
    assert type(create_bus(settings, create_hub(settings))) is kind


def test_a_session_has_the_bounds_that_were_set() -> None:
    """Each from its own setting."""
    settings = Settings(queue_events=777, queue_bytes=1_048_576, failover_refetch_ms=9)
    limits = session_limits(settings)
    assert (limits.queue_events, limits.queue_bytes, limits.failover_refetch_ms) == (777, 1_048_576, 9)
    assert (limits.page_events, limits.page_bytes) == (settings.page_events, settings.page_bytes)
