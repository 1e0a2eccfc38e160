"""Checking before, and unpacking after."""

from __future__ import annotations

import pytest

from tests.publisher.publishing.test_config import config
from tidings.errors import InvalidEvent, InvalidUser, PublishError
from tidings.event import Event
from tidings.log.receipt import Receipt
from tidings.publishing.calls import (
    ask_position,
    check_each,
    check_messages,
    check_open,
    merge,
    position_of,
    receipt_of,
    sendable,
)
from tidings.publishing.message import Message, Publish

EVENT = Event.encode("a", None, time_ms=0)


def test_results_stand_where_their_messages_stood() -> None:
    """What was refused before sending and what came back are put together in the order of the call."""
    checks = check_each(
        ["a", "*", "b", "", "c"], EVENT, {"ephemeral": False, "idempotency_key": "k", "min_replicas": 2}
    )
    assert [(call.user, call.min_replicas) for call in sendable(checks)] == [("a", 2), ("b", 2), ("c", 2)]
    error = PublishError("x")
    merged = merge(checks, [Receipt("1"), error, Receipt("3")])
    assert merged[0] == Receipt("1")
    assert isinstance(merged[1], InvalidUser)
    assert merged[2] is error
    assert isinstance(merged[3], InvalidUser)
    assert merged[4] == Receipt("3")


def test_each_message_is_checked_on_its_own() -> None:
    """A bad one is an error in its place; the time is the same for all."""
    checks = check_messages(config(), [Message("a", "t", 1), Message("a", "t", {1}), Message("a", "t", 2)], 7)
    assert isinstance(checks[1], InvalidEvent)
    bodies = [check.event.body for check in checks if isinstance(check, Publish)]
    assert bodies == [b'{"event":"t","data":1,"time":7}', b'{"event":"t","data":2,"time":7}']


def test_an_error_for_one_is_raised() -> None:
    """A single call returns its result, or raises its error."""
    error = PublishError("x")
    for unpack in (receipt_of, position_of):
        with pytest.raises(PublishError) as caught:
            unpack(error)
        assert caught.value is error
    assert receipt_of(Receipt("1")) == Receipt("1")
    assert position_of("EpochOne.0-0") == "EpochOne.0-0"


def test_checks_before_anything() -> None:
    """A closed publisher, and a bad user, are told at once."""
    check_open(False)
    with pytest.raises(PublishError, match="closed"):
        check_open(True)
    with pytest.raises(InvalidUser):
        ask_position("*")
