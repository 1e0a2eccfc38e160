"""Calls as Redis commands, and replies as verdicts. Sans-I/O.

One server, Sentinels or a Cluster: what differs is the route. What a Cluster adds is here too: a user whose slot moves.
After MOVED the route asks for the new map. After ASK the command goes to the new owner, once, behind ASKING; but those
who listen are still with the old owner, so that it is told the record as well (a feed that hears it twice drops one).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidings.log.eventlog import (
    SCRIPTS,
    Failover,
    LogLimits,
    append_command,
    new_epoch,
    new_tag,
    parse_append,
    parse_page,
    parse_record_of,
    read_command,
)
from tidings.log.names import Names
from tidings.log.receipt import Receipt
from tidings.log.record import encode_ephemeral
from tidings.publishing.faults import FAULTS, NOSCRIPT, Fault, ServerError, fault_of, is_doubtful, is_replica
from tidings.publishing.message import AskPosition, Call
from tidings.publishing.plan import Batch, Outcome, Refusal, Verdict, attempt_s, refusal_of
from tidings.publishing.routes import Question, RedisCommand, Route, Server
from tidings.publishing.slots import parse_redirect

SHARE = 0.5
QUESTION_SHARE = 0.25
"""Of the time left, for one attempt of a pipeline, and of a question where to send it."""
WAIT_MARGIN_S = 0.2
"""Of an attempt, not for replicas to confirm: the answer that there are too few must arrive in time, too, and Redis
looks only every 100 ms whether a WAIT is over."""
PIPELINE_CALLS = 128
PIPELINE_BYTES = 1_048_576


class RedisRequest(NamedTuple):
    """Commands to send as one pipeline on one connection to `server` (None: the one the URL names). The first
    `preparing` of them only prepare: their replies are no answers. `known`: see `Route`."""

    commands: tuple[RedisCommand, ...]
    preparing: int
    server: Server | None = None
    known: frozenset[Server] | None = None


@dataclass(frozen=True, slots=True)
class _Echo:
    """What the old owner of a moving slot must be told, and the verdict that stands when it has been."""

    owner: Server | None
    record: bytes
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last batch: what its answers mean depends on it. `asked_by`: who said ASK. `role`: the first answer is that
    to ROLE. The last one is that to WAIT, when a call asks for replicas."""

    server: Server | None
    question: Question | None = None
    asked_by: Server | None = None
    echo: _Echo | None = None
    role: bool = False


