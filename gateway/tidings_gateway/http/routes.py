"""Every HTTP route of the gateway: for the public, under its base path, and for its operator."""

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
from tidings_gateway.http.scrape import scrape

if TYPE_CHECKING:
    from tidings_gateway.auth.origin import OriginPolicy
    from tidings_gateway.settings import Settings
    from tidings_gateway.telemetry.counts import Counts
    from tidings_gateway.telemetry.exposition import Exposition


def http_routes(
    settings: Settings,
    *,
    publisher: Publishing,
    origins: OriginPolicy,
    health: Callable[[], Health],
    counts: Counts | None = None,
) -> list[BaseRoute]:
    """Reads the client's files: call it before the event loop serves. Raises `MissingAsset`.

    The order matters nowhere, but a WebSocket route for `/v1/ws` must stand before these.
    """
    keys = ApiKeys(secret.get_secret_value() for secret in settings.api_key)
    publishing = PublishRoutes(publisher, keys, max_publish_bytes=settings.max_publish_bytes, counts=counts)
    ready = readyz(health, store_always=settings.ready_redis == "always")
    return [
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/v1/publish", publishing.publish, methods=["POST"]),
        Route("/v1/position", publishing.position, methods=["GET"]),
        Route("/v1/ws", websocket_over_http(origins), methods=["GET"]),
        *(Route(f"/{name}", asset_route(asset), methods=["GET"]) for name, asset in client_files().items()),
    ]


def admin_routes(settings: Settings, *, health: Callable[[], Health], exposition: Exposition) -> list[BaseRoute]:
    """Of `TIDINGS_ADMIN_LISTEN`, without the base path. Metrics are nobody's business but the operator's, so they are
    served nowhere else."""
    return [
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", readyz(health, store_always=settings.ready_redis == "always"), methods=["GET"]),
        Route("/metrics", scrape(exposition), methods=["GET"]),
    ]
