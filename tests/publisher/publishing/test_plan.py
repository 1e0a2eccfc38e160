"""The plan of a publish, in virtual time: order, retries, doubt and the deadline."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.errors import PublishError
from tidings.event import Event
from tidings.log.receipt import Receipt
from tidings.publishing.message import AskPosition, Call, Publish
from tidings.publishing.plan import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    MAX_RUSHES,
    Batch,
    Done,
    Exchange,
    Failure,
    Outcome,
    Refusal,
    Sleep,
    Verdict,
    attempt_s,
    plan,
    refusal_of,
)

EVENT = Event.encode("a", None, time_ms=0)
OK = Receipt("EpochOne.1-1")
AGAIN = Refusal("busy", "busy", again=True, retryable=True)
LOST = Refusal("lost", "unavailable", again=True, retryable=True, in_doubt=True)
NEVER = Refusal("no", "forbidden")


def durable(number: int) -> Publish:
    return Publish(f"user{number}", EVENT, f"key{number}")


def ephemeral(number: int) -> Publish:
    return Publish(f"user{number}", EVENT, None)


class World:
    """A clock, a wire whose answers are written down beforehand, and what the plan did."""

    def __init__(
        self,
        answers: Sequence[Sequence[Verdict]] | Callable[[Sequence[Call]], list[Verdict]],
        *,
        takes_s: float = 0.0,
        batch: int = 1000,
        seed: int = 1,
    ) -> None:
        self.now = 100.0
        self.answers = answers if callable(answers) else None
        self.script = [] if callable(answers) else list(answers)
        self.takes_s = takes_s
        self.size = batch
        self.rng = random.Random(seed)
        self.exchanged: list[list[str]] = []
        self.timeouts: list[float] = []
        self.pauses: list[float] = []

    # The wire

    def batch(self, calls: Sequence[Call], left_s: float) -> Batch:
        covers = range(min(self.size, len(calls)))
        return Batch([calls[index].user for index in covers], covers, attempt_s(left_s, 0.5, calls[: len(covers)]))

    def learn(self, outcome: Outcome) -> Refusal | None:
        raise AssertionError

    def lane(self, call: Call) -> object:
        return None

    def verdicts(self, calls: Sequence[Call], outcome: Outcome) -> list[Verdict]:
        if self.answers is not None:
            return self.answers(calls)
        return list(self.script.pop(0))

    # The shell

    def run(self, calls: Sequence[Call], *, deadline_s: float = 2.0) -> list[Done]:
        steps = plan(calls, self, deadline_s=deadline_s, clock=lambda: self.now, rng=self.rng)
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                results: list[Done] = end.value
                return results
            outcome = None
            if isinstance(step, Sleep):
                self.pauses.append(step.seconds)
                self.now += step.seconds
            else:
                assert isinstance(step, Exchange)
                self.exchanged.append(step.request)
                self.timeouts.append(step.timeout_s)
                self.now += min(self.takes_s, step.timeout_s)
                outcome = Outcome()


def test_all_at_once_when_all_goes_well() -> None:
    """One exchange, no pause, the results in order."""
    world = World([[OK, Receipt("EpochOne.2-1"), NEVER]])
    results = world.run([durable(1), durable(2), durable(3)])
    assert results[:2] == [OK, Receipt("EpochOne.2-1")]
    assert isinstance(results[2], PublishError)
    assert world.exchanged == [["user1", "user2", "user3"]]
    assert world.pauses == []


def test_nothing_to_do() -> None:
    """No calls, no exchange."""
    assert World([]).run([]) == []


def test_what_failed_is_repeated_and_nothing_else() -> None:
    """A stored message is not sent again; the one to repeat keeps its place in the results."""
    world = World([[OK, AGAIN, OK], [AGAIN], [Receipt("EpochOne.9-9")]])
    assert world.run([durable(1), durable(2), durable(3)]) == [OK, Receipt("EpochOne.9-9"), OK]
    assert world.exchanged == [["user1", "user2", "user3"], ["user2"], ["user2"]]
    assert len(world.pauses) == 2


def test_what_comes_behind_waits() -> None:
    """While something is to be repeated, nothing behind it goes ahead of it: it is first in the next batch."""
    world = World([[AGAIN, OK], [AGAIN, OK], [OK, OK], [OK]], batch=2)
    assert world.run([durable(number) for number in range(1, 6)]) == [OK] * 5
    assert world.exchanged == [["user1", "user2"], ["user1", "user3"], ["user1", "user4"], ["user5"]]


def test_a_definite_refusal_is_final() -> None:
    """It is not repeated and not in doubt."""
    world = World([[NEVER]])
    (error,) = world.run([durable(1)])
    assert isinstance(error, PublishError)
    assert (error.code, error.retryable, error.outcome_unknown) == ("forbidden", False, False)
    assert error.idempotency_key == "key1"
    assert len(world.exchanged) == 1


def test_the_deadline_ends_it() -> None:
    """Repeated until time is up, never beyond; the error is the last refusal, and may be retried."""
    world = World(lambda calls: [AGAIN] * len(calls), takes_s=0.01)
    (error,) = world.run([durable(1)])
    assert isinstance(error, PublishError)
    assert (error.code, error.retryable, error.outcome_unknown) == ("busy", True, False)
    assert world.now <= 102.0
    assert len(world.exchanged) > 4


def test_no_retry_that_is_too_short_for_an_answer() -> None:
    """It could only turn what is known not to be stored into doubt."""
    for seed in range(50):
        world = World(lambda calls: [AGAIN] * len(calls), takes_s=0.01, seed=seed)
        world.run([durable(1)])
        assert min(world.timeouts) >= 0.05


def test_doubt_does_not_go_away() -> None:
    """Once an answer was lost, a later refusal does not make it known that nothing was stored; a receipt does."""
    (error,) = World([[LOST], [NEVER]]).run([durable(1)])
    assert isinstance(error, PublishError)
    assert (error.code, error.outcome_unknown) == ("forbidden", True)
    assert World([[LOST], [OK]]).run([durable(1)]) == [OK]


def test_doubt_is_each_message_s_own() -> None:
    """A message whose turn never came is known not to be stored."""
    world = World(lambda calls: [LOST] * len(calls), takes_s=10, batch=1)
    first, second = world.run([durable(1), durable(2)])
    assert isinstance(first, PublishError)
    assert isinstance(second, PublishError)
    assert (first.outcome_unknown, second.outcome_unknown) == (True, False)
    assert second.code == "deadline"


def test_one_silent_connection_does_not_eat_the_deadline() -> None:
    """Each attempt gets half of what is left, so that another connection is tried; what cannot be repeated gets all."""
    world = World(lambda calls: [LOST] * len(calls), takes_s=99)
    world.run([durable(1)])
    assert world.timeouts[0] == pytest.approx(1.0)
    assert len(world.timeouts) >= 3
    assert world.now <= 102.0 + 1e-9
    world = World([[NEVER]])
    world.run([ephemeral(1)])
    assert world.timeouts == [2.0]


@given(st.integers(0, 2**32), st.floats(0.05, 20), st.floats(0, 3))
def test_never_longer_than_the_deadline(seed: int, deadline_s: float, takes_s: float) -> None:
    """Whatever the attempts take, the plan asks for no step that would go beyond its deadline, and always ends."""
    world = World(lambda calls: [LOST] * len(calls), takes_s=takes_s, seed=seed)
    world.run([durable(1), durable(2)], deadline_s=deadline_s)
    assert world.now <= 100.0 + deadline_s + 1e-6
    assert all(0 <= pause <= LONGEST_PAUSE_S for pause in world.pauses)


def test_pauses_are_jittered_and_grow() -> None:
    """Full jitter: from nothing to a bound that doubles from 50 ms to 500 ms, so that those who failed together do not
    come back together."""
    firsts, seconds, lates = [], [], []
    for seed in range(400):
        world = World(lambda calls: [AGAIN] * len(calls), seed=seed)
        world.run([durable(1)])
        firsts.append(world.pauses[0])
        seconds.append(world.pauses[1])
        lates += world.pauses[5:]
    assert max(firsts) <= FIRST_PAUSE_S
    assert max(seconds) <= 2 * FIRST_PAUSE_S
    assert max(seconds) > FIRST_PAUSE_S
    assert 0.9 * LONGEST_PAUSE_S < max(lates) <= LONGEST_PAUSE_S
    for low in range(10):
        share = sum(low / 10 <= first / FIRST_PAUSE_S < (low + 1) / 10 for first in firsts)
        assert 10 <= share <= 90


def test_a_time_that_was_asked_for_is_kept_and_spread() -> None:
    """Nobody comes back before the time asked for, and not all at that moment."""
    wait = Refusal("later", "unavailable", again=True, retryable=True, retry_after_s=1.0)
    pauses = set()
    for seed in range(20):
        world = World([[wait], [OK]], seed=seed)
        assert world.run([durable(1)]) == [OK]
        pauses.add(world.pauses[0])
    assert len(pauses) == 20
    assert min(pauses) >= 1.0
    assert max(pauses) <= 1.0 + FIRST_PAUSE_S


def test_a_time_beyond_the_deadline_is_the_caller_s() -> None:
    """When the time asked for does not fit, the call ends at once and says how long to wait."""
    wait = Refusal("later", "unavailable", again=True, retryable=True, retry_after_s=30.0)
    world = World([[wait]])
    (error,) = world.run([durable(1)])
    assert isinstance(error, PublishError)
    assert error.retry_after_s == 30.0
    assert world.now == 100.0


def test_at_once_is_at_once_but_not_for_ever() -> None:
    """What is known not to have run is repeated without a pause; if that does not help, it is a failure like others."""
    forgotten = Refusal("script", "unavailable", again=True, at_once=True, retryable=True)
    world = World([[forgotten], [OK]])
    assert world.run([durable(1)]) == [OK]
    assert world.pauses == []
    world = World(lambda calls: [forgotten] * len(calls))
    (error,) = world.run([durable(1)])
    assert isinstance(error, PublishError)
    assert len(world.exchanged) == len(world.pauses) + 1 + MAX_RUSHES


@pytest.mark.parametrize(
    ("call", "failure", "again", "in_doubt"),
    [
        (durable(1), Failure("x", sent=False), True, False),
        (durable(1), Failure("x", sent=True), True, True),
        (ephemeral(1), Failure("x", sent=False), True, False),
        (ephemeral(1), Failure("x", sent=True), False, True),
        (AskPosition("u"), Failure("x", sent=True), True, False),
        (durable(1), Failure("x", final=True), False, False),
    ],
)
def test_what_a_broken_exchange_means(call: Call, failure: Failure, again: bool, in_doubt: bool) -> None:
    """What was not sent can be repeated; what was sent is in doubt and can be repeated only if it is recognised: an
    ephemeral event is not, and would be heard twice. A question can always be asked again."""
    refusal = refusal_of(failure, call)
    assert (refusal.again, refusal.in_doubt) == (again, in_doubt)
    assert refusal.retryable == (not failure.final)


class Servers(World):
    """A wire with a server for each user's last digit, and a question to be answered first."""

    def __init__(self, answers: Callable[[Sequence[Call]], list[Verdict]], learned: Sequence[Refusal | None]) -> None:
        super().__init__(answers)
        self.learned = list(learned)

    def lane(self, call: Call) -> object:
        return call.user[-1]

    def batch(self, calls: Sequence[Call], left_s: float) -> Batch:
        if self.learned:
            return Batch(["?"], (), left_s)
        covers = [index for index, call in enumerate(calls) if self.lane(call) == self.lane(calls[0])]
        return Batch([calls[index].user for index in covers], covers, left_s)

    def learn(self, outcome: Outcome) -> Refusal | None:
        return self.learned.pop(0)


