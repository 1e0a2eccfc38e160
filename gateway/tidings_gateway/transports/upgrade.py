"""`GET /v1/ws`: the route that decides who comes in, and then lets go.

Everything is decided before or right after the upgrade; then the connection is attached to its socket and this
coroutine ends. Nothing of the request outlives it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket

from tidings_gateway.auth.credentials import OriginRequired, request_token
from tidings_gateway.auth.tokens import Unauthorized
from tidings_gateway.gateway import Gateway
from tidings_gateway.http.origin import origin_refused, origin_required
from tidings_gateway.transports.websocket import WebSocketConnection

log = logging.getLogger("tidings.websocket")

SUBPROTOCOL = "tidings.v1"


def websocket_route(gateway: Gateway) -> Callable[[WebSocket], Awaitable[None]]:
    async def connect(websocket: WebSocket) -> None:
        scope = websocket.scope
        check = gateway.origins.check(scope["headers"])
        if not check.allowed:
            log.info("an upgrade from a page of origin %s was refused", check.shown)
            gateway.hub.counts.refused["origin"] += 1
            await websocket.send_denial_response(origin_refused(check))
            return
        credential, refused = None, False
        try:
            credential = request_token(
                scope, cookie_name=gateway.settings.cookie_name, has_origin=check.origin is not None
            )
        except OriginRequired:
            gateway.hub.counts.refused["origin"] += 1
            await websocket.send_denial_response(origin_required())
            return
        except Unauthorized as error:
            log.info("the credential of a handshake was refused: %s", error)
            refused = True
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
        attach = scope["extensions"]["tidings.attach"]["attach"]
        attach(WebSocketConnection(gateway, credential, refused=refused))

    return connect
