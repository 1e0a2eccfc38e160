"""Readings of the moment, in the words of Prometheus (or OpenMetrics, for who asks for it)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, product
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tidings_gateway.telemetry.counts import Histogram
from tidings_gateway.telemetry.metrics import OTHER, Metric

Labelled = Mapping[Any, float]
"""By the value of the only label, or by those of all in the order of the row."""
Reading = tuple[Metric, float | Histogram | Labelled]


class Exposition(Collector):
    """`read` gives the truth of the moment, each metric once. It is called in the event loop, and nowhere else: what it
    looks at belongs to the loop, and cannot change while it looks."""

    def __init__(self, read: Callable[[], Iterable[Reading]], *, process: bool = True) -> None:
        """`process`: also what the client library tells of the process: memory, descriptors, CPU, garbage."""
        self._read = read
        # Not the library's global one: a process may hold several gateways, as tests do.
        self._registry = CollectorRegistry()
        self._registry.register(self)
        if process:
            ProcessCollector(registry=self._registry)
            GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The page, and its content type."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):
            # A version that is no number: the library compares it as it came.
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        for metric, value in self._read():
            yield _family(metric, value)


def _family(metric: Metric, value: float | Histogram | Labelled) -> Family:
    if isinstance(value, Histogram):
        histogram = HistogramMetricFamily(metric.name, metric.help)
        names = (*(repr(bound) for bound in value.bounds), "+Inf")
        histogram.add_metric((), list(zip(names, accumulate(value.counts), strict=True)), value.total)
        return histogram
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=tuple(metric.labels))
    samples = _bounded(metric, value) if isinstance(value, Mapping) else {(): value}
    for labels, number in samples.items():
        family.add_metric(labels, number)
    return family


def _bounded(metric: Metric, values: Labelled) -> dict[tuple[str, ...], float]:
    """With the labels' values held to those of the table. Of a metric with one label all values are shown."""
    allowed = tuple(metric.labels.values())
    samples: dict[tuple[str, ...], float] = dict.fromkeys(product(*allowed), 0) if len(allowed) == 1 else {}
    for key, number in values.items():
        told = (key,) if isinstance(key, str) else key
        labels = tuple(word if word in known or not known else OTHER for word, known in zip(told, allowed, strict=True))
        samples[labels] = samples.get(labels, 0) + number
    return samples
