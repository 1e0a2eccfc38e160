"""The operator's routes: /metrics, /livez, /readyz, and nothing else; the public's: no metrics."""

from __future__ import annotations

import httpx
from starlette.applications import Starlette

from tests.http.conftest import Door
from tidings_gateway.http.health import Health
from tidings_gateway.http.problem import exception_handlers
from tidings_gateway.http.routes import admin_routes
from tidings_gateway.settings import load_settings
from tidings_gateway.telemetry.exposition import Exposition
from tidings_gateway.telemetry.metrics import SKIPPED


def _client() -> httpx.AsyncClient:
    health = Health(draining=True, store_reached=True, store_up=True)
    routes = admin_routes(
        load_settings({"TIDINGS_BASE_PATH": "/push"}),
        health=lambda: health,
        exposition=Exposition(lambda: [(SKIPPED, 3)], process=False),
    )
    app = Starlette(routes=routes, exception_handlers=exception_handlers())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin")


async def test_the_operator_gets_metrics_and_health() -> None:
    """Below no base path, never cached, with one content type."""
    async with _client() as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert "\ntidings_events_skipped_total 3.0\n" in answer.text
        assert answer.headers.get_list("content-type") == ["text/plain; version=0.0.4; charset=utf-8"]
        assert answer.headers["cache-control"] == "no-store"
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/readyz")).json() == {"status": "unready", "reason": "draining"}
        assert (await client.post("/metrics")).status_code == 405
        for elsewhere in ("/v1/publish", "/push/metrics", "/tidings.js"):
            assert (await client.get(elsewhere)).status_code == 404


async def test_the_public_gets_none(door: Door) -> None:
    """Not even with an API key."""
    headers = {"authorization": f"Bearer {'k' * 40}"}
    assert (await door.client.get("/metrics", headers=headers)).status_code == 404
