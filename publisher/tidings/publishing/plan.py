"""The plan of a publish: what to exchange, what to repeat and when, when to give up.

Pure: a generator that yields steps and is sent what came of them; clock and randomness are arguments. Over Redis or
HTTP, blocking or not, it is the same plan.

Theory of operation. All calls of one plan share one deadline. They are exchanged in order, as many at a time as the
wire takes; what must be repeated is repeated, in order, before anything behind it in its lane, after a pause with full
jitter. Where there are several servers, each has a lane: a dead one holds up its own users alone. Before a call is sent
the wire may have a question of its own, where to. A call whose answer was lost is in doubt, for good: it is repeated if
that is safe (it has an idempotency key, so that it is stored once), and the error of a call that never got its answer
says that its outcome is unknown.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidings.errors import PublishError
from tidings.log.receipt import Receipt
from tidings.publishing.message import Call, Publish

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.5
SHORTEST_ATTEMPT_S = 0.25
SHORTEST_RETRY_S = 0.05
"""What is refused and known not to be stored is not tried again with less time than this: an answer that comes too late
would turn what is known into doubt."""
MAX_RUSHES = 5
"""Attempts without a pause before them: where to send it was learned anew, or a script was forgotten."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send `request` and wait for all its answers, `timeout_s` in all, connecting included."""

    request: Any
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """An exchange that broke off. `sent`: something may have reached the other side. `final`: trying again is of no
    use."""

    why: str
    code: str = "unavailable"
    sent: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an exchange: the answers that arrived, in order, and why there are no more."""

    answers: Sequence[Any] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that did not succeed this time. `again`: the plan may repeat it by itself. `at_once`: without a pause,
    since it is known not to have run. `retryable`: the caller may, later. `in_doubt`: it may have been done."""

    why: str
    code: str
    again: bool = False
    at_once: bool = False
    retryable: bool = False
    in_doubt: bool = False
    retry_after_s: float | None = None


def refusal_of(failure: Failure, call: Call) -> Refusal:
    """What a broken-off exchange means for a call that got no answer."""
    return Refusal(
        failure.why,
        failure.code,
        again=not failure.final and (call.repeatable or not failure.sent),
        retryable=not failure.final,
        in_doubt=failure.sent and isinstance(call, Publish),
    )


Verdict = Receipt | str | Refusal
Done = Receipt | str | PublishError


@dataclass(frozen=True, slots=True)
class Batch:
    """What one exchange is to be. `covers`: which of the calls given it answers, rising; none, when it is a question of
    the wire's own, about where to send them. `timeout_s`: for all of it, connecting included."""

    request: Any
    covers: Sequence[int]
    timeout_s: float


class Wire(Protocol):
    """How calls are written and answers read. One per plan: it may remember things between the attempts."""

    def batch(self, calls: Sequence[Call], left_s: float) -> Batch:
        """The exchange for the first of the calls, and as many others as go with it. Of one user's calls none is left
        out before one that is covered. `left_s`: until the deadline."""

    def verdicts(self, calls: Sequence[Call], outcome: Outcome) -> list[Verdict]:
        """One for each of the calls the batch covered."""

    def learn(self, outcome: Outcome) -> Refusal | None:
        """What came of a batch that covered none. The refusal is that of all calls that wait for the answer."""

    def lane(self, call: Call) -> object:
        """Calls of one lane share their fate: when one is to be repeated, those behind it wait."""


def plan(
    calls: Sequence[Call],
    wire: Wire,
    *,
    deadline_s: float,
    clock: Callable[[], float],
    rng: random.Random,
) -> Generator[Exchange | Sleep, Outcome | None, list[Done]]:
    """The results, one per call in order. `clock` counts seconds and never goes back."""
    end = clock() + deadline_s
    done: list[Done | None] = [None] * len(calls)
    doubted = [False] * len(calls)
    last: list[Refusal] = [_NOT_TRIED] * len(calls)
    todo = list(range(len(calls)))
    attempt = rushes = 0
    while todo:
        again: list[int] = []
        held = _Held(wire)
        while (ready := held.without(todo, calls)) and (left := end - clock()) > 0:
            waiting = [calls[index] for index in ready]
            batch = wire.batch(waiting, left)
            outcome = yield Exchange(batch.request, batch.timeout_s)
            assert outcome is not None
            if batch.covers:
                covered = [ready[index] for index in batch.covers]
                verdicts = wire.verdicts([calls[index] for index in covered], outcome)
            elif refusal := wire.learn(outcome):
                covered, verdicts = ready, [refusal] * len(ready)
            else:
                continue
            todo = _without(todo, covered)
            for index, verdict in zip(covered, verdicts, strict=True):
                if not isinstance(verdict, Refusal):
                    done[index] = verdict
                    continue
                doubted[index] |= verdict.in_doubt
                last[index] = verdict
                if verdict.again:
                    again.append(index)
                    held.hold(calls[index])
                else:
                    done[index] = _error(calls[index], verdict, doubted[index])
        todo = sorted((*again, *todo))
        if not todo:
            break
        pause = 0.0
        if again and rushes < MAX_RUSHES and all(last[index].at_once for index in again):
            rushes += 1
        else:
            left = end - clock() - SHORTEST_RETRY_S
            pause = _pause(attempt, rng, (last[index].retry_after_s for index in again), left)
            attempt += 1
        if not again or clock() + pause + SHORTEST_RETRY_S >= end:
            for index in todo:
                done[index] = _error(calls[index], last[index], doubted[index])
            break
        if pause:
            yield Sleep(pause)
    return [result for result in done if result is not None]


class _Held:
    """Until the next attempt, what waits behind a call that is to be repeated: its lane, since what refused one will
    refuse the next; and its user, whose calls may by then have another lane, and keep their order."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lanes: set[object] = set()
        self._users: set[str] = set()

    def hold(self, call: Call) -> None:
        self._lanes.add(self._wire.lane(call))
        self._users.add(call.user)

    def without(self, todo: list[int], calls: Sequence[Call]) -> list[int]:
        if not self._users:
            return todo
        return [index for index in todo if self._free(calls[index])]

    def _free(self, call: Call) -> bool:
        return call.user not in self._users and self._wire.lane(call) not in self._lanes


def _without(todo: list[int], covered: Sequence[int]) -> list[int]:
    gone = set(covered)
    return [index for index in todo if index not in gone]


_NOT_TRIED = Refusal("the deadline passed before it was sent", "deadline", again=True, retryable=True)


def attempt_s(left: float, share: float, calls: Sequence[Call] = ()) -> float:
    """How long one attempt may take: a share of what is left, so that one dead connection does not eat the whole
    deadline; all of it when a second attempt is impossible anyway."""
    if all(call.repeatable for call in calls):
        return max(left * share, min(left, SHORTEST_ATTEMPT_S))
    return left


def _pause(attempt: int, rng: random.Random, asked_for: Iterable[float | None], left: float) -> float:
    # Full jitter: many publishers that failed at the same moment must not come back at the same moment.
    # That holds for a time they were all told to wait, too. Drawn from what is left: else an unlucky draw would be the
    # end of an attempt for which there was time.
    window = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt, 10), max(left, 0.0))
    pause = rng.uniform(0, window)
    return pause + max((seconds for seconds in asked_for if seconds is not None), default=0.0)


def _error(call: Call, refusal: Refusal, doubted: bool) -> PublishError:
    return PublishError(
        refusal.why,
        code=refusal.code,
        retryable=refusal.retryable,
        outcome_unknown=doubted,
        retry_after_s=refusal.retry_after_s,
        idempotency_key=call.idempotency_key,
    )
