"""`GET /metrics`, on the operator's address only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from tidings_gateway.http.health import HEADERS

if TYPE_CHECKING:
    from tidings_gateway.telemetry.exposition import Exposition


def scrape(exposition: Exposition) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        body, content_type = exposition.render(request.headers.get("accept", ""))
        # Said in a header of its own: Starlette would add a second charset to the media type.
        return Response(body, headers={**HEADERS, "content-type": content_type})

    return answer
