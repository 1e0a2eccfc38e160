"""Calls as Redis commands, and replies as verdicts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tidings.event import Event
from tidings.log.eventlog import APPEND, READ, SCRIPTS, LogLimits
from tidings.log.names import Names
from tidings.log.receipt import Receipt
from tidings.publishing.faults import ServerError
from tidings.publishing.message import AskPosition, Call, Publish
from tidings.publishing.plan import Failure, Outcome, Refusal
from tidings.publishing.redis_wire import PIPELINE_BYTES, PIPELINE_CALLS, RedisRequest, RedisWire
from tidings.publishing.routes import OneServer

EVENT = Event.encode("a", "x", time_ms=0)
DURABLE = Publish("alice", EVENT, "k")
EPHEMERAL = Publish("alice", EVENT, None)
ASK = AskPosition("alice")


ROLE = (b"ROLE",)


class Wire(RedisWire):
    def request(self, calls: Sequence[Call]) -> tuple[RedisRequest, int]:
        batch = self.batch(calls, 2.0)
        assert list(batch.covers) == list(range(len(batch.covers)))
        return batch.request, len(batch.covers)


@pytest.fixture
def wire() -> Wire:
    return Wire(Names("p"), LogLimits(max_events=5), "trust", random.Random(1), OneServer())


def test_one_call_is_one_command(wire: Wire) -> None:
    """No loading ahead: the server knows the script nearly always."""
    request, count = wire.request([DURABLE])
    (command,) = request.commands
    assert (count, request.preparing) == (1, 0)
    assert command[:6] == (
        b"EVALSHA",
        APPEND.sha.encode(),
        b"3",
        b"p:{alice}:meta",
        b"p:{alice}:log",
        b"p:{alice}:idem:k",
    )
    assert command[6:8] == (b"p:{alice}", EVENT.body)
    assert command[-1] == b"PUBLISH"
    request, _ = wire.request([EPHEMERAL])
    assert request.commands == (ROLE, (b"PUBLISH", b"p:{alice}", b"x\n" + EVENT.body))
    request, _ = wire.request([ASK])
    assert request.commands[0] == ROLE
    assert request.commands[1][1] == READ.sha.encode()


def test_a_pipeline_begins_by_loading(wire: Wire) -> None:
    """Or its head could fail with NOSCRIPT while its tail is stored, in another order."""
    request, count = wire.request([DURABLE] * 3)
    assert (count, request.preparing) == (3, 2)
    assert request.commands[:2] == tuple(("SCRIPT", "LOAD", script.text) for script in SCRIPTS)


def test_a_forgotten_script_is_loaded_and_tried_at_once(wire: Wire) -> None:
    """NOSCRIPT means that nothing happened."""
    wire.request([DURABLE])
    (verdict,) = wire.verdicts([DURABLE], Outcome([ServerError("NOSCRIPT No matching script.")]))
    assert isinstance(verdict, Refusal)
    assert (verdict.again, verdict.at_once, verdict.in_doubt) == (True, True, False)
    assert wire.request([DURABLE])[0].preparing == 2


def test_every_attempt_has_its_own_epoch_and_tag_and_the_same_key(wire: Wire) -> None:
    """A repetition must be recognised, never mistaken for the same entry."""
    first, second = (wire.request([DURABLE])[0].commands[0] for _ in range(2))
    assert first[8:10] != second[8:10]
    assert (*first[:8], *first[10:]) == (*second[:8], *second[10:])


def test_pipelines_are_bounded(wire: Wire) -> None:
    """By count and by bytes, at least one call."""
    assert wire.request([DURABLE] * 1000)[1] == PIPELINE_CALLS
    large = Publish("alice", Event.encode("a", "x" * 65_000, time_ms=0), "k")
    count = wire.request([large] * 100)[1]
    assert 1 < count <= PIPELINE_BYTES // 65_000
    huge = Publish("alice", Event.encode("a", "x" * 2_000_000, time_ms=0, max_bytes=3_000_000), "k")
    assert wire.request([huge, DURABLE])[1] == 1


def test_answers(wire: Wire) -> None:
    """Receipts and positions, as the scripts give them."""
    wire.request([DURABLE, DURABLE, EPHEMERAL, ASK])
    answers: list[Any] = [
        [b"master", 7, []],
        [b"EpochOne.1-2", 0, 3],
        [b"EpochOne.1-2", 1, 0],
        4,
        [b"EpochOne.7-8", b"EpochOne.7-8", b"", -1, []],
    ]
    verdicts = wire.verdicts([DURABLE, DURABLE, EPHEMERAL, ASK], Outcome(answers))
    assert verdicts == [
        Receipt("EpochOne.1-2", False, 3),
        Receipt("EpochOne.1-2", True, 0),
        Receipt(None, False, 4),
        "EpochOne.7-8",
    ]


def test_a_pipeline_that_breaks_half_way(wire: Wire) -> None:
    """What was answered stands; the rest is in doubt, and repeated only if that is safe."""
    wire.request([DURABLE, DURABLE, EPHEMERAL])
    outcome = Outcome([[b"master", 7, []], [b"EpochOne.1-2", 0, 3]], Failure("broke", sent=True))
    stored, repeated, lost = wire.verdicts([DURABLE, DURABLE, EPHEMERAL], outcome)
    assert stored == Receipt("EpochOne.1-2", False, 3)
    assert isinstance(repeated, Refusal)
    assert isinstance(lost, Refusal)
    assert (repeated.again, repeated.in_doubt) == (True, True)
    assert (lost.again, lost.in_doubt) == (False, True)


def test_errors_in_the_middle_of_a_pipeline(wire: Wire) -> None:
    """An error is the answer of its own command alone."""
    wire.request([DURABLE, DURABLE])
    full = ServerError("OOM command not allowed")
    verdicts = wire.verdicts([DURABLE, DURABLE], Outcome([full, [b"EpochOne.1-2", 0, 0]]))
    assert isinstance(verdicts[0], Refusal)
    assert (verdicts[0].code, verdicts[0].again, verdicts[0].in_doubt) == ("storage_full", True, False)
    assert verdicts[1] == Receipt("EpochOne.1-2")
    (odd,) = wire.verdicts([DURABLE], Outcome([ServerError("ERR who knows")]))
    assert isinstance(odd, Refusal)
    assert (odd.again, odd.in_doubt) == (False, True)
