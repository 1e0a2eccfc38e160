"""What the two publishers share beside the plan: checking before, and unpacking after."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from tidings.errors import PublishError, TidingsError
from tidings.event import Event
from tidings.log.names import check_user
from tidings.log.receipt import Receipt
from tidings.publishing.config import Config
from tidings.publishing.message import AskPosition, Call, Message, Options, Publish, checked
from tidings.publishing.plan import Done, Exchange, Outcome, Sleep, plan

Result = Receipt | TidingsError
"""In answers for several: a receipt, or the error that stands for one of them."""

Checked = Publish | TidingsError


class Transport(Protocol):
    def run(self, request: Any, timeout_s: float) -> Outcome: ...
    def close(self) -> None: ...


def blocking_transport(config: Config) -> Transport:
    if config.kind == "http":
        from tidings.publishing.http_blocking import BlockingHttp

        return BlockingHttp(config.url, config.max_connections)
    from tidings.publishing.redis_blocking import BlockingRedis

    return BlockingRedis(config.redis, config.max_connections)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def start(config: Config, calls: Sequence[Call]) -> Generator[Exchange | Sleep, Outcome | None, list[Done]]:
    return plan(calls, config.wire(), deadline_s=config.deadline_s, clock=time.monotonic, rng=config.rng)


def ask_position(user: str) -> AskPosition:
    return AskPosition(check_user(user))


def check_open(closed: bool) -> None:
    if closed:
        raise PublishError("this publisher is closed", code="closed", retryable=False)


def sendable(checks: Sequence[Checked]) -> list[Publish]:
    return [check for check in checks if isinstance(check, Publish)]


def merge(checks: Sequence[Checked], done: Sequence[Done]) -> list[Result]:
    """Put the results of what was sent between the errors of what was not."""
    results = iter(done)
    merged: list[Result] = []
    for check in checks:
        result = next(results) if isinstance(check, Publish) else check
        assert not isinstance(result, str)
        merged.append(result)
    return merged


def receipt_of(result: Done) -> Receipt:
    if isinstance(result, PublishError):
        raise result
    assert isinstance(result, Receipt)
    return result


def position_of(result: Done) -> str:
    if isinstance(result, PublishError):
        raise result
    assert isinstance(result, str)
    return result


def check_each(users: Sequence[object], event: Event, options: Options) -> list[Checked]:
    """The same event for each user; a bad user stands as an error in its place."""
    checks: list[Checked] = []
    for user in users:
        try:
            checks.append(checked(user, event, **options))
        except TidingsError as error:
            checks.append(error)
    return checks


def check_messages(config: Config, messages: Sequence[Message], time_ms: int) -> list[Checked]:
    """A bad message stands as an error in its place; the others are not held up by it."""
    checks: list[Checked] = []
    for message in messages:
        try:
            event = config.event(message.event, message.data, message.key, time_ms)
            options: Options = {
                "ephemeral": message.ephemeral,
                "idempotency_key": message.idempotency_key,
                "min_replicas": message.min_replicas,
            }
            checks.append(checked(message.user, event, **options))
        except TidingsError as error:
            checks.append(error)
    return checks
