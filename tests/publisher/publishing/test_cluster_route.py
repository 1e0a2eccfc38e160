"""Asking a Cluster who serves which slot, without a network."""

from __future__ import annotations

from typing import Any

import pytest

from tests.publisher.publishing.asking import ask
from tidings.log.names import slot_of
from tidings.publishing.cluster_route import ClusterRoute
from tidings.publishing.faults import ServerError
from tidings.publishing.plan import Failure
from tidings.publishing.routes import Question, Server
from tidings.redis_url import Address, parse_redis_url

SEED, OTHER_SEED = Server(Address("a", 6379)), Server(Address("z", 6379))
A, B = SEED, Server(Address("b", 6379))
LOW, HIGH = "user1", "user2"
WHOLE = [[0, 8191, [b"a", 6379, b"id"]], [8192, 16383, [b"b", 6379, b"id"]]]
SWAPPED = [[0, 8191, [b"b", 6379, b"id"]], [8192, 16383, [b"a", 6379, b"id"]]]

assert slot_of(LOW) < 8192 <= slot_of(HIGH)


@pytest.fixture
def route() -> ClusterRoute:
    return ClusterRoute(parse_redis_url("redis+cluster://a,z"))


def test_users_go_where_their_slots_are(route: ClusterRoute) -> None:
    """One question for all of them."""
    assert route.server(LOW) is None
    assert route.question() == Question(SEED, ("CLUSTER", "SLOTS"))
    assert ask(route, WHOLE) is None
    assert route.question() is None
    assert (route.server(LOW), route.server(HIGH)) == (A, B)
    assert route.known == {A, B, OTHER_SEED}
    assert route.sharded


def test_after_moved_the_node_it_names_is_asked(route: ClusterRoute) -> None:
    """It knows, when others may not have heard of it yet; also when it was not known before."""
    ask(route, WHOLE)
    new = Server(Address("n", 7))
    route.moved(new)
    question = route.question()
    assert question is not None
    assert question.server == new
    assert ask(route, SWAPPED) is None
    assert (route.server(LOW), route.server(HIGH)) == (B, A)


def test_a_dead_node_is_asked_last(route: ClusterRoute) -> None:
    """And every other one before it, seeds included."""
    ask(route, WHOLE)
    route.doubt(A)
    asked = []
    for _ in range(3):
        question = route.question()
        assert question is not None
        asked.append(question.server)
        ask(route, Failure("gone"))
    assert asked == [B, OTHER_SEED, A]
    assert ask(route, SWAPPED) is None
    assert route.server(LOW) == B


def test_a_slot_nobody_serves(route: ClusterRoute) -> None:
    """Sent to any node: it knows better by now, or says that the cluster is down."""
    ask(route, WHOLE[:1])
    assert route.server(HIGH) == A


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ([], "knows of nobody"),
        (7, "no answer"),
        (Failure("took too long", "timeout"), "a:6379 does not answer: took too long"),
        (ServerError("LOADING Redis is loading the dataset in memory"), "loading"),
    ],
)
def test_what_does_not_help(route: ClusterRoute, answer: Any, why: str) -> None:
    """Said in words; the next node is asked at once, and nothing is in doubt, since nothing was sent."""
    refusal = ask(route, answer)
    assert refusal is not None
    assert why in refusal.why
    assert (refusal.again, refusal.at_once, refusal.retryable, refusal.in_doubt) == (True, True, True, False)
    question = route.question()
    assert question is not None
    assert question.server == OTHER_SEED


def test_no_cluster_at_all(route: ClusterRoute) -> None:
    """Trying again is no use: the URL is wrong."""
    refusal = ask(route, ServerError("ERR This instance has cluster support disabled"))
    assert refusal is not None
    assert (refusal.code, refusal.again, refusal.retryable) == ("cluster", False, False)
    assert "redis://" in refusal.why