def test_a_dead_server_holds_up_its_own_users_alone() -> None:
    """The others are stored in the first round; what waits behind the failed ones waits, and keeps its order."""

    def answer(calls: Sequence[Call]) -> list[Verdict]:
        if calls[0].user == "user1" and len(world.exchanged) < 3:
            return [AGAIN, *[OK] * (len(calls) - 1)]
        return [OK] * len(calls)

    world = Servers(answer, [])
    assert world.run([durable(1), durable(2), durable(11), durable(3)]) == [OK] * 4
    assert world.exchanged == [["user1", "user11"], ["user2"], ["user3"], ["user1"]]


def test_a_user_keeps_the_order_when_the_server_changes() -> None:
    """A call behind one that is to be repeated waits for it, also when it would go elsewhere by now."""

    class Moved(Servers):
        def lane(self, call: Call) -> object:
            return id(call)

    def answer(calls: Sequence[Call]) -> list[Verdict]:
        return [AGAIN if len(world.exchanged) == 1 else OK]

    world = Moved(answer, [])
    world.run([durable(1), durable(1), durable(2)])
    assert world.exchanged == [["user1"], ["user2"], ["user1"], ["user1"]]


def test_a_question_comes_first_and_its_failure_is_everybody_s() -> None:
    """Nothing was sent meanwhile, so nothing is in doubt; the error says what the question came to."""
    unknown = Refusal("nobody knows", "unavailable", again=True, at_once=True, retryable=True)
    world = Servers(lambda calls: [OK] * len(calls), [unknown, None])
    assert world.run([durable(1), durable(2)]) == [OK, OK]
    assert world.exchanged == [["?"], ["?"], ["user1"], ["user2"]]
    assert world.pauses == []
    world = Servers(lambda calls: [OK] * len(calls), [unknown] * 1000)
    errors = world.run([durable(1), durable(2)])
    assert all(isinstance(error, PublishError) and error.why == "nobody knows" for error in errors)
    assert not any(isinstance(error, PublishError) and error.outcome_unknown for error in errors)
    assert world.now <= 102.0
