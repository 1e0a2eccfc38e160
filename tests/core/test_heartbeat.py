"""The timer wheel: never early, at most a tick late, and cheap for very many."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from tidings_gateway.core.heartbeat import Wheel

TICK_MS = 100
ITEM = st.integers(0, 12)
DELAY_MS = st.integers(-500, 5_000)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("schedule"), ITEM, DELAY_MS),
            st.tuples(st.just("cancel"), ITEM, st.just(0)),
            st.tuples(st.just("advance"), st.just(0), st.integers(0, 700)),
            st.tuples(st.just("advance"), st.just(0), st.integers(0, 20_000)),
        ),
        max_size=80,
    ),
    st.integers(0, 10_000),
)
def test_like_a_dictionary_of_deadlines(steps: list[tuple[str, int, int]], start_ms: int) -> None:
    """Against the simplest model there is: what comes due is due, nothing that is a tick overdue stays, and only the
    last deadline of an item counts."""
    wheel: Wheel[int] = Wheel(TICK_MS, start_ms)
    deadlines: dict[int, int] = {}
    now = start_ms
    for step, item, amount in steps:
        if step == "schedule":
            wheel.schedule(item, now + amount)
            deadlines[item] = now + amount
        elif step == "cancel":
            assert wheel.cancel(item) is (deadlines.pop(item, None) is not None)
        else:
            now += amount
            due = wheel.advance(now)
            assert len(due) == len(set(due))
            for name in due:
                assert deadlines.pop(name) <= now, "early"
            # A tick for the rounding; what had passed already when it was scheduled counts from then on.
            assert all(deadline > now - TICK_MS or amount < TICK_MS for deadline in deadlines.values()), "late"
        assert len(wheel) == len(deadlines)
        assert all(name in wheel for name in deadlines)


@given(st.lists(st.integers(1, 4_000), min_size=1, max_size=50), st.integers(1, 250))
def test_turned_each_tick_nobody_waits_longer_than_one(delays: list[int], tick_ms: int) -> None:
    """Turned once per tick: due within [deadline, deadline + tick)."""
    wheel: Wheel[int] = Wheel(tick_ms, 0)
    for item, delay in enumerate(delays):
        wheel.schedule(item, delay)
    now = 0
    while len(wheel):
        now += tick_ms
        for item in wheel.advance(now):
            assert delays[item] <= now < delays[item] + tick_ms


def test_the_earlier_tick_comes_first() -> None:
    """Also when many ticks have passed at once; within a tick, in the order of scheduling."""
    wheel: Wheel[str] = Wheel(TICK_MS, 0)
    wheel.schedule("late", 950)
    wheel.schedule("early", 150)
    wheel.schedule("beside late", 910)
    assert wheel.advance(1_000) == ["early", "late", "beside late"]
    wheel.schedule("later", 100_000)
    wheel.schedule("sooner", 2_000)
    assert wheel.advance(10_000_000) == ["sooner", "later"]


def test_what_has_passed_comes_with_the_next_tick() -> None:
    """Never within the same turn: an item that is always late must not hold the wheel."""
    wheel: Wheel[str] = Wheel(TICK_MS, 0)
    wheel.advance(1_000)
    wheel.schedule("past", 500)
    assert wheel.advance(1_000) == []
    assert wheel.advance(1_050) == []
    assert wheel.advance(1_100) == ["past"]


def test_a_clock_that_stands_still_or_goes_back_turns_nothing() -> None:
    """Nothing comes due twice, and nothing early."""
    wheel: Wheel[str] = Wheel(TICK_MS, 1_000)
    wheel.schedule("item", 1_100)
    assert wheel.advance(1_000) == []
    assert wheel.advance(0) == []
    assert wheel.advance(1_100) == ["item"]


def test_a_day_asleep_is_one_turn() -> None:
    """Ticks that nobody is due in cost nothing."""
    wheel: Wheel[int] = Wheel(1, 0)
    wheel.schedule(1, 86_400_000)
    assert wheel.advance(86_400_000) == [1]


def test_nothing_is_kept_of_what_was_cancelled() -> None:
    """A closed connection must not be held until its token would have expired."""
    wheel: Wheel[object] = Wheel(TICK_MS, 0)
    for _ in range(1_000):
        item = object()
        wheel.schedule(item, 86_400_000)
        wheel.cancel(item)
    wheel.advance(TICK_MS)
    assert not any(wheel._slots.values())


def test_slots_of_the_past_are_gone() -> None:
    """Also the empty ones: the wheel's size is bounded by its items and the ticks ahead."""
    wheel: Wheel[int] = Wheel(TICK_MS, 0)
    for round_ in range(500):
        wheel.schedule(1, round_ * TICK_MS + 20_000)
        wheel.advance(round_ * TICK_MS)
    assert len(wheel._slots) <= 201


def test_memory_per_item() -> None:
    """One entry in each of two dictionaries."""
    items = [object() for _ in range(20_000)]
    tracemalloc.start()
    try:
        wheel: Wheel[object] = Wheel(TICK_MS, 0)
        for index, item in enumerate(items):
            wheel.schedule(item, 20_000 + index % 20_000)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(items) < 200
