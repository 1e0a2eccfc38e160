"""`POST /v1/publish` and `GET /v1/position`: the publisher's side of the gateway, for programs with an API key."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tidings.errors import InvalidEvent, InvalidUser, PublishError, TidingsError
from tidings.log.receipt import Receipt
from tidings.publishing.message import Message
from tidings_gateway.auth.apikeys import ApiKeys
from tidings_gateway.http.body import read_json
from tidings_gateway.http.messages import Asked, parse_request
from tidings_gateway.http.problem import ProblemError, unauthorized, unavailable
from tidings_gateway.telemetry.counts import Counts

log = logging.getLogger("tidings.publish")

MAX_IN_FLIGHT = 256
"""Requests that publish at the same time. Each may hold a body of `max_publish_bytes`; one more gets 503."""

RETRY_AFTER_S = 2
"""What a publisher is told when the store does not say it better."""

Outcome = Receipt | TidingsError
"""`PublishError` when it could not be stored, `InvalidInput` when it was refused."""


class Publishing(Protocol):
    """What the routes need of `tidings.AsyncPublisher`."""

    async def publish_many(self, messages: Iterable[Message]) -> list[Outcome]: ...
    async def position(self, user: str) -> str: ...


class PublishRoutes:
    """The two routes and what they share: the keys, the bound on requests in flight, and one log line per change."""

    def __init__(
        self, publisher: Publishing, keys: ApiKeys, *, max_publish_bytes: int, counts: Counts | None = None
    ) -> None:
        self._counts = counts or Counts()
        self._publisher = publisher
        self._keys = keys
        self._max_bytes = max_publish_bytes
        self._in_flight = 0
        self._failing: str | None = None

    async def publish(self, request: Request) -> Response:
        requests = self._counts.publish_requests
        try:
            response = await self._bounded(request, self._publish)
        except ProblemError as problem:
            requests[_request_outcome(problem)] += 1
            raise
        requests["stored" if response.status_code == 200 else "partly"] += 1
        return response

    async def position(self, request: Request) -> Response:
        return await self._bounded(request, self._position)

    async def _bounded(self, request: Request, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        if not self._keys.authorize(request.scope["headers"]):
            raise unauthorized()
        if self._in_flight >= MAX_IN_FLIGHT:
            raise unavailable(RETRY_AFTER_S, "busy")
        self._in_flight += 1
        try:
            return await handler(request)
        finally:
            self._in_flight -= 1

    async def _publish(self, request: Request) -> Response:
        asked = parse_request(await read_json(request, self._max_bytes))
        outcomes = await self._publisher.publish_many([item.message for item in asked.asked])
        self._note(outcomes)
        for outcome in outcomes:
            self._counts.publish_events[_outcome(outcome)] += 1
        if asked.single:
            return _single(outcomes[0])
        failed = [outcome for outcome in outcomes if isinstance(outcome, PublishError)]
        results = [_result(item, outcome) for item, outcome in zip(asked.asked, outcomes, strict=True)]
        if len(failed) == len(outcomes) and all(error.retryable for error in failed):
            raise _store_problem(failed[0], results=results)
        stored = all(isinstance(outcome, Receipt) for outcome in outcomes)
        return _json({"results": results}, status=200 if stored else 207)

    async def _position(self, request: Request) -> Response:
        users = request.query_params.getlist("user")
        if len(users) != 1:
            raise ProblemError(400, "invalid", "user: exactly one must be given.", field="user")
        try:
            position = await self._publisher.position(users[0])
        except InvalidUser as error:
            raise ProblemError(400, "invalid", f"user: {error}.", field="user") from None
        except PublishError as error:
            self._note([error])
            raise _store_problem(error) from None
        return _json({"position": position})

    def _note(self, outcomes: Sequence[Outcome]) -> None:
        """One line when publishing begins to fail, or fails in another way, and one when it works again."""
        failure = next((outcome for outcome in outcomes if isinstance(outcome, PublishError)), None)
        if failure is not None and failure.code != self._failing:
            self._failing = failure.code
            log.warning("publishing fails (%s): %s", failure.code, failure.why)
        elif failure is None and self._failing is not None and any(isinstance(item, Receipt) for item in outcomes):
            self._failing = None
            log.info("publishing works again")


def _request_outcome(problem: ProblemError) -> str:
    if problem.status < 500:
        return "unauthorized" if problem.status == 401 else "invalid"
    return "failed" if "outcome_unknown" in problem.members else "busy"


def _outcome(outcome: Outcome) -> str:
    if isinstance(outcome, Receipt):
        return "ephemeral" if outcome.position is None else "duplicate" if outcome.duplicate else "stored"
    return outcome.code if isinstance(outcome, PublishError) else "invalid"


def _single(outcome: Outcome) -> Response:
    if isinstance(outcome, Receipt):
        return _json(_receipt(outcome))
    if isinstance(outcome, PublishError):
        raise _store_problem(outcome)
    field, why = _refusal(outcome)
    raise ProblemError(400, "invalid", why, field=field)


def _result(asked: Asked, outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Receipt):
        return {"user": asked.message.user, **_receipt(outcome)}
    if isinstance(outcome, PublishError):
        error: dict[str, Any] = {
            "code": outcome.code,
            "status": 503 if outcome.retryable else 500,
            "detail": _STORE_WORDS.get(outcome.code, _STORE_AWAY),
            "retryable": outcome.retryable,
            "outcome_unknown": outcome.outcome_unknown,
        }
        if outcome.retry_after_s is not None:
            error["retry_after_s"] = outcome.retry_after_s
        return {"error": error}
    field, why = _refusal(outcome)
    where = f"{asked.field}.{field}" if asked.field else field
    return {"error": {"code": "invalid", "status": 400, "detail": why, "field": where, "retryable": False}}


def _receipt(receipt: Receipt) -> dict[str, Any]:
    return {"id": receipt.position, "duplicate": receipt.duplicate, "listening": receipt.listening}


def _refusal(error: TidingsError) -> tuple[str, str]:
    """Which member of the message was refused, and why."""
    if isinstance(error, InvalidEvent):
        return error.path, f"{error}."
    if isinstance(error, InvalidUser):
        return "user", f"{error}."
    raise error


_STORE_AWAY = "The event store cannot be asked just now. Try again later."
_STORE_WORDS = {
    "storage_full": "The event store is full and takes no more events.",
    "no_replicas": "The event store has too few replicas to take events safely.",
    "unreplicated": "The event may be stored, but too few replicas have confirmed it in time.",
    "deadline": "The event store did not answer in time.",
}
"""What an outsider is told. The store's own words, which may name hosts and users, go to the log."""


def _store_problem(error: PublishError, **members: Any) -> ProblemError:
    members["outcome_unknown"] = error.outcome_unknown
    members["retryable"] = error.retryable
    if not error.retryable:
        detail = "The event store refuses events, and will until its operator has mended it."
        return ProblemError(500, error.code, detail, **members)
    retry_after_s = math.ceil(error.retry_after_s) if error.retry_after_s is not None else RETRY_AFTER_S
    return ProblemError(
        503,
        error.code,
        _STORE_WORDS.get(error.code, _STORE_AWAY),
        headers={"retry-after": str(max(1, retry_after_s))},
        **members,
    )


def _json(body: Any, status: int = 200) -> Response:
    return Response(
        orjson.dumps(body),
        status_code=status,
        media_type="application/json",
        headers={"cache-control": "no-store", "vary": "Authorization", "x-content-type-options": "nosniff"},
    )
