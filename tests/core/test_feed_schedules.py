"""20,000 seeded schedules of everything that can happen around a feed; see `feedworld` for what is checked."""

from __future__ import annotations

import pytest

from tests.core.schedules import describe, failure, minimal, run, schedules

PARTS = 4
SCHEDULES = 20_000
SEED = 20_261_129


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_breaks_a_promise(part: int) -> None:
    """What is sent is the log from the start position, in order, once, or a Resync stands in the hole; and when the
    faults end, the feed is live at the log's top."""
    for schedule in schedules(SEED + part, SCHEDULES // PARTS):
        if failure(schedule) is not None:
            small = minimal(schedule)
            pytest.fail(f"{failure(small)!r}\n{describe(small)}")


def test_a_failing_schedule_can_be_run_again() -> None:
    """A schedule is its bytes: the same ones do the same, wherever they run."""
    for schedule in schedules(7, 50):
        first, second = run(schedule).oracle, run(bytes.fromhex(schedule.hex())).oracle
        assert (first.cursor, first.sent, first.replayed) == (second.cursor, second.sent, second.replayed)
