"""What a scrape reads: the state of this moment, and what was counted so far.

States are looked up in the objects that have them, when asked: nothing is incremented here and decremented there, so
no path out of a connection, however rare, can leave a gauge wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from tidings_gateway.telemetry import metrics as m

if TYPE_CHECKING:
    from tidings_gateway.bus.bus import Bus
    from tidings_gateway.bus.cluster import ClusterBus
    from tidings_gateway.gateway import Gateway
    from tidings_gateway.server.draining import Draining
    from tidings_gateway.telemetry.exposition import Reading


def build_version() -> str:
    try:
        return version("tidings")
    except PackageNotFoundError:
        return "unknown"


class Readings:
    """Called in the event loop. `ready` is what /readyz would say. Walks all connections: some ms for 20,000."""

    def __init__(self, gateway: Gateway, bus: Bus | ClusterBus, draining: Draining, ready: Callable[[], bool]) -> None:
        self._gateway = gateway
        self._bus = bus
        self._draining = draining
        self._ready = ready
        self._version = build_version()

    def __call__(self) -> Iterator[Reading]:
        yield from self._connections()
        yield from self._counted()
        yield from self._redis()
        yield m.PHASE, self._draining.phase.value
        yield m.READY, self._ready()
        yield m.BUILD_INFO, {self._version: 1}

    def _connections(self) -> Iterator[Reading]:
        open_now: Counter[str] = Counter()
        queued_bytes = 0
        for connection in self._gateway.connections:
            open_now[connection.transport] += 1
            queued_bytes += connection.queued_bytes
        yield m.CONNECTIONS, open_now
        yield m.CONNECTIONS_MAX, self._gateway.settings.max_connections
        yield m.OUTBOX_BYTES, queued_bytes

    def _counted(self) -> Iterator[Reading]:
        counts = self._gateway.hub.counts
        yield m.OPENED, counts.opened
        yield m.CLOSED, counts.closed
        yield m.REFUSED, counts.refused
        yield m.RECEIVED, {"durable": counts.received_durable, "ephemeral": counts.received_ephemeral}
        yield m.SENT, {"durable": counts.sent_durable, "ephemeral": counts.sent_ephemeral}
        yield m.COALESCED, counts.coalesced
        yield m.DROPPED, {"queue_full": counts.queue_full, "unreadable": counts.unreadable}
        yield m.SKIPPED, counts.skipped
        yield m.FELL_BEHIND, counts.fell_behind
        yield m.RESUMES, counts.resumes
        yield m.RESYNCS, counts.resyncs
        yield m.PAGES, counts.pages
        yield m.PAGES_FAILED, counts.pages_failed
        yield m.DELIVERY, counts.delivery
        yield m.EVENT_AGE, counts.age
        yield m.FROM_THE_FUTURE, counts.from_the_future
        yield m.LOOP_LAG, counts.loop_lag
        yield m.PUBLISH_REQUESTS, counts.publish_requests
        yield m.PUBLISH_EVENTS, counts.publish_events

    def _redis(self) -> Iterator[Reading]:
        bus = self._bus
        yield m.REDIS_UP, bus.whole
        yield m.WRITES_REFUSED, bool(bus.writes_refused)
        yield m.LAST_HEARD, bus.silent_s
        yield m.BUS_LAG, math.nan if bus.lag_ms is None else bus.lag_ms / 1000
        yield m.GENERATION, bus.generation
        yield m.RESUBSCRIBES, bus.relinks
        yield m.LOST, bus.troubles
        yield m.CHANNELS, bus.channels
        yield m.READS, {"outstanding": bus.reads_outstanding, "queued": bus.reads_queued}
