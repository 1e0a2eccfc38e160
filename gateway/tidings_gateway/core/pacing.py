"""How things are spread over time, so that many clients never do one thing in the same moment.

Randomness is an argument: a `random.Random`, or anything with its `random()`.
"""

from __future__ import annotations

from typing import Protocol


class Uniform(Protocol):
    """The one method of `random.Random` that is needed here."""

    def random(self) -> float:
        """A number drawn evenly from [0, 1)."""
        ...


def drain_schedule(count: int, window_ms: float, rng: Uniform) -> list[float]:
    """`count` moments within [0, `window_ms`], ascending: when to let go of each of `count` sockets.

    The window is cut into `count` equal slots and each moment drawn from its own. Moments drawn freely would crowd by
    chance, and evenly spaced ones would march in step with another gateway that drains too.
    """
    # Divided first: a product with the width of a slot can be rounded to beyond the window.
    return [(index + rng.random()) / count * window_ms for index in range(count)]


def full_jitter(base_ms: float, cap_ms: float, attempt: int, rng: Uniform) -> float:
    """The wait before retry number `attempt`, from 0: anywhere between 0 and ``min(cap_ms, base_ms * 2**attempt)``.

    The first retry is drawn from a range too: it is the one that all clients of a dead server would make together.
    """
    # Beyond 2**62 the cap has long won, and a float would overflow at an attempt that a long outage can reach.
    return rng.random() * min(cap_ms, base_ms * 2.0 ** min(max(attempt, 0), 62))


class TokenBucket:
    """At most `burst` at once and `rate_per_s` in the long run. Full at first.

    The time of each call is an argument, in seconds of a clock that does not jump; one that went back adds nothing.
    """

    __slots__ = ("_burst", "_filled_s", "_rate_per_s", "_tokens")

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._tokens = burst
        self._filled_s = now_s

    def take(self, now_s: float, amount: float = 1.0) -> bool:
        """Take `amount` tokens if that many are there. An amount above `burst` never is."""
        elapsed_s = now_s - self._filled_s
        if elapsed_s > 0:
            self._tokens = min(self._burst, self._tokens + elapsed_s * self._rate_per_s)
            self._filled_s = now_s
        if amount > self._tokens:
            return False
        self._tokens -= amount
        return True

    def wait_s(self, now_s: float, amount: float = 1.0) -> float:
        """Seconds until `take` of `amount` would succeed, if nothing else is taken; for a Retry-After."""
        missing = amount - self._tokens - max(0.0, now_s - self._filled_s) * self._rate_per_s
        return max(0.0, missing / self._rate_per_s)
