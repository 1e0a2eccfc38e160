"""When a lag of the event loop is worth a line, and what the line says."""

from __future__ import annotations

from tidings_gateway.telemetry.lag import EVERY_S, LagWatch


def test_a_lag_is_told_in_words_and_once_a_minute() -> None:
    """The first at once; those within the minute are summed up in the next line."""
    watch = LagWatch(0.5)
    assert watch.noted(0.5, 0) is None
    first = watch.noted(0.6, 1)
    assert first is not None
    assert first.startswith("the event loop stood still for 600 ms")
    assert "more since" not in first
    for now, lag in ((2, 0.7), (30, 2.1), (40, 0.1), (EVERY_S, 0.9)):
        assert watch.noted(lag, now) is None
    second = watch.noted(0.8, EVERY_S + 1)
    assert second is not None
    assert "for 800 ms" in second
    assert "3 more since the last such line, the longest 2100 ms" in second
    third = watch.noted(0.8, 3 * EVERY_S)
    assert third is not None
    assert "more since" not in third


def test_zero_turns_it_off() -> None:
    """TIDINGS_LOOP_LAG_MS=0."""
    assert LagWatch(0).noted(100, 0) is None
