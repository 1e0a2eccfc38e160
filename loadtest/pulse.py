"""How late this process is: a load generator that cannot keep up measures itself."""

from __future__ import annotations

from collections.abc import Callable

import gevent

BEAT_MS = 50.0
LATE_MS = 250.0
"""From here on what is measured in this process says little about the gateways."""


class Pulse:
    """Beats, and sees how late each beat is. `run` is the body of its greenlet."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self.beats = 0
        self.late = 0
        """Beats later than `LATE_MS`."""
        self.latest_ms = 0.0
        self._clock_ms = clock_ms

    def run(self) -> None:
        while True:
            due_ms = self._clock_ms() + BEAT_MS
            gevent.sleep(BEAT_MS / 1000)
            lag_ms = self._clock_ms() - due_ms
            self.beats += 1
            self.late += lag_ms > LATE_MS
            self.latest_ms = max(self.latest_ms, lag_ms)

    def words(self) -> str:
        """What to think of the figures."""
        if self.late == 0:
            return f"this process kept up: never more than {self.latest_ms:.0f} ms late"
        return (
            f"THIS PROCESS WAS A BOTTLENECK: {self.late} of {self.beats} beats more than {LATE_MS:.0f} ms late, up to "
            f"{self.latest_ms:.0f} ms. The times above are its own as much as the gateways'."
        )
