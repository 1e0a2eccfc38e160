"""Schedules for a `World`: drawn from a seed, run, cut down, printed.

A schedule is a string of bytes: those that set the world up, pairs of an operation and its argument, and one that says
how it ends. Any bytes will do, and any pairs can be left out, which is what makes a failing schedule easy to cut down.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tests.core.feedworld import SETUP_BYTES, FeedFactory, World
from tidings_gateway.core.feed import Feed

WEIGHTS: Final[dict[str, int]] = {
    "append": 44,
    "burst": 14,
    "append_to_old": 4,
    "trim": 4,
    "delete_log": 2,
    "delete_entry": 2,
    "wipe": 3,
    "failover": 4,
    "other_reader": 2,
    "hear": 46,
    "hear_all": 12,
    "lose": 6,
    "repeat": 4,
    "stray": 4,
    "reorder": 5,
    "lose_link": 6,
    "connect": 10,
    "carry_out": 16,
    "answer": 30,
    "fail": 6,
    "answer_late": 4,
    "retry": 6,
    "take": 14,
    "offer_room": 8,
}
"""Operations and their share of a schedule, in 256ths."""

_TABLE: Final = tuple(name for name, weight in WEIGHTS.items() for _ in range(weight))
assert len(_TABLE) == 256


def operations(schedule: bytes) -> Iterator[tuple[str, int]]:
    for index in range(SETUP_BYTES, len(schedule) - 1, 2):
        yield _TABLE[schedule[index]], schedule[index + 1]


def run(schedule: bytes, factory: FeedFactory = Feed) -> World:
    """Raises AssertionError when the feed breaks a promise."""
    world = World(schedule[:SETUP_BYTES], factory)
    for name, argument in operations(schedule):
        getattr(world, name)(argument)
    world.heal(schedule[-1])
    return world


def failure(schedule: bytes, factory: FeedFactory = Feed) -> Exception | None:
    """What the schedule breaks. A feed that raises breaks a promise too."""
    try:
        run(schedule, factory)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        return error
    return None


def minimal(schedule: bytes, factory: FeedFactory = Feed) -> bytes:
    """The same schedule without everything that can be left out while it still fails."""
    setup, end = schedule[:SETUP_BYTES], schedule[-1:]
    pairs = [schedule[index : index + 2] for index in range(SETUP_BYTES, len(schedule) - 1, 2)]
    size = len(pairs)
    while size:
        index = 0
        while index < len(pairs):
            fewer = pairs[:index] + pairs[index + size :]
            if failure(setup + b"".join(fewer) + end, factory) is not None:
                pairs = fewer
            else:
                index += size
        size //= 2
    return setup + b"".join(pairs) + end


def describe(schedule: bytes) -> str:
    steps = "\n".join(f"    {name}({argument})" for name, argument in operations(schedule))
    return f"schedule {schedule.hex()}\n{steps}\n    heal({schedule[-1]})"


MIN_STEPS = 10
MAX_STEPS = 80


def random_schedule(rng: random.Random) -> bytes:
    return rng.randbytes(SETUP_BYTES + 1 + 2 * rng.randint(MIN_STEPS, MAX_STEPS))


def schedules(seed: int, count: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        yield random_schedule(rng)
