"""Calls as Redis commands, and replies as verdicts. Sans-I/O."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    read_command,
)
from tidings.log.names import Names
from tidings.log.receipt import Receipt
from tidings.log.record import encode_ephemeral
from tidings.publishing.faults import NOSCRIPT, ServerError, fault_of
from tidings.publishing.message import AskPosition, Call
from tidings.publishing.plan import Outcome, Refusal, Verdict, refusal_of

PIPELINE_CALLS = 128
PIPELINE_BYTES = 1_048_576

RedisCommand = tuple[bytes | str, ...]


class RedisRequest(NamedTuple):
    """Commands to send as one pipeline on one connection. The first `preparing` of them only prepare: their replies
    are no answers."""

    commands: tuple[RedisCommand, ...]
    preparing: int


class RedisWire:
    share = 0.5

    def __init__(self, names: Names, limits: LogLimits, failover: Failover, rng: random.Random) -> None:
        self._names = names
        self._limits = limits
        self._failover: Failover = failover
        self._rng = rng
        self._forgotten = False

    def request(self, calls: Sequence[Call]) -> tuple[RedisRequest, int]:
        commands: list[RedisCommand] = []
        size = 0
        for call in calls[:PIPELINE_CALLS]:
            command = self._command(call)
            size += sum(map(len, command))
            if commands and size > PIPELINE_BYTES:
                break
            commands.append(command)
        # A pipeline whose head fails with NOSCRIPT while its tail succeeds would store events in another order.
        loads: list[RedisCommand] = []
        if len(commands) > 1 or self._forgotten:
            loads = [("SCRIPT", "LOAD", script.text) for script in SCRIPTS]
        return RedisRequest((*loads, *commands), len(loads)), len(commands)

    def _command(self, call: Call) -> RedisCommand:
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
            return (b"PUBLISH", self._names.channel(call.user), encode_ephemeral(call.event.body))
        return append_command(
            self._names,
            call.user,
            call.event.body,
            epoch=new_epoch(self._rng),
            tag=new_tag(self._rng),
            idempotency_key=call.idempotency_key,
            limits=self._limits,
        ).evalsha()

    def verdicts(self, calls: Sequence[Call], outcome: Outcome) -> list[Verdict]:
        verdicts = [self._verdict(call, answer) for call, answer in zip(calls, outcome.answers, strict=False)]
        if outcome.failure is not None:
            verdicts += [refusal_of(outcome.failure, call) for call in calls[len(verdicts) :]]
        return verdicts

    def _verdict(self, call: Call, answer: Any) -> Verdict:
        if isinstance(answer, ServerError):
            if answer.code == NOSCRIPT:
                self._forgotten = True
                why = "Redis forgot the script, again and again: is somebody flushing scripts?"
                return Refusal(why, "unavailable", again=True, at_once=True, retryable=True)
            fault = fault_of(answer)
            return Refusal(
                fault.words, fault.code, again=fault.retryable, retryable=fault.retryable, in_doubt=not fault.known
            )
        if isinstance(call, AskPosition):
            return parse_page(answer).top.decode("ascii")
        if call.ephemeral:
            return Receipt(None, listening=answer)
        return parse_append(answer)
