"""Waiting for a condition, with a deadline, in a greenlet."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent

POLL_S = 0.02


def until(condition: Callable[[], bool], deadline_s: float) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() >= end:
            return False
        gevent.sleep(POLL_S)
    return True
