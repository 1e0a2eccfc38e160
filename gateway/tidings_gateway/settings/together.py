"""Settings that are each right and contradict each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidings_gateway.core.frames import EVENT_OVERHEAD_BYTES

if TYPE_CHECKING:
    from tidings_gateway.settings.table import Settings

_AT_MOST = (
    ("page_events", "queue_events", "a page of the log must fit in a session's queue"),
    ("max_event_bytes", "page_bytes", "one event must fit in a page"),
    ("max_event_bytes", "held_bytes", "one event must fit among those held"),
    ("page_events", "log_max_events", "a page is a part of the log"),
    ("log_ttl_s", "meta_ttl_s", "what proves a position must outlive the events"),
    ("heartbeat_timeout_ms", "heartbeat_ms", "an answer must be due before the next heartbeat"),
)


def contradictions(settings: Settings) -> Iterator[str]:
    """One sentence per contradiction, naming both variables and their values."""
    for small, large, why in _AT_MOST:
        low, high = getattr(settings, small), getattr(settings, large)
        if low > high:
            yield f"TIDINGS_{small.upper()} ({low}) is more than TIDINGS_{large.upper()} ({high}): {why}"
    page = settings.page_bytes + settings.page_events * EVENT_OVERHEAD_BYTES
    if settings.write_high_water_bytes + page > settings.queue_bytes:
        # A transport below its high-water mark announces nothing when it empties. If a page did not fit beside what it
        # may hold, a session that caught up would wait for ever for the room to read the next one.
        yield (
            f"TIDINGS_WRITE_HIGH_WATER_BYTES ({settings.write_high_water_bytes}) and one page, "
            f"TIDINGS_PAGE_BYTES ({settings.page_bytes}) with {EVENT_OVERHEAD_BYTES} more for each of "
            f"TIDINGS_PAGE_EVENTS ({settings.page_events}), are more than "
            f"TIDINGS_QUEUE_BYTES ({settings.queue_bytes}), and both must fit in a session's queue"
        )
    symmetric = any(name.startswith("HS") for name in settings.jwt_algorithms)
    if settings.jwt_secret and not symmetric:
        yield "TIDINGS_JWT_SECRET is set but TIDINGS_JWT_ALGORITHMS allows none of HS256, HS384, HS512"
    if settings.jwt_public_key and all(name.startswith("HS") for name in settings.jwt_algorithms):
        yield "TIDINGS_JWT_PUBLIC_KEY is set but TIDINGS_JWT_ALGORITHMS allows no algorithm of a public key"
