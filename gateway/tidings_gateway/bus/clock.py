"""The clock of everything that waits for Redis."""

from __future__ import annotations

import time


def monotonic_ms() -> float:
    """Milliseconds that never jump; only differences mean anything."""
    return time.monotonic() * 1000
