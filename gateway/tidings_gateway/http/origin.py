"""Answers about the origin of a page, in a form the page's developer can see."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tidings_gateway.auth.origin import OriginCheck, OriginPolicy
from tidings_gateway.http.problem import problem

_WELL_FORMED = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[A-Za-z0-9_.:\[\]-]{1,260}", re.ASCII)


def origin_refused(check: OriginCheck) -> Response:
    """403, before any upgrade. A page may read this one answer whatever its origin (it holds nothing but the origin
    itself), so that our client can tell the developer which origin is missing from the list."""
    return problem(
        403,
        "origin_not_allowed",
        "Pages of this origin may not connect. If it is yours, add it to TIDINGS_ALLOWED_ORIGINS.",
        origin=check.shown,
        headers=_readable_by(check),
    )


def origin_required() -> Response:
    """403 for a cookie without an Origin: only the Origin shows whose page the cookie was sent for."""
    return problem(403, "origin_required", "A cookie counts only together with the Origin header of an allowed page.")


def websocket_over_http(policy: OriginPolicy) -> Callable[[Request], Awaitable[Response]]:
    """What a plain GET of the WebSocket's address gets. A page cannot see the status of a refused upgrade; our client
    asks again this way, and learns whether it was the origin."""

    async def answer(request: Request) -> Response:
        check = policy.check(request.scope["headers"])
        if not check.allowed:
            return origin_refused(check)
        headers = {"upgrade": "websocket", "connection": "upgrade", **_readable_by(check)}
        return problem(426, "upgrade_required", "This address speaks WebSocket (tidings.v1).", headers=headers)

    return answer


def _readable_by(check: OriginCheck) -> dict[str, str]:
    headers = {"vary": "Origin"}
    if check.origin is not None and _WELL_FORMED.fullmatch(check.origin):
        headers["access-control-allow-origin"] = check.origin
    return headers
