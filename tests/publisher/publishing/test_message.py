"""Messages, checked before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from tidings.errors import InvalidEvent, InvalidUser
from tidings.event import Event
from tidings.log.eventlog import GENERATED_KEY
from tidings.log.names import check_idempotency_key
from tidings.publishing.message import MAX_MIN_REPLICAS, checked

EVENT = Event.encode("a", None, time_ms=0)


def test_a_durable_message_always_has_an_idempotency_key() -> None:
    """The caller's, or a random one that is marked as made up: own retries must never store twice."""
    own = checked("alice", EVENT, ephemeral=False, idempotency_key="order 7")
    assert own.idempotency_key == "order 7"
    made_up = [checked("alice", EVENT, ephemeral=False, idempotency_key=None).idempotency_key for _ in range(100)]
    assert len(set(made_up)) == 100
    for key in made_up:
        assert check_idempotency_key(key).startswith(GENERATED_KEY)
    assert own.repeatable
    assert not own.ephemeral


def test_an_ephemeral_message_has_none() -> None:
    """What is not stored cannot be recognised: to ask for it is an error, not a promise that is not kept."""
    message = checked("alice", EVENT, ephemeral=True, idempotency_key=None)
    assert message.ephemeral
    assert not message.repeatable
    with pytest.raises(InvalidEvent) as caught:
        checked("alice", EVENT, ephemeral=True, idempotency_key="k")
    assert caught.value.path == "idempotency_key"


def test_bad_users_and_keys() -> None:
    """Both are refused before anything is sent."""
    with pytest.raises(InvalidUser):
        checked("a b", EVENT, ephemeral=False, idempotency_key=None)
    with pytest.raises(InvalidEvent):
        checked("a", EVENT, ephemeral=False, idempotency_key="")


@pytest.mark.parametrize("replicas", [-1, MAX_MIN_REPLICAS + 1, True, "1", 1.0, None])
def test_replicas_that_make_no_sense(replicas: Any) -> None:
    """Refused before anything is sent; and so are any for what is not stored."""
    with pytest.raises(InvalidEvent) as caught:
        checked("a", EVENT, ephemeral=False, idempotency_key=None, min_replicas=replicas)
    assert caught.value.path == "min_replicas"
    with pytest.raises(InvalidEvent) as caught:
        checked("a", EVENT, ephemeral=True, idempotency_key=None, min_replicas=1)
    assert caught.value.path == "min_replicas"
    assert checked("a", EVENT, ephemeral=False, idempotency_key=None, min_replicas=2).min_replicas == 2