class RedisWire:
    def __init__(self, names: Names, limits: LogLimits, failover: Failover, rng: random.Random, route: Route) -> None:
        self._names = names
        self._limits = limits
        self._failover: Failover = failover
        self._rng = rng
        self._route = route
        self._forgotten = False
        self._sent = _Sent(None)
        # By the identity of the call; each is used once.
        self._asks: dict[int, tuple[Server, Server | None]] = {}
        self._echoes: dict[int, _Echo] = {}

    def lane(self, call: Call) -> object:
        return self._route.server(call.user)

    # Writing

    def batch(self, calls: Sequence[Call], left_s: float) -> Batch:
        if question := self._route.question():
            self._sent = _Sent(question.server, question)
            return Batch(self._request((question.command, *question.more)), (), attempt_s(left_s, QUESTION_SHARE))
        first = calls[0]
        if echo := self._echoes.pop(id(first), None):
            self._sent = _Sent(echo.owner, echo=echo)
            command = (b"SPUBLISH", self._names.channel(first.user), echo.record)
            return Batch(self._request((command,)), (0,), attempt_s(left_s, SHARE, (first,)))
        if ask := self._asks.pop(id(first), None):
            server, owner = ask
            self._sent = _Sent(server, asked_by=owner)
            # The new owner may never have run the script.
            return self._pipeline([first], (0,), [self._command(first, asked=True)], left_s, (*_LOADS, (b"ASKING",)))
        self._sent = _Sent(self._route.server(first.user))
        covers, commands = self._pick(calls)
        picked = [calls[index] for index in covers]
        # A pipeline whose head fails with NOSCRIPT while its tail succeeds would store events in another order.
        loads = _LOADS if len(commands) > 1 or self._forgotten else ()
        return self._pipeline(picked, covers, commands, left_s, loads)

    def _pick(self, calls: Sequence[Call]) -> tuple[list[int], list[RedisCommand]]:
        """Those that go to the same server as the first, in order, as many as a pipeline holds. A user of whom one was
        passed over has no later one picked."""
        covers: list[int] = []
        commands: list[RedisCommand] = []
        passed: set[str] = set()
        size = 0
        for index, call in enumerate(calls):
            detour = id(call) in self._asks or id(call) in self._echoes
            if detour or call.user in passed or self._route.server(call.user) != self._sent.server:
                passed.add(call.user)
                continue
            command = self._command(call)
            size += sum(map(len, command))
            if commands and size > PIPELINE_BYTES:
                break
            covers.append(index)
            commands.append(command)
            if len(commands) == PIPELINE_CALLS:
                break
        return covers, commands

    def _pipeline(
        self,
        calls: Sequence[Call],
        covers: Sequence[int],
        commands: list[RedisCommand],
        left_s: float,
        preparing: tuple[RedisCommand, ...],
    ) -> Batch:
        timeout_s = attempt_s(left_s, SHARE, calls)
        if not self._route.sharded and any(_works_on_replicas(call) for call in calls):
            self._sent = _Sent(self._sent.server, role=True)
            commands.insert(0, (b"ROLE",))
        if replicas := max(call.min_replicas for call in calls):
            wait_ms = max(1, int((timeout_s - WAIT_MARGIN_S) * 1000))  # 0 would be for ever
            commands.append((b"WAIT", b"%d" % replicas, b"%d" % wait_ms))
        return Batch(self._request((*preparing, *commands), len(preparing)), covers, timeout_s)

    def _request(self, commands: tuple[RedisCommand, ...], preparing: int = 0) -> RedisRequest:
        return RedisRequest(commands, preparing, self._sent.server, self._route.known)

    def _command(self, call: Call, *, asked: bool = False) -> RedisCommand:
        if isinstance(call, AskPosition):
            return read_command(
                self._names,
                call.user,
                None,
                new_epoch=new_epoch(self._rng),
                limit=0,
                meta_ttl_s=self._limits.meta_ttl_s,
                failover=self._failover,
            ).evalsha()
        if call.ephemeral:
            publish = b"SPUBLISH" if self._route.sharded else b"PUBLISH"
            return (publish, self._names.channel(call.user), encode_ephemeral(call.event.body))
        return append_command(
            self._names,
            call.user,
            call.event.body,
            epoch=new_epoch(self._rng),
            tag=new_tag(self._rng),
            idempotency_key=call.idempotency_key,
            limits=self._limits,
            sharded=self._route.sharded,
            asked=asked,
        ).evalsha()

    # Reading

    def learn(self, outcome: Outcome) -> Refusal | None:
        assert self._sent.question is not None
        return self._route.learn(self._sent.question, outcome)

    def verdicts(self, calls: Sequence[Call], outcome: Outcome) -> list[Verdict]:
        sent, failure, answers = self._sent, outcome.failure, outcome.answers
        if is_doubtful(answers) or (failure is not None and failure.code != "busy"):
            self._route.doubt(sent.server)
        if sent.echo is not None:
            return [_echoed(sent.echo, answers)]
        replica = sent.role and is_replica(answers[:1])
        answers = answers[1:] if sent.role else answers
        confirmed = answers[len(calls)] if len(answers) > len(calls) else None
        verdicts = [
            self._verdict(call, answer, replica, confirmed, outcome)
            for call, answer in zip(calls, answers, strict=False)
        ]
        if failure is not None:
            verdicts += [refusal_of(failure, call) for call in calls[len(verdicts) :]]
        return verdicts

    def _verdict(self, call: Call, answer: Any, replica: bool, confirmed: Any, outcome: Outcome) -> Verdict:
        if isinstance(answer, ServerError):
            return self._refusal(call, answer)
        if replica and _works_on_replicas(call):
            return _refused(FAULTS["READONLY"])
        if isinstance(call, AskPosition):
            return parse_page(answer).top.decode("ascii")
        if call.ephemeral:
            return Receipt(None, listening=answer)
        verdict: Verdict = parse_append(answer)
        if call.min_replicas:
            verdict = _unless_too_few(call, confirmed, outcome) or verdict
        if self._sent.asked_by is not None and (record := parse_record_of(answer)):
            self._echoes[id(call)] = _Echo(self._sent.asked_by, record, verdict)
            return _NOT_TOLD
        return verdict

    def _refusal(self, call: Call, error: ServerError) -> Refusal:
        if error.code == NOSCRIPT:
            self._forgotten = True
            why = "Redis forgot the script, again and again: is somebody flushing scripts?"
            return Refusal(why, "unavailable", again=True, at_once=True, retryable=True)
        if error.code in ("MOVED", "ASK") and self._sent.server is not None and self._route.sharded:
            target = Server(parse_redirect(error.text, self._sent.server.address).address)
            if error.code == "MOVED":
                self._route.moved(target)
            else:
                self._asks[id(call)] = (target, self._sent.server)
            return _MOVING
        return _refused(fault_of(error))


_LOADS: tuple[RedisCommand, ...] = tuple(("SCRIPT", "LOAD", script.text) for script in SCRIPTS)

_MOVING = Refusal(
    "the slot of this user moves, again and again", "unavailable", again=True, at_once=True, retryable=True
)
_NOT_TOLD = Refusal(
    "the deadline passed before those who listen were told", "deadline", again=True, at_once=True, in_doubt=True
)


def _works_on_replicas(call: Call) -> bool:
    """A replica takes it as a primary would, though nobody hears it there, or the answer is old."""
    return isinstance(call, AskPosition) or call.ephemeral


def _refused(fault: Fault) -> Refusal:
    return Refusal(fault.words, fault.code, again=fault.retryable, retryable=fault.retryable, in_doubt=not fault.known)


def _echoed(echo: _Echo, answers: Sequence[Any]) -> Verdict:
    """Whatever came of it. The event is stored; an old owner that cannot be told has lost its listeners as well, or
    says MOVED because the slot has gone, and those who listened then read the log."""
    if isinstance(echo.verdict, Receipt) and answers and isinstance(answers[0], int):
        return Receipt(echo.verdict.position, echo.verdict.duplicate, echo.verdict.listening + answers[0])
    return echo.verdict


def _unless_too_few(call: Call, confirmed: Any, outcome: Outcome) -> Refusal | None:
    """WAIT answers with how many replicas have all that was sent before it on this connection. Repeating the call goes
    on waiting: its idempotency key is found, and touched, which is a write to be confirmed in its turn."""
    if isinstance(confirmed, int) and confirmed >= call.min_replicas:
        return None
    retryable = True
    if isinstance(confirmed, int):
        why = f"only {confirmed} of the {call.min_replicas} replicas asked for have confirmed it"
    elif isinstance(confirmed, ServerError):
        fault = fault_of(confirmed)
        why, retryable = fault.words, fault.retryable
    else:
        assert outcome.failure is not None
        why = outcome.failure.why
    return Refusal(f"stored, but {why}", "unreplicated", again=retryable, retryable=retryable, in_doubt=True)
