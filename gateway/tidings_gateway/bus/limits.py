"""What the bus may use: times and sizes, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BusLimits:
    """Every wait, queue and turn of the bus is bounded by one of these. Times in ms."""

    redis_timeout_ms: int = 2_000
    """An unanswered command older than this means the link is dead. Also the deadline for opening a link."""

    canary_interval_ms: int = 2_000
    canary_timeout_ms: int = 4_000
    """A canary not heard by then means the link is deaf, whatever the connections look like."""

    linger_ms: int = 5_000
    """A channel stays subscribed this long after nobody wants it: a page reload costs Redis nothing."""

    subscribe_batch: int = 512
    """Channels in one SUBSCRIBE. One command is one turn of Redis' only thread and one of ours."""

    reads_outstanding: int = 512
    """Log reads sent and not yet answered. With pages of 128 KiB, Redis holds at most 64 MiB of answers for us."""

    reads_queued: int = 32_768
    """Reads that wait their turn behind those: after a lost link every session of the gateway asks at once."""

    turn_records: int = 256
    """Messages handed on before everybody else on the event loop gets a turn."""

    turn_ms: float = 2.0
    """The same as time, for messages with many receivers."""

    turn_pages: int = 16
    """Log pages handed on in one turn. A page of 128 entries is some ms of work for the session that gets it."""
