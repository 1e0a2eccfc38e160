"""Errors as `application/problem+json` (RFC 9457). The texts are constants of ours: nothing of the inside gets out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class ProblemError(Exception):
    """Raised by a handler to answer with a problem.

    `code` is a short word that programs may compare; `detail` is for people; `field` names the part of the request at
    fault; `members` are added to the body.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field
        self.headers = headers or {}
        self.members = members

    def response(self) -> Response:
        return problem(self.status, self.code, self.detail, field=self.field, headers=self.headers, **self.members)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
    **members: Any,
) -> Response:
    body: dict[str, Any] = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "code": code}
    body["detail"] = detail
    if field is not None:
        body["field"] = field
    body |= members
    return Response(
        orjson.dumps(body),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={"cache-control": "no-store", "x-content-type-options": "nosniff", **(headers or {})},
    )


def unauthorized() -> ProblemError:
    """The same words for a missing and for a wrong key."""
    return ProblemError(
        401,
        "unauthorized",
        "An API key is needed: Authorization: Bearer <key>.",
        headers={"www-authenticate": "Bearer"},
    )


def unavailable(retry_after_s: int, code: str = "unavailable", **members: Any) -> ProblemError:
    return ProblemError(
        503,
        code,
        "The event store cannot be asked just now. Try again later.",
        headers={"retry-after": str(max(1, retry_after_s))},
        **members,
    )


Handler = Callable[[Request, Exception], Awaitable[Response]]

_DETAILS = {
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take that method."),
}


async def _http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    # Whatever the path, TRACE is not to be answered with what was sent (RFC 9110 section 9.3.8 warns of it).
    if status == 404 and request.method == "TRACE":
        status = 405
    code, detail = _DETAILS.get(status, ("error", HTTPStatus(status).phrase))
    return problem(status, code, detail, headers=error.headers)


async def _problem_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return error.response()


async def _unexpected(_request: Request, _error: Exception) -> Response:
    return problem(500, "internal", "Something went wrong here; it has been logged.")


def exception_handlers() -> dict[Any, Handler]:
    """For `Starlette(exception_handlers=…)`. The 500 handler answers; Starlette then raises again, for the log."""
    return {HTTPException: _http_exception, ProblemError: _problem_error, Exception: _unexpected}
