"""How long to wait, and how long to believe the gateway (`web/pacing.js`)."""

from __future__ import annotations

from typing import Any

from loadtest.states import CAP_MS, SERVER_MS_MAX


def backoff(base: float, attempt: int) -> float:
    """The window of the full jitter."""
    return min(max(base, CAP_MS), base * float(2 ** min(attempt, 64)))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def milliseconds(value: Any, otherwise: float) -> float:
    return min(value, SERVER_MS_MAX) if is_number(value) and value >= 0 else otherwise
