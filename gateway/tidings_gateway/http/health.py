"""`/livez` and `/readyz`. Liveness asks whether the process answers; readiness whether to send it new clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import orjson
from starlette.requests import Request
from starlette.responses import Response

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Health:
    """`store_reached`: Redis was reached at least once. `store_up`: it can be reached now."""

    draining: bool
    store_reached: bool
    store_up: bool


def unready_because(health: Health, *, store_always: bool) -> str | None:
    """Why no new client should come, None when they should.

    Redis being away later does not count unless `store_always`: it is shared by all gateways, so every one of them
    would be taken out of service at once, and the sessions they hold with them.
    """
    if health.draining:
        return "draining"
    if not health.store_reached:
        return "store_not_reached_yet"
    if store_always and not health.store_up:
        return "store_away"
    return None


async def livez(_request: Request) -> Response:
    return Response(b'{"status":"alive"}', media_type="application/json", headers=HEADERS)


def readyz(health: Callable[[], Health], *, store_always: bool) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_request: Request) -> Response:
        reason = unready_because(health(), store_always=store_always)
        body = {"status": "ready"} if reason is None else {"status": "unready", "reason": reason}
        return Response(
            orjson.dumps(body),
            status_code=200 if reason is None else 503,
            media_type="application/json",
            headers=HEADERS,
        )

    return answer
