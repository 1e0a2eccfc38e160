"""What `POST /v1/publish` can be asked for: from parsed JSON to messages, with the name of whatever is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any, TypeVar

from tidings.publishing.message import Message
from tidings_gateway.http.problem import ProblemError

T = TypeVar("T", bound=Sized)

MAX_MESSAGES = 1_000
"""Events one request may publish, counting each user of `users`."""

_MESSAGE_FIELDS = frozenset(
    {"user", "users", "topic", "event", "data", "key", "ephemeral", "idempotency_key", "min_replicas", "traceparent"}
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One event for one user. `field` leads to it in the request: empty for a single message, `messages[3]` else."""

    message: Message
    field: str


@dataclass(frozen=True, slots=True)
class Request:
    """`single`: one message for one user, which is answered by its own status instead of a list of results."""

    asked: tuple[Asked, ...]
    single: bool


def parse_request(body: Any) -> Request:
    """Raises `ProblemError` (400) for anything that is not exactly what the contract says.

    Unknown members are refused, unlike in frames: a misspelt `idempotency_key` that is ignored stores an event twice.
    The values of `user`, `event`, `data`, `key`, `idempotency_key` and `min_replicas` are the publisher's to check.
    """
    if not isinstance(body, dict):
        raise _bad("", "The body must be a JSON object.")
    if "messages" not in body:
        asked = tuple(_messages(body, ""))
        return Request(_bounded(asked, "users"), single="users" not in body)
    _only(body, frozenset({"messages"}), "", "next to messages")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise _bad("messages", "must be a list")
    if not messages:
        raise _bad("messages", "must not be empty")
    _bounded(messages, "messages")
    found: list[Asked] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise _bad(f"messages[{index}]", "must be an object")
        found += _messages(message, f"messages[{index}]")
        _bounded(found, f"messages[{index}].users")
    return Request(tuple(found), single=False)


def _messages(body: dict[str, Any], where: str) -> Iterator[Asked]:
    _only(body, _MESSAGE_FIELDS, where)
    if "topic" in body:
        raise _bad(_join(where, "topic"), "is not available: this gateway has no topics", code="no_topics")
    if ("user" in body) == ("users" in body):
        raise _bad(_join(where, "user"), "exactly one of user and users must be given")
    if "event" not in body:
        raise _bad(_join(where, "event"), "is missing")
    traceparent = body.get("traceparent")
    if traceparent is not None and (not isinstance(traceparent, str) or len(traceparent) > 128):
        raise _bad(_join(where, "traceparent"), "must be a W3C traceparent")
    ephemeral = body.get("ephemeral", False)
    if not isinstance(ephemeral, bool):
        raise _bad(_join(where, "ephemeral"), "must be true or false")
    if "user" in body:
        yield Asked(_message(body, body["user"], ephemeral=ephemeral), where)
        return
    users = body["users"]
    if not isinstance(users, list) or not users:
        raise _bad(_join(where, "users"), "must be a list with at least one user")
    for user in users:
        yield Asked(_message(body, user, ephemeral=ephemeral), where)


def _message(body: dict[str, Any], user: Any, *, ephemeral: bool) -> Message:
    return Message(
        user,
        body["event"],
        body.get("data"),
        key=body.get("key"),
        ephemeral=ephemeral,
        idempotency_key=body.get("idempotency_key"),
        min_replicas=body.get("min_replicas", 0),
    )


def _bounded(found: T, field: str) -> T:
    if len(found) > MAX_MESSAGES:
        raise _bad(field, f"one request may publish at most {MAX_MESSAGES} events", code="too_many")
    return found


def _only(body: dict[str, Any], known: frozenset[str], where: str, place: str = "in a message") -> None:
    for name in body:
        if name not in known:
            near = difflib.get_close_matches(name[:64], known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _bad(_join(where, name[:64]), f"there is no such member {place}{hint}", code="unknown_member")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _bad(field: str, why: str, code: str = "invalid") -> ProblemError:
    detail = f"{field}: {why}." if field else why
    return ProblemError(400, code, detail, field=field or None)
