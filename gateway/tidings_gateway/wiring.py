"""Settings in, the parts out that both `tidings serve` and `tidings tail` are made of."""

from __future__ import annotations

import random

from tidings.log.eventlog import Failover
from tidings.log.names import Names
from tidings.redis_url import parse_redis_url
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.cluster import ClusterBus
from tidings_gateway.bus.limits import BusLimits
from tidings_gateway.bus.subscriber import BusListener
from tidings_gateway.hub import Hub
from tidings_gateway.session import Limits
from tidings_gateway.settings import Settings
from tidings_gateway.telemetry.counts import Counts


def failover(settings: Settings) -> Failover:
    """What `auto` means for this Redis: where a replica may take over, what it lacks must not be taken for nothing."""
    if settings.failover != "auto":
        return settings.failover
    return "trust" if parse_redis_url(settings.redis_url).kind == "single" else "resync"


def create_bus(settings: Settings, listener: BusListener) -> Bus | ClusterBus:
    """Not yet started. Raises `InvalidSetting` for a Redis URL that cannot be used."""
    kind = ClusterBus if parse_redis_url(settings.redis_url).kind == "cluster" else Bus
    return kind(
        settings.redis_url,
        Names(settings.prefix),
        listener,
        BusLimits(
            redis_timeout_ms=settings.redis_timeout_ms,
            canary_interval_ms=settings.canary_interval_ms,
            canary_timeout_ms=settings.canary_timeout_ms,
            linger_ms=settings.subscription_linger_ms,
            subscribe_batch=settings.subscribe_batch,
        ),
        meta_ttl_s=settings.meta_ttl_s,
        failover=failover(settings),
    )


def create_hub(settings: Settings, counts: Counts | None = None) -> Hub:
    """Not yet attached to a bus."""
    return Hub(
        Names(settings.prefix),
        max_event_bytes=settings.max_event_bytes,
        counts=counts,
        heal_reads=settings.heal_reads,
    )


def session_limits(settings: Settings) -> Limits:
    return Limits(
        queue_events=settings.queue_events,
        queue_bytes=settings.queue_bytes,
        page_events=settings.page_events,
        page_bytes=settings.page_bytes,
        rng=random.SystemRandom(),
        failover_refetch_ms=settings.failover_refetch_ms,
    )
