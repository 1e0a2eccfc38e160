"""Schedules for the feed for as long as you like: ``python -m tests.fuzz_feed --minutes 60 [--seed 1]``.

Some are longer than those of the test suite. Stops at the first failure with exit code 1, after printing the seed and
the schedule, cut down; ``--schedule HEX`` runs that one again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback

from tests.core.feedworld import SETUP_BYTES
from tests.core.schedules import describe, failure, minimal

REPORT_EVERY_S = 30.0
MAX_STEPS = 400


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_feed", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--schedule", metavar="HEX", help="run this one only")
    options = parser.parse_args()
    if options.schedule is not None:
        return report(bytes.fromhex(options.schedule))
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    rng = random.Random(seed)
    start = told = time.monotonic()
    end = start + options.minutes * 60
    count = 0
    while (now := time.monotonic()) < end:
        schedule = rng.randbytes(SETUP_BYTES + 1 + 2 * rng.randint(1, rng.choice((20, 80, MAX_STEPS))))
        if failure(schedule) is not None:
            print(f"seed {seed}, schedule number {count}")
            return report(minimal(schedule))
        count += 1
        if now - told > REPORT_EVERY_S:
            told = now
            print(f"{count:,} schedules in {now - start:.0f} s", flush=True)
    print(f"{count:,} schedules, no failure")
    return 0


def report(schedule: bytes) -> int:
    error = failure(schedule)
    print(describe(schedule))
    if error is None:
        print("no failure")
        return 0
    traceback.print_exception(error, file=sys.stdout)
    return 1


if __name__ == "__main__":
    sys.exit(main())
