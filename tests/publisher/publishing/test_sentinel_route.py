"""Asking Sentinels who is primary, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from tests.publisher.publishing.asking import ask
from tidings.publishing.faults import ServerError
from tidings.publishing.plan import Failure, Outcome, Refusal
from tidings.publishing.routes import Question, Server
from tidings.publishing.sentinel_route import SentinelRoute
from tidings.redis_url import Address, parse_redis_url

ONE, TWO, THREE = (Server(Address(f"s{number}", 26379), sentinel=True) for number in (1, 2, 3))
OLD, NEW = Server(Address("10.0.0.1", 6379)), Server(Address("10.0.0.2", 6380))


@pytest.fixture
def route() -> SentinelRoute:
    return SentinelRoute(parse_redis_url("redis+sentinel://s1,s2,s3/orders"))


def told(route: SentinelRoute, server: Server, epoch: int) -> Refusal | None:
    """The next Sentinel names `server`, by a decision of this number."""
    question = route.question()
    assert question is not None
    host, port = server.address
    where = [host.encode(), b"%d" % port]
    return route.learn(question, Outcome([where, [b"name", b"orders", b"config-epoch", b"%d" % epoch]]))


def test_a_majority_is_asked(route: SentinelRoute) -> None:
    """Once, for all users, until there is doubt."""
    assert route.server("ann") is None
    more = (("SENTINEL", "MASTER", "orders"),)
    assert route.question() == Question(ONE, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "orders"), more)
    assert told(route, OLD, 1) is None
    assert route.question() == Question(TWO, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "orders"), more)
    assert told(route, OLD, 1) is None
    assert route.question() is None
    assert route.server("ann") == route.server("bob") == OLD
    assert route.known == {ONE, TWO, THREE, OLD}
    assert not route.sharded


def test_the_newest_decision_is_believed(route: SentinelRoute) -> None:
    """One Sentinel that was cut off with the old primary is outvoted by any that was not; alone it is not believed,
    once more is known; a majority is, since then somebody made them begin anew."""
    told(route, OLD, 1)
    told(route, NEW, 2)
    assert route.server("ann") == NEW
    route.doubt(NEW)
    ask(route, Failure("gone"))
    ask(route, Failure("gone"))
    refusal = told(route, OLD, 1)
    assert refusal is not None
    assert "outdated" in refusal.why
    told(route, OLD, 1)
    told(route, OLD, 0)
    assert route.server("ann") == OLD


def test_whoever_answers_is_enough_when_others_do_not(route: SentinelRoute) -> None:
    """Without a majority nothing is decided anew either."""
    assert ask(route, Failure("gone")) is not None
    assert told(route, OLD, 1) is None
    assert ask(route, Failure("gone")) is None
    assert route.server("ann") == OLD


def test_doubt_asks_another_one_first(route: SentinelRoute) -> None:
    """The one that named the wrong server may lag behind; the old primary's connections are not kept."""
    ask(route, [b"10.0.0.1", b"6379"])
    ask(route, [b"10.0.0.1", b"6379"])
    route.doubt(OLD)
    question = route.question()
    assert question is not None
    assert question.server == TWO
    assert ask(route, [b"10.0.0.2", b"6380"]) is None
    assert ask(route, [b"10.0.0.2", b"6380"]) is None
    assert route.server("ann") == NEW
    assert OLD not in route.known


def test_late_doubt_in_the_old_primary_changes_nothing(route: SentinelRoute) -> None:
    """A thread that still waited for the old one hears of its end when the new one is long known."""
    ask(route, [b"10.0.0.2", b"6380"])
    late = route.question()
    ask(route, [b"10.0.0.2", b"6380"])
    route.doubt(OLD)
    assert route.question() is None
    assert late is not None
    assert route.learn(late, Outcome([[b"10.0.0.1", b"6379"]])) is None
    assert route.server("ann") == NEW


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "knows no service called orders"),
        (Failure("took too long", "timeout"), "s1:26379 does not answer: took too long"),
        (ServerError("NOAUTH Authentication required."), "sentinel_password"),
        (ServerError("ERR unknown command 'SENTINEL'"), "SENTINEL"),
        (7, "no Sentinel"),
        ([b"h"], "no Sentinel"),
        ([b"h", b"port"], "no Sentinel"),
    ],
)
def test_what_does_not_help(route: SentinelRoute, answer: Any, why: str) -> None:
    """Said in words; the next one is asked at once, and nothing is in doubt, since nothing was sent."""
    refusal = ask(route, answer)
    assert refusal is not None
    assert why in refusal.why
    assert (refusal.again, refusal.at_once, refusal.retryable, refusal.in_doubt) == (True, True, True, False)
    question = route.question()
    assert question is not None
    assert question.server == TWO


def test_a_single_sentinel_is_not_asked_in_a_rush() -> None:
    """There is no other one, so the plan makes its pauses."""
    refusal = ask(SentinelRoute(parse_redis_url("redis+sentinel://s1/orders")), None)
    assert refusal is not None
    assert not refusal.at_once
