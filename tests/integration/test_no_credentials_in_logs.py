"""Tokens and keys reach the gateway in many ways, and its log in none."""

from __future__ import annotations

import contextlib
import secrets
from typing import Any

import httpx
import pytest
import websockets

from tests.support.gateway import GatewayProcess
from tests.support.scraped import scrape
from tests.support.tokens import API_KEY, SECRET
from tests.support.valkey import ValkeyProcess
from tidings.tokens import mint_token


async def _talk(url: str, hello: str, **options: Any) -> None:
    with contextlib.suppress(websockets.WebSocketException, OSError, TimeoutError):
        async with websockets.connect(url, open_timeout=5, close_timeout=5, **options) as ws:
            await ws.send(hello)
            async for _ in ws:
                return


@pytest.mark.may_block(reason="the HTTP and WebSocket clients read certificates")
async def test_no_token_or_key_is_ever_logged(valkey: ValkeyProcess, prefix: str) -> None:
    """At the debug level, by every way a credential can come, good and bad: header, URL, cookie, hello frame, malformed
    frames around it, publishing. Neither the log nor an answer may hold one, nor the metrics."""
    good = mint_token("anna", secret=SECRET)
    canary = f"canary{secrets.token_hex(8)}"
    bad = [f"eyJhbGciOiJIUzI1NiJ9.{canary}.{canary}", canary, good + canary]
    environ = {
        "TIDINGS_LOG_LEVEL": "debug",
        "TIDINGS_COOKIE_NAME": "sid",
        "TIDINGS_ALLOWED_ORIGINS": "http://a.example",
    }
    gateway = GatewayProcess(valkey.url, prefix=prefix, env=environ, name="logged")
    answers: list[str] = []
    async with gateway:
        for token in (good, *bad):
            hello = f'{{"type":"hello","token":"{token}"}}'
            await _talk(gateway.ws_url, hello)
            await _talk(gateway.ws_url, hello + "}")
            await _talk(gateway.ws_url, f'{{"type":"{token}"}}')
            await _talk(gateway.ws_url, "{}", additional_headers={"Authorization": f"Bearer {token}"})
            for name in ("token", "access_token", "ticket"):
                await _talk(f"{gateway.ws_url}?{name}={token}", '{"type":"hello"}')
            cookie = {"Cookie": f"sid={token}"}
            await _talk(gateway.ws_url, '{"type":"hello"}', additional_headers=cookie, origin="http://a.example")
            await _talk(gateway.ws_url, '{"type":"hello"}', additional_headers=cookie)
            await _talk(gateway.ws_url, '{"type":"hello"}', subprotocols=[token])
            async with httpx.AsyncClient(base_url=gateway.url) as client:
                for key in (token, f"{API_KEY}{canary}"):
                    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
                    answers.append((await client.post("/v1/publish", content=key, headers=headers)).text)
                    answers.append((await client.get(f"/v1/position?user=a&key={key}", headers=headers)).text)
                    answers.append((await client.get(f"/{key}")).text)
        answers.append((await scrape(gateway.admin_url)).text)
        log = gateway.log
    told = log + "".join(answers)
    assert "anna" not in answers[-1]  # nor do metrics know a user
    for secret in (good, good.rpartition(".")[2], canary, SECRET, API_KEY):
        assert secret not in told
    assert "refused" in log, "the refusals should have been logged"
