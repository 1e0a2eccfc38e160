"""Spread over time: drains, retries, rates."""

from __future__ import annotations

import random
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings_gateway.core.pacing import TokenBucket, drain_schedule, full_jitter

RNG = st.randoms(use_true_random=False)


class TestDrain:
    @given(st.integers(0, 400), st.floats(1, 60_000), RNG)
    def test_inside_the_window_and_ascending(self, count: int, window_ms: float, rng: random.Random) -> None:
        """Each socket has its moment within the window."""
        moments = drain_schedule(count, window_ms, rng)
        assert len(moments) == count
        assert moments == sorted(moments)
        assert all(0 <= moment <= window_ms for moment in moments)

    @given(st.integers(1, 400), st.integers(1, 60), RNG)
    def test_no_moment_is_crowded(self, count: int, buckets: int, rng: random.Random) -> None:
        """Wherever the window is cut, no part gets more than three times its share (or one socket)."""
        window_ms = 20_000.0
        counts = [0] * buckets
        for moment in drain_schedule(count, window_ms, rng):
            counts[min(buckets - 1, int(moment / window_ms * buckets))] += 1
        assert max(counts) <= max(ceil(3 * count / buckets), 2)

    def test_two_gateways_do_not_march_in_step(self) -> None:
        """Two that drain at the same time let go at different moments."""
        first, second = (drain_schedule(100, 20_000, random.Random(seed)) for seed in (1, 2))
        assert sum(abs(a - b) < 1 for a, b in zip(first, second, strict=True)) < 10

    def test_nobody_to_drain(self) -> None:
        """No sockets, no moments."""
        assert drain_schedule(0, 20_000, random.Random(1)) == []

    def test_a_window_of_nothing(self) -> None:
        """TIDINGS_DRAIN_WINDOW_MS=0: all at once."""
        assert drain_schedule(3, 0, random.Random(1)) == [0, 0, 0]


class TestFullJitter:
    @given(st.floats(1, 10_000), st.floats(1, 100_000), st.integers(-5, 10_000), RNG)
    def test_bounds(self, base_ms: float, cap_ms: float, attempt: int, rng: random.Random) -> None:
        """Between 0 and the doubled base, never above the cap, for any number of attempts."""
        wait_ms = full_jitter(base_ms, cap_ms, attempt, rng)
        assert 0 <= wait_ms <= cap_ms
        if 0 <= attempt < 30:
            assert wait_ms <= base_ms * 2**attempt

    @pytest.mark.parametrize("attempt", [0, 1, 5, 20])
    def test_the_whole_range_is_used(self, attempt: int) -> None:
        """Also in the first attempt: no arrivals in step, no minimum wait that all share."""
        rng = random.Random(attempt)
        top = min(30_000, 500 * 2**attempt)
        buckets = [0] * 10
        for _ in range(2_000):
            buckets[int(full_jitter(500, 30_000, attempt, rng) / top * 10)] += 1
        assert min(buckets) > 100
        assert max(buckets) < 300


class TestTokenBucket:
    def test_a_burst_and_then_the_rate(self) -> None:
        """Full at first; then a token comes back every 1/rate seconds."""
        bucket = TokenBucket(rate_per_s=10, burst=5, now_s=100)
        assert [bucket.take(100) for _ in range(6)] == [True] * 5 + [False]
        assert not bucket.take(100.0625)
        assert bucket.take(100.125)
        assert not bucket.take(100.125)

    def test_idle_time_is_not_saved_up(self) -> None:
        """However long it was quiet: `burst` and no more."""
        bucket = TokenBucket(rate_per_s=10, burst=5, now_s=0)
        assert sum(bucket.take(10_000) for _ in range(100)) == 5

    def test_amounts(self) -> None:
        """Bytes as well as frames."""
        bucket = TokenBucket(rate_per_s=1_000, burst=4_000, now_s=0)
        assert bucket.take(0, 3_000)
        assert not bucket.take(0, 1_001)
        assert bucket.take(0, 1_000)
        assert not bucket.take(1_000_000, 4_001)

    def test_a_clock_that_goes_back_adds_nothing(self) -> None:
        """And what it had counted up to is not counted twice."""
        bucket = TokenBucket(rate_per_s=1, burst=1, now_s=50)
        assert bucket.take(50)
        assert not bucket.take(0)
        assert not bucket.take(50.5)
        assert bucket.take(51)

    @given(
        st.floats(0.1, 1_000),
        st.floats(1, 1_000),
        st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 100)), max_size=60),
    )
    def test_never_more_than_promised(self, rate: float, burst: float, takes: list[tuple[float, float]]) -> None:
        """Over any stretch of time: burst plus rate times its length."""
        bucket = TokenBucket(rate, burst, 0)
        now = 0.0
        taken = 0.0
        for pause, amount in takes:
            now += pause
            if bucket.take(now, amount):
                taken += amount
            assert taken <= (burst + rate * now) * (1 + 1e-9)

    @given(st.floats(0.1, 100), st.floats(1, 100), st.lists(st.floats(0, 3), max_size=30), st.floats(0.5, 50))
    def test_the_wait_is_long_enough(self, rate: float, burst: float, pauses: list[float], amount: float) -> None:
        """After `wait_s`, the same amount is there."""
        bucket = TokenBucket(rate, burst, 0)
        now = 0.0
        for pause in pauses:
            now += pause
            bucket.take(now)
        wait_s = bucket.wait_s(now, amount)
        assert wait_s >= 0
        if amount <= burst:
            assert bucket.take(now + wait_s + 1e-6, amount)
