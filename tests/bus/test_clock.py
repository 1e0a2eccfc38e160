"""The clock of the bus."""

from __future__ import annotations

import itertools
import time

from tidings_gateway.bus.clock import monotonic_ms


def test_it_counts_milliseconds_and_never_goes_back() -> None:
    """The monotonic clock's, in milliseconds."""
    before = time.monotonic()
    seen = [monotonic_ms() for _ in range(100)]
    assert all(first <= second for first, second in itertools.pairwise([before * 1000, *seen, time.monotonic() * 1000]))
