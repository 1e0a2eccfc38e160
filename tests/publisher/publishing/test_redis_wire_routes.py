"""Calls on their way through a Cluster, and replicas asked for: batches and verdicts, without a network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tidings.event import Event
from tidings.log.eventlog import LogLimits
from tidings.log.names import Names, slot_of
from tidings.log.receipt import Receipt
from tidings.publishing.cluster_route import ClusterRoute
from tidings.publishing.faults import ServerError
from tidings.publishing.message import AskPosition, Call, Publish
from tidings.publishing.plan import Batch, Failure, Outcome, Refusal, Verdict
from tidings.publishing.redis_wire import RedisWire
from tidings.publishing.routes import OneServer, Route, Server
from tidings.redis_url import Address, parse_redis_url

EVENT = Event.encode("a", "x", time_ms=0)
A, B, C = (Server(Address(name, 6379)) for name in "abc")
STORED = [b"EpochOne.2-7", 0, 3]
RECORD = b"eEpochOne.1-5 EpochOne.2-7\n{}"


def durable(user: str, replicas: int = 0) -> Publish:
    return Publish(user, EVENT, "k", replicas)


def low(name: str) -> str:
    """A user whose slot is in the lower half."""
    return next(user for number in range(99) if slot_of(user := f"{name}{number}") < 8192)


def high(name: str) -> str:
    return next(user for number in range(99) if slot_of(user := f"{name}{number}") >= 8192)


ANN, BOB, CID = low("ann"), high("bob"), low("cid")


def make(route: Route) -> RedisWire:
    return RedisWire(Names("p"), LogLimits(), "trust", random.Random(1), route)


@pytest.fixture
def wire() -> RedisWire:
    """In a Cluster of `a` (lower half) and `b`, whose map is known."""
    wire = make(ClusterRoute(parse_redis_url("redis+cluster://a")))
    batch = wire.batch([durable(ANN)], 2.0)
    assert (list(batch.covers), batch.request.commands) == ([], (("CLUSTER", "SLOTS"),))
    assert batch.timeout_s < 1.0, "a question must leave time for another one, and for what it is about"
    assert wire.learn(Outcome([[[0, 8191, [b"a", 6379]], [8192, 16383, [b"b", 6379]]]])) is None
    return wire


def answer(wire: RedisWire, calls: Sequence[Call], *answers: Any) -> list[Verdict]:
    return wire.verdicts(calls, Outcome([ServerError(item) if isinstance(item, str) else item for item in answers]))


def words(batch: Batch) -> list[bytes | str]:
    return [command[0] for command in batch.request.commands]


def test_one_pipeline_per_node_in_each_user_s_order(wire: RedisWire) -> None:
    """Those of one node go together, whatever stands between them; the lanes are the nodes."""
    calls = [durable(ANN), durable(BOB), durable(CID), durable(ANN), durable(BOB)]
    batch = wire.batch(calls, 2.0)
    assert (batch.request.server, list(batch.covers)) == (A, [0, 2, 3])
    batch = wire.batch([calls[1], calls[4]], 2.0)
    assert (batch.request.server, list(batch.covers)) == (B, [0, 1])
    assert wire.lane(calls[0]) == wire.lane(calls[2]) == A
    assert wire.lane(calls[1]) == B
    assert batch.request.known == {A, B}


def test_sharded_channels(wire: RedisWire) -> None:
    """SPUBLISH, for durable and ephemeral ones; no ROLE: a replica sends a command of a slot to its primary."""
    batch = wire.batch([durable(ANN), Publish(ANN, EVENT, None), AskPosition(ANN)], 2.0)
    append, publish, read = batch.request.commands[batch.request.preparing :]
    assert append[-1] == b"SPUBLISH"
    assert publish[0] == b"SPUBLISH"
    assert read[0] == b"EVALSHA"


def test_moved_asks_for_the_map(wire: RedisWire) -> None:
    """It has not run, so it is repeated at once, to whoever the new map names."""
    calls = [durable(ANN)]
    wire.batch(calls, 2.0)
    (verdict,) = answer(wire, calls, "MOVED 5 c:6379")
    assert isinstance(verdict, Refusal)
    assert (verdict.again, verdict.at_once, verdict.in_doubt) == (True, True, False)
    batch = wire.batch(calls, 2.0)
    assert (batch.request.server, words(batch)) == (C, ["CLUSTER"])
    wire.learn(Outcome([[[0, 16383, [b"c", 6379]]]]))
    assert wire.batch(calls, 2.0).request.server == C


def test_ask_is_followed_once_and_those_who_listen_are_told(wire: RedisWire) -> None:
    """ASKING and the command on one connection, alone; then the record to the node that said ASK; then the receipt."""
    calls = [durable(ANN), durable(ANN)]
    wire.batch(calls, 2.0)
    first, _ = answer(wire, calls, "ASK 5 c:6379", "ASK 5 c:6379")
    assert isinstance(first, Refusal)
    assert (first.again, first.at_once, first.in_doubt) == (True, True, False)

    batch = wire.batch(calls, 2.0)
    assert (batch.request.server, list(batch.covers)) == (C, [0])
    assert words(batch) == ["SCRIPT", "SCRIPT", b"ASKING", b"EVALSHA"]
    assert batch.request.preparing == 3
    assert batch.request.commands[-1][2] == b"1", "of several keys one that is absent would be refused"
    (told,) = answer(wire, calls[:1], [*STORED, RECORD])
    assert isinstance(told, Refusal)
    assert (told.again, told.at_once, told.in_doubt) == (True, True, True)

    batch = wire.batch(calls, 2.0)
    assert (batch.request.server, list(batch.covers)) == (A, [0])
    assert batch.request.commands == ((b"SPUBLISH", b"p:{%b}" % ANN.encode(), RECORD),)
    assert answer(wire, calls[:1], 2) == [Receipt("EpochOne.2-7", False, 5)]
    assert wire.batch(calls[1:], 2.0).request.server == C


def test_a_detour_does_not_change_the_order(wire: RedisWire) -> None:
    """What comes behind a call that is to be sent elsewhere waits for it; other users do not."""
    calls = [durable(CID), durable(ANN), durable(ANN)]
    wire.batch(calls[1:2], 2.0)
    answer(wire, calls[1:2], "ASK 5 c:6379")
    assert list(wire.batch(calls, 2.0).covers) == [0]


@pytest.mark.parametrize("outcome", [Outcome([ServerError("MOVED 5 c:6379")]), Outcome(failure=Failure("gone"))])
def test_an_old_owner_that_cannot_be_told(wire: RedisWire, outcome: Outcome) -> None:
    """The event is stored, so the receipt stands: its listeners have lost it too, and will read the log."""
    calls = [durable(ANN)]
    wire.batch(calls, 2.0)
    answer(wire, calls, "ASK 5 c:6379")
    wire.batch(calls, 2.0)
    answer(wire, calls, [*STORED, RECORD])
    wire.batch(calls, 2.0)
    assert wire.verdicts(calls, outcome) == [Receipt("EpochOne.2-7", False, 3)]


def test_a_record_that_is_gone_is_not_told(wire: RedisWire) -> None:
    """A repeated event whose entry was trimmed since: whoever is that far behind gets a resync."""
    calls = [durable(ANN)]
    wire.batch(calls, 2.0)
    answer(wire, calls, "ASK 5 c:6379")
    wire.batch(calls, 2.0)
    assert answer(wire, calls, [b"EpochOne.2-7", 1, 0, b""]) == [Receipt("EpochOne.2-7", True, 0)]


@pytest.mark.parametrize("trouble", ["CLUSTERDOWN x", "READONLY x", "LOADING x", Failure("gone", sent=True)])
def test_doubt_asks_for_the_map_anew(wire: RedisWire, trouble: Any) -> None:
    """Before anything else is sent; an exchange that never began says nothing about the node."""
    calls = [durable(ANN)]
    wire.batch(calls, 2.0)
    wire.verdicts(calls, Outcome(failure=Failure("all were busy", "busy")))
    assert words(wire.batch(calls, 2.0)) == [b"EVALSHA"]
    wire.verdicts(calls, Outcome(failure=trouble) if isinstance(trouble, Failure) else Outcome([ServerError(trouble)]))
    assert words(wire.batch(calls, 2.0)) == ["CLUSTER"]


def test_a_slot_that_moves_is_waited_for(wire: RedisWire) -> None:
    """TRYAGAIN: with a pause, and known not to be stored."""
    wire.batch([durable(ANN)], 2.0)
    (verdict,) = answer(wire, [durable(ANN)], "TRYAGAIN Multiple keys request during rehashing of slot")
    assert isinstance(verdict, Refusal)
    assert (verdict.again, verdict.at_once, verdict.in_doubt) == (True, False, False)


def test_what_a_replica_would_take() -> None:
    """ROLE goes before it; the answer of a replica makes it a refusal, whatever else was answered."""
    wire = make(OneServer())
    calls: list[Call] = [durable(ANN), Publish(ANN, EVENT, None), AskPosition(ANN)]
    batch = wire.batch(calls, 2.0)
    assert words(batch)[batch.request.preparing :] == [b"ROLE", b"EVALSHA", b"PUBLISH", b"EVALSHA"]
    page = [b"EpochOne.7-8", b"EpochOne.7-8", b"", -1, []]
    role = [b"slave", b"h", 6379, b"connected", 7]
    verdicts = answer(wire, calls, role, "READONLY You can't write", 0, page)
    assert [isinstance(verdict, Refusal) and verdict.code for verdict in verdicts] == ["read_only"] * 3
    wire.batch(calls, 2.0)
    verdicts = answer(wire, calls, "NOPERM this user has no permissions to run the 'role' command", STORED, 1, page)
    assert verdicts == [Receipt("EpochOne.2-7", False, 3), Receipt(None, False, 1), "EpochOne.7-8"]
    assert words(wire.batch([durable(ANN)], 2.0)) == [b"EVALSHA"]


def replicated(*answers: Any, calls: Sequence[Call], failure: Failure | None = None) -> list[Verdict]:
    wire = make(OneServer())
    batch = wire.batch(calls, 2.0)
    assert batch.request.commands[-1][:2] == (b"WAIT", b"2")
    wait_ms = int(batch.request.commands[-1][2])
    assert 0.5 * batch.timeout_s < wait_ms / 1000 <= batch.timeout_s - 0.15
    return wire.verdicts(calls, Outcome(answers, failure))


def test_one_wait_for_all() -> None:
    """Each call is judged by what it asked for itself."""
    calls = [durable(ANN, 2), durable(BOB), durable(CID, 1)]
    enough, none, one = replicated(STORED, STORED, STORED, 2, calls=calls)
    assert enough == none == one == Receipt("EpochOne.2-7", False, 3)
    few, none, one = replicated(STORED, STORED, STORED, 1, calls=calls)
    assert none == one == Receipt("EpochOne.2-7", False, 3)
    assert isinstance(few, Refusal)
    assert (few.code, few.again, few.retryable, few.in_doubt) == ("unreplicated", True, True, True)


def test_a_duplicate_is_waited_for_as_well() -> None:
    """The script touches the key, so there is a write to be confirmed."""
    (verdict,) = replicated([b"EpochOne.2-7", 1, 0], 1, calls=[durable(ANN, 2)])
    assert isinstance(verdict, Refusal)
    assert verdict.code == "unreplicated"


def test_a_wait_without_an_answer() -> None:
    """Stored, and not known to be replicated: never a receipt."""
    (lost,) = replicated(STORED, calls=[durable(ANN, 2)], failure=Failure("gone", sent=True))
    (forbidden,) = replicated(STORED, ServerError("NOPERM no permission for 'wait'"), calls=[durable(ANN, 2)])
    for verdict, again in ((lost, True), (forbidden, False)):
        assert isinstance(verdict, Refusal)
        assert (verdict.code, verdict.again, verdict.in_doubt) == ("unreplicated", again, True)


def test_what_was_refused_is_not_waited_for() -> None:
    """The refusal says more than the number of replicas."""
    (verdict,) = replicated(ServerError("NOREPLICAS Not enough good replicas"), 2, calls=[durable(ANN, 2)])
    assert isinstance(verdict, Refusal)
    assert (verdict.code, verdict.in_doubt) == ("no_replicas", False)


def test_the_shortest_wait_is_not_for_ever() -> None:
    """WAIT takes 0 for no limit."""
    batch = make(OneServer()).batch([durable(ANN, 2)], 0.01)
    assert batch.request.commands[-1][2] == b"1"
