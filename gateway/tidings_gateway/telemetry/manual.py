"""The table of metrics as text: `docs/metrics.md` (``python -m tidings_gateway.telemetry.manual``)."""

from __future__ import annotations

import sys

from tidings_gateway.telemetry.metrics import ALERTS, METRICS, Metric

_HEAD = """# Metrics

Each gateway serves `/metrics` for Prometheus on `TIDINGS_ADMIN_LISTEN` (127.0.0.1:8081), with `/livez` and `/readyz`
beside it, and never on the address of the public. It answers until the end of a drain. Besides what is listed here
there are `process_…` and `python_gc_…`, as the client library of Prometheus names them everywhere.

The address must be free. If it was set and cannot be had, the gateway does not start. If it was not set, as when a
second gateway is started by hand on one machine, a warning says that this one has no metrics, and it goes on. Port 0
works; the log says which it became. An empty value turns it off.

Gauges are not counted up and down: each is looked up when somebody asks, so none can drift. Counters begin anew with
the process. No label holds what a stranger chose: an unknown close code is `other`, and no user is ever a label.

**One clock.** Publisher, Redis and gateway each have their own. What is measured on one clock, and therefore true, is
`tidings_bus_lag_seconds` (Redis and back) and `tidings_delivery_seconds` (here): together they are the way from the
store to the socket. `tidings_event_age_seconds` begins with the publisher's clock, and is as wrong as that.

This page is made by `python -m tidings_gateway.telemetry.manual`.
"""

_ALERTS = """
## Alerts

As a start; the numbers are for you to tune. `for` is how long it must hold.
"""


def markdown() -> str:
    """The whole page."""
    lines = [_HEAD, "## All of them\n", "| name | type | labels | what it is |", "|---|---|---|---|"]
    lines += [f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {_cell(metric.help)} |" for metric in METRICS]
    lines += ["\n## When it looks bad\n", "| name | |", "|---|---|"]
    lines += [f"| `{metric.name}` | {_cell(metric.watch)} |" for metric in METRICS if metric.watch]
    lines += [_ALERTS, "| alert | when | for | what it means |", "|---|---|---|---|"]
    lines += [f"| {name} | `{_cell(when)}` | {time} | {meaning} |" for name, when, time, meaning in ALERTS]
    return "\n".join(lines) + "\n"


def _labels(metric: Metric) -> str:
    told = []
    for label, values in metric.labels.items():
        words = [f"`{value}`" if value else "empty" for value in values]
        told.append(f"`{label}`: {', '.join(words)}" if words else f"`{label}`")
    return "; ".join(told)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
