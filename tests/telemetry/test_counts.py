"""Counting: right, bounded, and cheap."""

from __future__ import annotations

import random
import timeit

from tests.support.fakes import entry
from tidings.log.names import Names
from tidings_gateway.core.closing import CLOSES, DRAINING, NORMAL, TOO_SLOW
from tidings_gateway.core.feed import Feed
from tidings_gateway.core.frames import event_frame
from tidings_gateway.hub import Hub
from tidings_gateway.session import Limits, Session
from tidings_gateway.telemetry.counts import Counts, Histogram


def test_an_observation_falls_under_its_bound() -> None:
    """A bound includes itself, as `le` says; beyond all bounds there is one more."""
    histogram = Histogram((0.1, 1.0))
    for value in (0.0, 0.1, 0.2, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 8.3


def test_a_close_is_counted_under_its_code_and_our_reason() -> None:
    """The reason is ours where we ended it; a code of one meaning has it; others have none."""
    counts = Counts()
    before = set(counts.closed)
    counts.close("websocket", 1013, TOO_SLOW)
    counts.close("websocket", 1013, NORMAL)  # the client's own, and 1013 has three meanings
    counts.close("websocket", 1006, DRAINING)  # gone before our Close was out
    counts.close("websocket", 1002, NORMAL)  # by the socket, which has no row
    told = {key: number for key, number in counts.closed.items() if number}
    assert told == {
        ("websocket", "1013", "too slow"): 1,
        ("websocket", "1013", ""): 1,
        ("websocket", "1006", ""): 1,
        ("websocket", "1002", "protocol error"): 1,
    }
    assert before == {("websocket", str(row.code), row.reason) for row in CLOSES}


def test_a_stranger_s_close_codes_make_one_series() -> None:
    """3000 to 4999 are the client's to choose from."""
    counts = Counts()
    before = len(counts.closed)
    for code in range(3000, 5000):
        counts.close("websocket", code, NORMAL)
    assert counts.closed["websocket", "other", ""] > 1900
    assert len(counts.closed) <= before + len(CLOSES) + 1


def test_an_event_from_the_future_is_told_apart() -> None:
    """Two clocks: a negative age is no age."""
    counts = Counts()
    counts.event_age(-3.0)
    counts.event_age(0.3)
    assert counts.from_the_future == 1
    assert counts.age.total == 0.3


class _Sink:
    """Takes everything, and does about as much as the cheapest transport must."""

    paused = False

    def __init__(self) -> None:
        self.written = bytearray()

    def send(self, frame: object) -> None:
        self.written += frame.websocket()  # type: ignore[attr-defined]
        del self.written[:]

    def buffered(self) -> int:
        return 0


def test_counting_costs_next_to_nothing() -> None:
    """One delivery, from the hub's call to a transport that costs nothing: counting is less than a quarter of even
    that. (The `send()` that follows in truth costs twenty times more.) prometheus' own `inc()` would be far more."""
    from prometheus_client import CollectorRegistry, Counter

    limits = Limits(256, 262_144, 128, 131_072, random.Random(1))
    hub = Hub(Names("p"), max_event_bytes=65_536)
    feed = Feed(b"epoch0001.0-0", held_max_events=1, held_max_bytes=1)
    session = Session(hub, "anna", _Sink(), feed, limits)  # type: ignore[arg-type]
    record = entry(1)
    frame = event_frame(record)
    feed.link_back(1, room=False)
    feed.state = type(feed.state).LIVE

    def deliver() -> None:
        feed.position = record.before
        session.durable(record, frame)

    counts = hub.counts

    def count() -> None:
        counts.sent_durable += 1

    other = Counter("sent", "as a library would count", registry=CollectorRegistry())

    def best(call: object) -> float:
        return min(timeit.repeat(call, number=5_000, repeat=7))  # type: ignore[arg-type]

    empty = best(lambda: None)
    delivery, counting, library = best(deliver), max(best(count) - empty, 0.0), best(other.inc)
    assert counts.sent_durable > 35_000
    print(f"counting: {counting / delivery:.2f} of a delivery without its send(); inc(): {library / delivery:.2f}")
    assert counting < delivery / 4
    assert counting < library
