"""The seeded generator of schedules for `feedworld`."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.core.feedworld import SETUP_BYTES

MIN_STEPS = 10
MAX_STEPS = 80


def random_schedule(rng: random.Random) -> bytes:
    return rng.randbytes(SETUP_BYTES + 1 + 2 * rng.randint(MIN_STEPS, MAX_STEPS))


def schedules(seed: int, count: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        yield random_schedule(rng)
