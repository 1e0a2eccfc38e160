"""What a scrape finds: every metric once, and each from where the truth is."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

from tidings_gateway.app import create_gateway, note_lag
from tidings_gateway.readings import Readings
from tidings_gateway.server.draining import Draining, Phase
from tidings_gateway.settings import Settings
from tidings_gateway.telemetry import metrics as m


class Connection:
    transport = "websocket"
    queued_bytes = 30


def _readings() -> tuple[Any, Any, Draining, Readings]:
    gateway = create_gateway(Settings(max_connections=10))
    bus = SimpleNamespace(
        whole=True,
        writes_refused="OOM",
        lag_ms=None,
        generation=7,
        relinks=2,
        troubles=Counter(closed=2),
        channels=5,
        reads_outstanding=1,
        reads_queued=2,
        silent_s=1.5,
    )
    draining = Draining()
    return gateway, bus, draining, Readings(gateway, bus, draining, lambda: not draining.started)  # type: ignore[arg-type]


def test_every_metric_is_read_once() -> None:
    """None of the table is forgotten, and none is read that the table does not have."""
    read = [metric for metric, _ in _readings()[3]()]
    assert sorted(metric.name for metric in read) == sorted(metric.name for metric in m.METRICS)


def test_states_are_looked_up_at_each_scrape() -> None:
    """What is open, queued, up and draining is what it is now, not a sum of what happened."""
    gateway, bus, draining, readings = _readings()
    connection = Connection()
    gateway.connections.add(connection)
    first = dict(readings())
    assert first[m.CONNECTIONS] == {"websocket": 1}
    assert (first[m.OUTBOX_BYTES], first[m.CONNECTIONS_MAX]) == (30, 10)
    assert (first[m.PHASE], first[m.READY]) == (0, True)
    assert first[m.WRITES_REFUSED] is True
    lag = first[m.BUS_LAG]
    assert isinstance(lag, float)
    assert math.isnan(lag)
    assert (first[m.RESUBSCRIBES], first[m.LAST_HEARD]) == (2, 1.5)
    gateway.connections.discard(connection)
    draining.enter(Phase.WINDOW)
    bus.relinks, bus.lag_ms, bus.writes_refused = 0, 250.0, ""
    second = dict(readings())
    assert second[m.CONNECTIONS] == {}
    assert (second[m.PHASE], second[m.READY]) == (2, False)
    assert (second[m.RESUBSCRIBES], second[m.BUS_LAG], second[m.WRITES_REFUSED]) == (0, 0.25, False)


def test_the_ticker_s_lateness_is_the_loop_s(caplog: Any) -> None:
    """Each tick is an observation; a long one is a line as well."""
    gateway = create_gateway(Settings(loop_lag_ms=200))
    note_lag(gateway)
    gateway.ticker.now = lambda: 1.0  # type: ignore[method-assign]
    for late_s in (0.0, 0.3):
        gateway.ticker.on_late(late_s)
    assert sum(gateway.hub.counts.loop_lag.counts) == 2
    assert "the event loop stood still for 300 ms" in caplog.text
