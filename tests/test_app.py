"""The gateway as a whole, at its start and with its store away."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.rawsocket import RawSocket
from tests.support.tokens import API_KEY, mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.errors import InvalidSetting
from tidings_gateway.app import bind_admin, create_app
from tidings_gateway.server.admin import CannotListen
from tidings_gateway.server.draining import Draining
from tidings_gateway.server.settings import ServerSettings
from tidings_gateway.settings import Settings, load_settings
from tidings_gateway.settings.values import parse_listen

KEY = {"Authorization": f"Bearer {API_KEY}"}


async def test_it_starts_without_its_store_and_says_so(prefix: str) -> None:
    """Alive but not ready; new sockets 1013 with a time, publishing 503 with Retry-After; once the store is there, all
    of it works without a restart (Vexa-ai/vexa #248; caesarakalaeii/all-chat PR #459)."""
    store = ValkeyProcess()
    gateway = GatewayProcess(store.url, prefix=prefix, env={**FAST_DRAIN, "TIDINGS_STORE_WAIT_MS": "300"})
    try:
        await gateway.start(ready=False)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=10) as http:
            assert (await http.get("/livez")).status_code == 200
            assert (await http.get("/readyz")).status_code == 503
            message = {"user": "ann", "event": "n", "data": 1}
            answer = await http.post("/v1/publish", json=message, headers=KEY)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            async with Client(gateway.ws_url, mint("ann"), base_ms=50, cap_ms=300) as client:
                await until(lambda: bool(client.closes))
                assert (client.closes[0].code, client.closes[0].reason) == (1013, "store away")
                store.start()
                await client.until_synced(15)
                assert (await http.get("/readyz")).status_code == 200
                answer = await http.post("/v1/publish", json=message, headers=KEY)
                assert answer.status_code == 200
                await client.until_events(1)
                assert client.events[0].id == answer.json()["id"]
                client.check()
    finally:
        await gateway.close()
        store.close()


async def test_sessions_outlive_their_store(prefix: str) -> None:
    """The store is killed and comes back with its data: the socket stays, and nothing acknowledged is missed."""
    with ValkeyProcess("--appendonly", "yes", "--appendfsync", "always") as store:
        async with (
            GatewayProcess(store.url, prefix=prefix, env=FAST_DRAIN) as gateway,
            httpx.AsyncClient(base_url=gateway.url, timeout=10) as http,
            Client(gateway.ws_url, mint("ann")) as client,
        ):
            await client.until_synced()
            acknowledged = []
            for round_number in range(3):
                if round_number == 1:
                    store.restart(kill=True)
                message = {"user": "ann", "event": "n", "data": round_number}
                answer = await http.post("/v1/publish", json=message, headers=KEY)
                while answer.status_code == 503:
                    answer = await http.post("/v1/publish", json=message, headers=KEY)
                acknowledged.append(answer.json()["id"])
            await until(lambda: bool(client.events) and client.events[-1].id == acknowledged[-1], 15)
            heard = [event.id for event in client.events]
            assert [position for position in acknowledged if position not in heard] == []
            assert client.connections == 1
            assert client.resyncs == []
            client.check()


async def test_the_client_is_served_by_the_gateway_it_speaks_to(valkey: ValkeyProcess, prefix: str) -> None:
    """`/tidings.js` and what it imports, with a type that browsers take for a module."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=FAST_DRAIN) as gateway,
        httpx.AsyncClient(base_url=gateway.url) as http,
    ):
        for name in ("tidings.js", "machine.js"):
            answer = await http.get(f"/{name}")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/javascript")
            assert "server" not in answer.headers


async def test_one_connection_too_many_is_told_4429(valkey: ValkeyProcess, prefix: str) -> None:
    """Accepted, told when to come back, and closed: a page could not see the status of a refused upgrade."""
    env = {**FAST_DRAIN, "TIDINGS_MAX_CONNECTIONS": "2"}
    async with GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway:
        first = [await RawSocket.connect(gateway.ws_url) for _ in range(2)]
        third = await RawSocket.connect(gateway.ws_url)
        async with third:
            goodbye = await third.recv_json()
            assert (goodbye["type"], goodbye["code"]) == ("goodbye", 4429)
            assert goodbye["retry_ms"] > 0
            assert (await third.recv_close())[0] == 4429
        for raw in first:
            await raw.hello(mint("ann"))
            await raw.recv_until("synced")
            raw.close()


def test_the_server_has_no_defaults_of_its_own() -> None:
    """Where the server's plain values and the table of settings name the same thing, they say the same."""
    table, plain = Settings(), ServerSettings()
    for name in ("header_timeout_ms", "max_header_bytes", "max_frame_bytes", "inbound_frames_per_s"):
        assert getattr(plain, name) == getattr(table, name)
    for name in ("inbound_bytes_per_s", "write_high_water_bytes", "send_buffer_bytes", "close_timeout_ms", "retry_ms"):
        assert getattr(plain, name) == getattr(table, name)
    for name in ("drain_grace_ms", "drain_window_ms", "base_path", "trusted_proxies"):
        assert getattr(plain, name) == getattr(table, name)


@pytest.mark.parametrize(
    "url", ["rediss://:secret@cache?ssl_ca_certs=/nowhere", "rediss+cluster://:secret@a,b?ssl_ca_certs=/nowhere"]
)
def test_a_redis_that_cannot_be_used_is_refused_before_anything_starts(url: str) -> None:
    """In words, without the password, and not as a traceback out of the server's start."""
    with pytest.raises(InvalidSetting) as raised:
        create_app(Settings(redis_url=url), Draining())
    assert "secret" not in str(raised.value)


async def test_a_body_too_large_is_answered_and_not_reset(valkey: ValkeyProcess, prefix: str) -> None:
    """The publisher learns what was wrong, whether the length was announced or the body streams, and may go on."""
    env = {**FAST_DRAIN, "TIDINGS_MAX_PUBLISH_BYTES": "100000"}

    async def stream() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 100_000

    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        httpx.AsyncClient(base_url=gateway.url, timeout=20) as http,
    ):
        headers = {**KEY, "content-type": "application/json"}
        for content in (b" " * 20_000_000, stream()):
            answer = await http.post("/v1/publish", content=content, headers=headers)
            assert answer.status_code == 413
            assert answer.json()["code"] == "too_large"
        answer = await http.post("/v1/publish", json={"user": "ann", "event": "n", "data": 1}, headers=KEY)
        assert answer.status_code == 200


def test_an_operator_s_address_that_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Set: no start, for its operator would be blind. Not set: a warning, for nobody thought of it. Empty: none."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "{}:{}".format(*taken.getsockname())
        with pytest.raises(CannotListen, match=address):
            bind_admin(load_settings({"TIDINGS_ADMIN_LISTEN": address}))
        unset = load_settings({}).model_copy(update={"admin_listen": parse_listen(address)})
        unset.model_fields_set.discard("admin_listen")
        assert bind_admin(unset) is None
        assert f"no /metrics: {address} (Address already in use)" in caplog.text
    assert bind_admin(load_settings({"TIDINGS_ADMIN_LISTEN": ""})) is None
    listener = bind_admin(load_settings({"TIDINGS_ADMIN_LISTEN": "127.0.0.1:0"}))
    assert listener is not None
    assert listener.getsockname()[1] > 0
    listener.close()
