"""The table of metrics."""

from __future__ import annotations

import re

from tests.support.sources import sources
from tidings_gateway.bus.trouble import Kind
from tidings_gateway.telemetry.metrics import ALERTS, METRICS, OTHER, TROUBLES


def test_names_say_what_and_in_which_unit() -> None:
    """Ours, unique, counters end in `_total`, and a time is in seconds, as Prometheus asks for."""
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"tidings_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not re.search(r"_(ms|millis|minutes)\b", metric.name)
        assert metric.help.endswith(".")
        assert not metric.watch or metric.watch.endswith(".")


def test_every_name_stands_in_one_file() -> None:
    """So that what an operator searches for is found there, and nowhere else."""
    found = [source.module for source in sources() if re.search(r"\"tidings_[a-z_]+_total\"", source.path.read_text())]
    assert found == ["tidings_gateway.telemetry.metrics"]


def test_labels_cannot_grow() -> None:
    """Each label has its values in the table; the version is the only one that is a text of the process itself."""
    open_ended = [(metric.name, label) for metric in METRICS for label, values in metric.labels.items() if not values]
    assert open_ended == [("tidings_build_info", "version")]
    assert not {"user", "session", "origin", "path", "ip"} & {label for metric in METRICS for label in metric.labels}


def test_the_kinds_of_trouble_are_those_of_the_bus() -> None:
    """A new kind there gets its label here."""
    assert set(TROUBLES) == {kind.value for kind in Kind} | {OTHER}


def test_alerts_ask_for_what_there_is() -> None:
    """Every metric in an alert exists, with that label and that value."""
    table = {metric.name: metric for metric in METRICS}
    for _, when, _, _ in ALERTS:
        asked = re.findall(r"(tidings_[a-z_]+)(?:\{(\w+)=~?\"([^\"]+)\"\})?", when)
        assert asked
        for name, label, values in asked:
            metric = table[name.removesuffix("_bucket")]
            assert set(values.split("|")) <= set(metric.labels[label]) if label else True
