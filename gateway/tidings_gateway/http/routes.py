"""Every HTTP route of the gateway, under its base path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Route

from tidings_gateway.assets import client_files
from tidings_gateway.auth.apikeys import ApiKeys
from tidings_gateway.http.client_js import asset_route
from tidings_gateway.http.health import Health, livez, readyz
from tidings_gateway.http.origin import websocket_over_http
from tidings_gateway.http.publish import Publishing, PublishRoutes

if TYPE_CHECKING:
    from tidings_gateway.auth.origin import OriginPolicy
    from tidings_gateway.settings import Settings


def http_routes(
    settings: Settings, *, publisher: Publishing, origins: OriginPolicy, health: Callable[[], Health]
) -> list[BaseRoute]:
    """Reads the client's files: call it before the event loop serves. Raises `MissingAsset`.

    The order matters nowhere, but a WebSocket route for `/v1/ws` must stand before these.
    """
    keys = ApiKeys(secret.get_secret_value() for secret in settings.api_key)
    publishing = PublishRoutes(publisher, keys, max_publish_bytes=settings.max_publish_bytes)
    ready = readyz(health, store_always=settings.ready_redis == "always")
    return [
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/v1/publish", publishing.publish, methods=["POST"]),
        Route("/v1/position", publishing.position, methods=["GET"]),
        Route("/v1/ws", websocket_over_http(origins), methods=["GET"]),
        *(Route(f"/{name}", asset_route(asset), methods=["GET"]) for name, asset in client_files().items()),
    ]
