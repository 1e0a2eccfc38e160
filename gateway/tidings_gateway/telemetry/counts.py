"""What a gateway counts: plain numbers on one object, read when somebody asks for them.

Counting stands on the way of every event, and must cost nothing beside it: an addition to an attribute, no lock, no
label look-up. What can be computed when asked (how many connections are open, how many bytes wait) is not counted at
all, and so cannot drift (widgrensit/asobi #492, soketi/soketi PR #1195).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from tidings_gateway.core.closing import CLOSES, Close
from tidings_gateway.telemetry.metrics import DELIVERY_BOUNDS_S, LAG_BOUNDS_S, OTHER, TRANSPORTS

_KNOWN: dict[int, list[str]] = {}
for _row in CLOSES:
    _KNOWN.setdefault(_row.code, []).append(_row.reason)


class Histogram:
    """Observations by upper bound. One `observe` is a search among a dozen numbers and two additions."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Per bound, not yet summed up; the last is of those above all bounds."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Counts:
    """One per gateway. Owned by the event loop. The keys of its `Counter`s are words of ours, never a stranger's."""

    __slots__ = (
        "age",
        "closed",
        "coalesced",
        "delivery",
        "fell_behind",
        "from_the_future",
        "loop_lag",
        "opened",
        "pages",
        "pages_failed",
        "publish_events",
        "publish_requests",
        "queue_full",
        "received_durable",
        "received_ephemeral",
        "refused",
        "resumes",
        "resyncs",
        "sent_durable",
        "sent_ephemeral",
        "skipped",
        "unreadable",
    )

    def __init__(self) -> None:
        self.received_durable = 0
        self.received_ephemeral = 0
        self.sent_durable = 0
        self.sent_ephemeral = 0
        self.coalesced = 0
        self.queue_full = 0
        """Ephemeral events that found no room."""
        self.unreadable = 0
        """Channel messages of no known shape. They are somebody else's: nothing is lost by dropping them."""
        self.skipped = 0
        """Entries found in Redis that could not be delivered; a `skip` stood in their place."""
        self.fell_behind = 0
        self.pages = 0
        self.pages_failed = 0
        self.from_the_future = 0
        self.opened: Counter[str] = Counter()
        # From 0: a rate over a counter that appears with its first value would not see that value.
        self.closed: Counter[tuple[str, str, str]] = Counter(
            {(transport, str(row.code), row.reason): 0 for transport in TRANSPORTS for row in CLOSES}
        )
        self.refused: Counter[str] = Counter()
        self.resumes: Counter[str] = Counter()
        self.resyncs: Counter[str] = Counter()
        self.publish_requests: Counter[str] = Counter()
        self.publish_events: Counter[str] = Counter()
        self.delivery = Histogram(DELIVERY_BOUNDS_S)
        self.age = Histogram(LAG_BOUNDS_S)
        self.loop_lag = Histogram(LAG_BOUNDS_S)

    def close(self, transport: str, code: int, row: Close) -> None:
        """A connection ended with `code`; `row` is why, if we ended it. A code of the client's own invention counts as
        `other`."""
        reasons = _KNOWN.get(code)
        if reasons is None:
            self.closed[transport, OTHER, ""] += 1
        elif row.code == code:
            self.closed[transport, str(code), row.reason] += 1
        else:
            self.closed[transport, str(code), reasons[0] if len(reasons) == 1 else ""] += 1

    def event_age(self, age_s: float) -> None:
        """By the publisher's clock and ours, so it may be negative."""
        if age_s < 0:
            self.from_the_future += 1
            age_s = 0.0
        self.age.observe(age_s)
