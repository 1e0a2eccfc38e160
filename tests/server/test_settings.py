"""The server's defaults."""

from __future__ import annotations

from tidings_gateway.server.settings import ServerSettings


def test_default_drain_fits_the_usual_grace_period() -> None:
    """Orchestrators kill 30 s after SIGTERM: a drain with the default settings, peers that never answer and an
    application that hangs in its shutdown included, ends before."""
    assert ServerSettings().drain_total_ms < 29_500


def test_a_slow_close_fits_the_drain() -> None:
    """Whoever is let go at the window's end has the settle time to answer; the total is the sum of all phases."""
    settings = ServerSettings(drain_grace_ms=1, drain_window_ms=2, drain_settle_ms=3, drain_stop_ms=4)
    assert settings.drain_total_ms == 10
