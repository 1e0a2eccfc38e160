"""What a scraper gets."""

from __future__ import annotations

import math

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from tidings_gateway.telemetry.counts import Histogram
from tidings_gateway.telemetry.exposition import Exposition, Reading
from tidings_gateway.telemetry.metrics import Metric

PLAIN = Metric("tidings_plain_total", "counter", "Plain.")
ONE = Metric("tidings_one_total", "counter", "One label.", {"reason": ("a", "b", "other")})
TWO = Metric("tidings_two", "gauge", "Two labels.", {"code": ("1000", "other"), "reason": ("", "x")})
TIMES = Metric("tidings_times_seconds", "histogram", "Times.")


def samples(readings: list[Reading]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    body, content_type = Exposition(lambda: readings, process=False).render("text/plain")
    assert content_type.startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


def one(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_values_that_never_came_are_shown_as_zero() -> None:
    """A rate over a series that appears with its first value would not see that value."""
    told = samples([(PLAIN, 7), (ONE, {"b": 3})])
    assert told[one("tidings_plain_total")] == 7
    assert told[one("tidings_one_total", reason="a")] == 0
    assert told[one("tidings_one_total", reason="b")] == 3


def test_what_the_table_does_not_know_is_other() -> None:
    """Whatever slipped in: no label value is a stranger's."""
    told = samples([(ONE, {"anna": 1, "bert": 2}), (TWO, {("1000", "x"): 1, ("4999", "x"): 2})])
    assert told[one("tidings_one_total", reason="other")] == 3
    assert told[one("tidings_two", code="other", reason="x")] == 2
    assert not [labels for _, labels in told if ("reason", "anna") in labels]


def test_a_histogram_is_cumulative() -> None:
    """Each bucket holds those below it; +Inf is all; the sum is the sum."""
    times = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.5, 5.0):
        times.observe(value)
    told = samples([(TIMES, times)])
    assert [told[one("tidings_times_seconds_bucket", le=le)] for le in ("0.1", "1.0", "+Inf")] == [1, 3, 4]
    assert told[one("tidings_times_seconds_count")] == 4
    assert math.isclose(told[one("tidings_times_seconds_sum")], 6.05)


def test_openmetrics_for_who_asks() -> None:
    """What a Prometheus of today asks for first."""
    readings: list[Reading] = [(PLAIN, 7), (ONE, {})]
    exposition = Exposition(lambda: readings, process=False)
    body, content_type = exposition.render("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    families = parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]
    assert {family.name for family in families} == {"tidings_plain", "tidings_one"}


def test_the_process_is_told_of_too() -> None:
    """Memory and descriptors: the first questions about a process that misbehaves."""
    body, _ = Exposition(list).render("")
    for name in ("process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"):
        assert f"\n{name} ".encode() in body


def test_an_accept_header_of_no_sense() -> None:
    """Whoever asks in words that nobody understands gets the words of Prometheus, and no fault is logged as ours."""
    for accept in ("application/openmetrics-text; version=abc", "text/plain;version=x.y;escaping=allow-utf-8", ";,="):
        body, content_type = Exposition(lambda: [(PLAIN, 7)], process=False).render(accept)
        assert content_type.startswith("text/plain; version=0.0.4")
        assert b"\ntidings_plain_total 7.0\n" in body
