"""What every publisher does: blocking or not, over Redis or over HTTP, the same calls, results and errors."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.publisher.conftest import Make
from tests.support.ports import free_port
from tests.support.tokens import API_KEY
from tests.support.waiting import BUSY_S
from tidings import InvalidEvent, InvalidUser, Message, PublishError, Receipt
from tidings.log.position import Position


def test_publish_gives_a_receipt(publisher: Any) -> None:
    """The receipt holds the position, which is the user's position from then on."""
    before = publisher.position("alice")
    assert Position.parse(before).seq == 0
    first = publisher.publish("alice", "job.complete", {"job": 1})
    second = publisher.publish("alice", "job.complete", {"job": 2}, key="job 2")
    assert isinstance(first, Receipt)
    assert [Position.parse(receipt.position or "").seq for receipt in (first, second)] == [1, 2]
    assert publisher.position("alice") == second.position


def test_the_same_idempotency_key_stores_once(publisher: Any) -> None:
    """The second call gets the first one's position and is told so; without a key, two calls are two events."""
    first = publisher.publish("alice", "a", 1, idempotency_key="k")
    again = publisher.publish("alice", "a", 1, idempotency_key="k")
    assert (again.position, again.duplicate, first.duplicate) == (first.position, True, False)
    assert publisher.publish("alice", "a", 1).position != publisher.publish("alice", "a", 1).position


def test_an_ephemeral_event_has_no_position(publisher: Any) -> None:
    """It is told and not stored."""
    before = publisher.position("alice")
    receipt = publisher.publish("alice", "job.progress", 0.5, ephemeral=True)
    assert (receipt.position, receipt.duplicate) == (None, False)
    assert publisher.position("alice") == before


def test_several_users_get_one_result_each(publisher: Any) -> None:
    """In their order; a bad user is an error in its place and holds nobody up."""
    results = publisher.publish(["alice", "not a user", "bob", "alice"], "a", 1)
    assert isinstance(results[1], InvalidUser)
    assert [Position.parse(results[index].position).seq for index in (0, 2, 3)] == [1, 1, 2]
    assert publisher.publish(("alice",), "a")[0].position == publisher.position("alice")
    assert publisher.publish([], "a") == []


def test_many_messages_get_one_result_each(publisher: Any) -> None:
    """In their order, stored in their order; a bad message is an error in its place."""
    messages = [Message("alice", "a", number) for number in range(300)]
    messages[7] = Message("alice", "a", float("nan"))
    messages[8] = Message("*", "a", 1)
    messages[9] = Message("alice", "a b", 1)
    messages[10] = Message("alice", "a", 1, ephemeral=True, idempotency_key="k")
    messages[11] = Message("alice", "a", 1, ephemeral=True)
    results = publisher.publish_many(iter(messages))
    kinds = [InvalidEvent, InvalidUser, InvalidEvent, InvalidEvent]
    assert [type(result) for result in results[7:11]] == kinds
    assert results[7].path == "data"
    assert results[11].position is None
    stored = [result for result in results if isinstance(result, Receipt) and result.position]
    assert [Position.parse(receipt.position or "").seq for receipt in stored] == list(range(1, 296))
    assert publisher.publish_many([]) == []


def test_bad_arguments_are_refused_before_anything_is_sent(publisher: Any) -> None:
    """User, type, data, key and idempotency key."""
    before = publisher.position("alice")
    for arguments, error in (
        (("not a user", "a", 1), InvalidUser),
        ((None, "a", 1), InvalidUser),
        (("alice", "a b", 1), InvalidEvent),
        (("alice", "a", {"x": {1}}), InvalidEvent),
        (("alice", "a", "x" * 70_000), InvalidEvent),
    ):
        with pytest.raises(error):
            publisher.publish(*arguments)
    with pytest.raises(InvalidEvent):
        publisher.publish("alice", "a", 1, key="")
    with pytest.raises(InvalidEvent):
        publisher.publish("alice", "a", 1, idempotency_key="é")
    with pytest.raises(InvalidUser):
        publisher.position("*")
    assert publisher.position("alice") == before


def test_a_closed_publisher_says_so(publisher: Any) -> None:
    """After close nothing is opened again in silence; closing twice does no harm."""
    publisher.publish("alice", "a", 1)
    publisher.close()
    with pytest.raises(PublishError) as caught:
        publisher.publish("alice", "a", 1)
    assert (caught.value.code, caught.value.retryable, caught.value.outcome_unknown) == ("closed", False, False)
    publisher.close()


@pytest.mark.parametrize("scheme", ["redis", "http"])
def test_nobody_listens(make: Make, scheme: str) -> None:
    """A dead port: retried until the deadline, then an error that says that nothing was stored, and may be retried."""
    url = f"{scheme}://127.0.0.1:{free_port()}"
    named = {"api_key": API_KEY} if scheme == "http" else {}
    with make(url, deadline_s=0.4, **named) as publisher:
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1)
        assert 0.1 <= time.monotonic() - start <= 0.4 + BUSY_S
        assert (caught.value.code, caught.value.retryable) == ("unavailable", True)
        assert caught.value.outcome_unknown is False
        assert isinstance(publisher.publish_many([Message("alice", "a", 1)])[0], PublishError)
