"""What can be asked of a publisher."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, TypedDict

from tidings.errors import InvalidEvent
from tidings.event import Event
from tidings.log.eventlog import GENERATED_KEY
from tidings.log.names import check_idempotency_key, check_user

MAX_MIN_REPLICAS = 16
"""More than a primary sensibly has: a larger number is a mistake that would fail every time."""


@dataclass(frozen=True, slots=True)
class Message:
    """One event for one user, for `publish_many`. The members mean what the arguments of `publish` mean."""

    user: str
    event: str
    data: Any = None
    key: str | None = None
    ephemeral: bool = False
    idempotency_key: str | None = None
    min_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Publish:
    """A checked message. Repeating it is safe when it has an idempotency key; an ephemeral one has none, because what
    is not stored cannot be recognised."""

    user: str
    event: Event
    idempotency_key: str | None
    min_replicas: int = 0

    @property
    def repeatable(self) -> bool:
        return self.idempotency_key is not None

    @property
    def ephemeral(self) -> bool:
        return self.idempotency_key is None


@dataclass(frozen=True, slots=True)
class AskPosition:
    """What is the user's position now?"""

    user: str
    idempotency_key: None = None
    min_replicas: int = 0

    @property
    def repeatable(self) -> bool:
        return True


Call = Publish | AskPosition


class Options(TypedDict):
    """How a message is to be published, for one user or several."""

    ephemeral: bool
    idempotency_key: str | None
    min_replicas: int


def checked(
    user: object, event: Event, *, ephemeral: bool, idempotency_key: str | None, min_replicas: int = 0
) -> Publish:
    """A durable event always gets an idempotency key, so that a repetition after a lost answer stores it once.

    Raises `InvalidUser`, and `InvalidEvent` for the key or the number of replicas.
    """
    name = check_user(user)
    if type(min_replicas) is not int or not 0 <= min_replicas <= MAX_MIN_REPLICAS:
        raise InvalidEvent("min_replicas", min_replicas, f"must be a whole number from 0 to {MAX_MIN_REPLICAS}")
    if ephemeral:
        if idempotency_key is not None:
            raise InvalidEvent(
                "idempotency_key", idempotency_key, "must be None for an ephemeral event: it is not stored"
            )
        if min_replicas:
            raise InvalidEvent("min_replicas", min_replicas, "must be 0 for an ephemeral event: it is not stored")
        return Publish(name, event, None)
    if idempotency_key is None:
        return Publish(name, event, GENERATED_KEY + secrets.token_urlsafe(12), min_replicas)
    return Publish(name, event, check_idempotency_key(idempotency_key), min_replicas)
