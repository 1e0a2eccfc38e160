"""Who gets in at `/v1/ws`, seen from outside."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.rawsocket import RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess

PAGE = "https://app.example.com"


@pytest.fixture
async def gateway(valkey: ValkeyProcess, prefix: str) -> AsyncIterator[GatewayProcess]:
    env = {**FAST_DRAIN, "TIDINGS_ALLOWED_ORIGINS": PAGE, "TIDINGS_COOKIE_NAME": "session"}
    async with GatewayProcess(valkey.url, prefix=prefix, env=env) as process:
        yield process


async def welcome(raw: RawSocket, token: str | None = None) -> str:
    """Say hello; the user the gateway welcomed."""
    await raw.hello(token)
    return str((await raw.recv_until("synced"))[0]["user"])


async def test_the_subprotocol_is_selected_when_offered_and_not_required(gateway: GatewayProcess) -> None:
    """`tidings.v1` among others is chosen; where it is not offered none is, and all works the same."""
    for offered, selected in (("other, tidings.v1", "tidings.v1"), ("other", None)):
        raw = await RawSocket.connect(gateway.ws_url, headers={"Sec-WebSocket-Protocol": offered})
        async with raw:
            assert raw.headers.get("sec-websocket-protocol") == selected
            assert await welcome(raw, mint("ann")) == "ann"


@pytest.mark.parametrize("origin", ["null", f"{PAGE}.evil.test", "http://app.example.com", f"{PAGE}:444", PAGE.upper()])
async def test_a_foreign_page_is_refused_before_the_upgrade_in_words(gateway: GatewayProcess, origin: str) -> None:
    """403 with a problem that a page may read and that names the origin."""
    raw = await RawSocket.connect(gateway.ws_url, headers={"Origin": origin}, expect=403)
    async with raw:
        problem = json.loads(await raw.body())
        assert raw.headers["content-type"] == "application/problem+json"
        assert problem["code"] == "origin_not_allowed"
        assert problem["origin"] == origin
        if "://" in origin and origin == origin.lower():
            assert raw.headers["access-control-allow-origin"] == origin


async def test_our_own_page_comes_in_with_a_cookie_and_a_foreign_one_never(gateway: GatewayProcess) -> None:
    """A cookie counts only together with the Origin of an allowed page (cross-site WebSocket hijacking)."""
    cookie = {"Cookie": f"session={mint('ann')}"}
    raw = await RawSocket.connect(gateway.ws_url, headers={"Origin": PAGE, **cookie})
    async with raw:
        assert await welcome(raw) == "ann"
    for headers in (cookie, {"Origin": "https://evil.test", **cookie}):
        refused = await RawSocket.connect(gateway.ws_url, headers=headers, expect=403)
        refused.close()


async def test_the_first_credential_present_decides(gateway: GatewayProcess) -> None:
    """Authorization before the hello's token, also when it is bad; a token in the URL is not even looked at."""
    raw = await RawSocket.connect(gateway.ws_url, headers={"Authorization": f"Bearer {mint('bob')}"})
    async with raw:
        await raw.nothing()
        assert await welcome(raw, mint("ann")) == "bob"
    bad = (
        (gateway.ws_url, {"Authorization": "Bearer nonsense"}),
        (f"{gateway.ws_url}?ticket=spent", None),
    )
    for url, headers in bad:
        raw = await RawSocket.connect(url, headers=headers)
        async with raw:
            await raw.hello(mint("ann"))
            assert (await raw.recv_close())[0] == 4401
    raw = await RawSocket.connect(f"{gateway.ws_url}?token={mint('ann')}")
    async with raw:
        await raw.hello()
        assert (await raw.recv_close())[0] == 4401


async def test_no_token_reaches_a_log(valkey: ValkeyProcess, prefix: str) -> None:
    """At DEBUG, by every accepted way, valid and not (greeves89/AI-Employee #373)."""
    env = {
        **FAST_DRAIN,
        "TIDINGS_LOG_LEVEL": "debug",
        "TIDINGS_ALLOWED_ORIGINS": PAGE,
        "TIDINGS_COOKIE_NAME": "session",
    }
    canary = "canary-5d1f0c"
    token = mint("ann", jti=canary)
    async with GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway:
        for headers, query, hello in (
            ({"Authorization": f"Bearer {token}"}, "", None),
            ({"Origin": PAGE, "Cookie": f"session={token}x"}, "", None),
            (None, f"?token={token}", None),
            (None, f"?ticket={canary}", None),
            (None, "", token),
            (None, "", f"{canary}.bad"),
        ):
            raw = await RawSocket.connect(gateway.ws_url + query, headers=headers)
            async with raw:
                await raw.hello(hello)
                await raw.recv_frame()
        log = gateway.log
        for secret in (canary, token, token.split(".")[1], token.split(".")[2]):
            assert secret not in log
