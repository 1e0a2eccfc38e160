"""`/tidings.js` and `/machine.js`: the browser client, served by the gateway it speaks to, so that the two agree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tidings_gateway.assets import Asset

CACHE_S = 300
"""How long a page may use the client without asking again: a deploy reaches every page within this time."""


def asset_route(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    """Serves one file to pages of any origin. It is public and the same for everybody, so `*` gives nothing away."""
    headers = {
        "etag": asset.etag,
        "cache-control": f"public, max-age={CACHE_S}",
        "access-control-allow-origin": "*",
        "cross-origin-resource-policy": "cross-origin",
        "x-content-type-options": "nosniff",
    }

    async def answer(request: Request) -> Response:
        if matches(request.headers.get("if-none-match", ""), asset.etag):
            return Response(status_code=304, headers=headers)
        return Response(asset.body, media_type=asset.media_type, headers=headers)

    return answer


def matches(if_none_match: str, etag: str) -> bool:
    """RFC 9110 section 13.1.2, with the weak comparison: proxies that compress make strong tags weak."""
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag in tags
