"""The event loop's lag in words: one line when it stands still, not one for each time. Pure: time is an argument."""

from __future__ import annotations

from typing import Final

EVERY_S: Final = 60.0
"""Between two lines. What happens meanwhile is summed up in the next."""


class LagWatch:
    """`threshold_s`: a lag above it is worth a line; 0: none is."""

    def __init__(self, threshold_s: float) -> None:
        self._threshold_s = threshold_s
        self._quiet_until: float | None = None
        self._times = 0
        self._worst_s = 0.0

    def noted(self, lag_s: float, now_s: float) -> str | None:
        """What to log about a lag seen now; None for nothing."""
        if not self._threshold_s or lag_s <= self._threshold_s:
            return None
        if self._quiet_until is not None and now_s < self._quiet_until:
            self._times += 1
            self._worst_s = max(self._worst_s, lag_s)
            return None
        said = (
            f"the event loop stood still for {lag_s * 1000:.0f} ms, and nobody was read, served or answered meanwhile: "
            "too little CPU (is it throttled?), or too much work for one core"
        )
        if self._times:
            said += f"; {self._times} more since the last such line, the longest {self._worst_s * 1000:.0f} ms"
        self._quiet_until = now_s + EVERY_S
        self._times, self._worst_s = 0, 0.0
        return said
