"""An application with all HTTP routes, on the real store, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from tests.support.valkey import ValkeyProcess
from tidings.client import AsyncPublisher
from tidings_gateway.assets import client_files
from tidings_gateway.auth.origin import OriginPolicy
from tidings_gateway.http.health import Health
from tidings_gateway.http.problem import exception_handlers
from tidings_gateway.http.publish import Publishing
from tidings_gateway.http.routes import http_routes
from tidings_gateway.settings import load_settings

API_KEY = "key-" + "k" * 40
ORIGIN = "https://app.example.com"
HELLO = {"user": "anna", "event": "hello", "data": {"n": 1}}

client_files()  # Read now: in a program this happens before its event loop runs.


@dataclass
class Door:
    """`client` speaks to `app`; `health` is what it will say about itself."""

    app: Starlette
    client: httpx.AsyncClient
    publisher: Publishing
    health: Health = field(default_factory=lambda: Health(draining=False, store_reached=True, store_up=True))

    async def publish(self, body: Any, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {API_KEY}", **options.pop("headers", {})}
        return await self.client.post("/v1/publish", json=body, headers=headers, **options)

    async def position(self, user: str) -> str:
        answer = await self.client.get(
            "/v1/position", params={"user": user}, headers={"authorization": f"Bearer {API_KEY}"}
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["position"])


def make_door(publisher: Publishing, **environ: str) -> Door:
    settings = load_settings({"TIDINGS_API_KEY": API_KEY, "TIDINGS_ALLOWED_ORIGINS": ORIGIN, **environ})
    routes = http_routes(
        settings, publisher=publisher, origins=OriginPolicy(settings.allowed_origins), health=lambda: made.health
    )
    app = Starlette(routes=routes, exception_handlers=exception_handlers())
    app.router.redirect_slashes = False
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    made = Door(app, httpx.AsyncClient(transport=transport, base_url="http://gateway"), publisher)
    return made


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """What an answer of problem+json says, which must have this status and code."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == "about:blank"
    return body


@pytest.fixture
async def door(valkey: ValkeyProcess, prefix: str) -> AsyncIterator[Door]:
    async with AsyncPublisher(valkey.url, prefix=prefix, log_max_events=50) as publisher:
        door = make_door(publisher)
        async with door.client:
            yield door
