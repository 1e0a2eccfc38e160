"""Metrics of a real gateway: gauges that return to where they were, counters that agree with each other."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from websockets.frames import Opcode

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.rawsocket import RawSocket, upgrade_request
from tests.support.scraped import Scraped, scrape, until_told
from tests.support.tokens import API_KEY, mint
from tests.support.valkey import ValkeyProcess
from tidings import AsyncPublisher

ORIGIN = "http://a.example"
ENV = {
    **FAST_DRAIN,
    "TIDINGS_SLOW_TIMEOUT_MS": "600",
    "TIDINGS_SEND_BUFFER_BYTES": "16384",
    "TIDINGS_CLOSE_TIMEOUT_MS": "500",
    "TIDINGS_HELLO_TIMEOUT_MS": "400",
    "TIDINGS_ALLOWED_ORIGINS": ORIGIN,
}
CONNECTIONS = "tidings_connections"
OPENED, CLOSED = "tidings_connections_opened_total", "tidings_connections_closed_total"


async def _synced(gateway: GatewayProcess, user: str, **options: int) -> RawSocket:
    raw = await RawSocket.connect(gateway.ws_url, **options)  # type: ignore[arg-type]
    await raw.hello(mint(user))
    await raw.recv_until("synced")
    return raw


async def _leaves(gateway: GatewayProcess, number: int) -> None:
    raw = await _synced(gateway, f"u{number}")
    await raw.send_frame(Opcode.CLOSE, b"\x03\xe8")
    await raw.recv_close()
    raw.close()


async def _own_code(gateway: GatewayProcess, number: int) -> None:
    raw = await _synced(gateway, f"u{number}")
    await raw.send_frame(Opcode.CLOSE, (4900 + number).to_bytes(2, "big"))
    await raw.recv_close()
    raw.close()


async def _reset(gateway: GatewayProcess, number: int) -> None:
    (await _synced(gateway, f"u{number}")).reset()


async def _vanishes_before_hello(gateway: GatewayProcess, number: int) -> None:
    raw = await RawSocket.connect(gateway.ws_url)
    if number % 2:
        raw.reset()
    else:
        raw.close()


async def _bad_token(gateway: GatewayProcess, number: int) -> None:
    raw = await RawSocket.connect(gateway.ws_url)
    await raw.hello("no.such.token")
    assert (await raw.recv_close())[0] == 4401
    raw.close()


async def _malformed(gateway: GatewayProcess, number: int) -> None:
    raw = await _synced(gateway, f"u{number}")
    await raw.send_text("{")
    assert (await raw.recv_close())[0] == 4400
    raw.close()


async def _binary(gateway: GatewayProcess, number: int) -> None:
    raw = await _synced(gateway, f"u{number}")
    await raw.send_frame(Opcode.BINARY, b"x")
    assert (await raw.recv_close())[0] == 1003
    raw.close()


async def _silent(gateway: GatewayProcess, number: int) -> None:
    raw = await RawSocket.connect(gateway.ws_url)
    assert (await raw.recv_close())[0] == 4408
    raw.close()


async def _bad_origin(gateway: GatewayProcess, number: int) -> None:
    raw = await RawSocket.connect(gateway.ws_url, headers={"Origin": "http://evil.example"}, expect=403)
    raw.close()


async def _half_a_handshake(gateway: GatewayProcess, number: int) -> None:
    raw = await RawSocket.tcp(gateway.ws_url)
    request = upgrade_request(gateway.ws_url)
    await raw.send_bytes(request if number % 2 else request[: len(request) // 2])
    raw.reset()


KINDS = (
    _leaves,
    _own_code,
    _reset,
    _vanishes_before_hello,
    _bad_token,
    _malformed,
    _binary,
    _silent,
    _bad_origin,
    _half_a_handshake,
)


async def _let_go(raw: RawSocket) -> int:
    code, _ = await raw.recv_close(10)
    raw.close()
    return code


async def _at_rest(gateway: GatewayProcess) -> Scraped:
    def nobody(told: Scraped) -> bool:
        assert told[CONNECTIONS] >= 0
        return told[CONNECTIONS] == 0

    return await until_told(gateway.admin_url, nobody, "the gauge is back at 0")


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.full)])
async def test_the_gauge_returns_to_zero_whatever_becomes_of_a_connection(
    valkey: ValkeyProcess, prefix: str, rounds: int
) -> None:
    """Of every kind many: bad token or origin, half a handshake, RST, silence, a broken frame, a slow reader, codes of
    the client's own, a proper goodbye. Open = opened - closed at all times, never negative, 0 at the end; no label is a
    stranger's (widgrensit/asobi #492, soketi/soketi PR #1195)."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=ENV) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        for number in range(rounds):
            await asyncio.gather(*(kind(gateway, number) for kind in KINDS))
            told = await scrape(gateway.admin_url)
            assert told[CONNECTIONS] == told[OPENED] - told[CLOSED] >= 0
        slow = [await _synced(gateway, "slow", receive_buffer=4096) for _ in range(3)]
        await publisher.publish("slow", "progress", 1, ephemeral=True)
        for number in range(300):
            await publisher.publish("slow", "n", {"n": number, "pad": "x" * 2000})
        told = await _at_rest(gateway)
        for raw in slow:
            raw.close()

        assert told[OPENED] == told[CLOSED]
        assert told["tidings_outbox_bytes"] == 0
        codes = told.by(CLOSED, "code")
        assert codes["4401"] == codes["4400"] == codes["1003"] == codes["4408"] == codes["other"] == rounds
        assert told.of(CLOSED, code="1013", reason="too slow") == 3
        assert told.by("tidings_upgrades_refused_total", "reason") == {"origin": rounds}
        assert set(codes) == {"1000", "1003", "1006", "1013", "4400", "4401", "4408", "other"} | set(codes) & {"1005"}
        assert told.of("tidings_resumes_total", outcome="start") == 3 + 5 * rounds
        assert told.of("tidings_events_received_total", kind="durable") == 300
        assert told.of("tidings_events_received_total", kind="ephemeral") == 1
        assert told["tidings_delivery_seconds_count"] == told["tidings_event_age_seconds_count"] == 300
        assert told["tidings_sessions_fell_behind_total"] >= 3
        assert not [line for line in told.text.splitlines() if "slow" in line.replace("too slow", "") and "u0" in line]


@pytest.mark.may_block(reason="the HTTP client reads certificates")
async def test_it_answers_until_the_end_of_the_drain(valkey: ValkeyProcess, prefix: str) -> None:
    """During the window, when the public address already refuses: who is still there, and how far it has come. At the
    end all were let go with 1012."""
    env = {**FAST_DRAIN, "TIDINGS_DRAIN_WINDOW_MS": "2000"}
    gateway = GatewayProcess(valkey.url, prefix=prefix, env=env)
    await gateway.start()
    try:
        sockets = [await _synced(gateway, f"u{number}") for number in range(8)]
        admin = gateway.admin_url
        assert (await scrape(admin))[CONNECTIONS] == 8
        gateway.sigterm()
        seen: list[Scraped] = []
        ended = asyncio.ensure_future(gateway.wait_exit())
        readers = [asyncio.ensure_future(_let_go(raw)) for raw in sockets]
        async with httpx.AsyncClient() as http:
            while not ended.done():
                try:
                    answer = await http.get(f"{admin}/metrics")
                    assert (await http.get(f"{admin}/readyz")).json() == {
                        "status": "unready",
                        "reason": "draining",
                    } or (not seen)
                except httpx.TransportError:
                    break
                seen.append(Scraped(answer.text))
        assert await ended == 0
        assert set(await asyncio.gather(*readers)) == {1012}
        phases = [one["tidings_drain_phase"] for one in seen]
        assert phases == sorted(phases)
        assert 2 in phases
        window = [one for one in seen if one["tidings_drain_phase"] == 2]
        assert {one[CONNECTIONS] for one in window} > {one[CONNECTIONS] for one in window[-1:]}
        for one in seen:
            assert one[CONNECTIONS] == one[OPENED] - one[CLOSED]
        assert seen[-1].of(CLOSED, code="1012", reason="draining") >= 6
    finally:
        await gateway.close()


@pytest.mark.may_block(reason="the HTTP client reads certificates")
async def test_redis_and_publishing_are_told(prefix: str) -> None:
    """Published, refused, unauthorised; Redis full; gone and back: each where an operator looks for it."""
    with ValkeyProcess("--maxmemory-policy", "noeviction") as store:
        env = {**FAST_DRAIN, "TIDINGS_CANARY_INTERVAL_MS": "200"}
        async with (
            GatewayProcess(store.url, prefix=prefix, env=env) as gateway,
            httpx.AsyncClient(base_url=gateway.url, timeout=10) as http,
            Client(gateway.ws_url, mint("ann"), base_ms=50, cap_ms=300) as client,
        ):
            await client.until_synced()
            admin = gateway.admin_url

            async def publish(event: str, key: str = API_KEY, **members: object) -> None:
                body = {"user": "ann", "event": event, "data": 1, **members}
                await http.post("/v1/publish", json=body, headers={"Authorization": f"Bearer {key}"})

            for _ in range(2):
                await publish("n", idempotency_key="once")
            await publish("n", ephemeral=True)
            await publish("bad type")
            await publish("n", key="k" * 40)
            await client.until_events(1)
            told = await scrape(admin)
            assert told.by("tidings_publish_events_total", "outcome") == {
                "stored": 1,
                "duplicate": 1,
                "ephemeral": 1,
                "invalid": 1,
            }
            assert told.by("tidings_publish_requests_total", "outcome") == {
                "stored": 3,
                "invalid": 1,
                "unauthorized": 1,
            }
            assert (told["tidings_redis_up"], told["tidings_redis_writes_refused"]) == (1, 0)
            assert told["tidings_bus_lag_seconds"] < 5
            assert told["tidings_bus_resubscribes_total"] == 0

            store.cli("CONFIG", "SET", "maxmemory", "1")

            await until_told(admin, lambda told: told["tidings_redis_writes_refused"] == 1, "refused writes are told")
            await publish("n")
            told = await scrape(admin)
            assert told.of("tidings_publish_events_total", outcome="storage_full") == 1
            assert told.of("tidings_publish_requests_total", outcome="failed") == 1
            store.cli("CONFIG", "SET", "maxmemory", "0")

            store.cli("CLIENT", "KILL", "TYPE", "pubsub")

            told = await until_told(
                admin,
                lambda told: told["tidings_bus_resubscribes_total"] >= 1 and told["tidings_redis_up"] == 1,
                "the link is back",
            )
            assert told.of("tidings_bus_lost_total", kind="closed") >= 1
            assert told["tidings_bus_generation"] >= 2
            await publish("n")
            await client.until_events(2)
            client.check()

            store.stop()

            told = await until_told(admin, lambda told: told["tidings_redis_up"] == 0, "Redis is told to be away")
            since = told["tidings_bus_last_heard_seconds"]
            await until_told(
                admin, lambda told: told["tidings_bus_last_heard_seconds"] > since + 0.3, "the silence grows"
            )


async def test_a_second_gateway_on_one_machine(valkey: ValkeyProcess, prefix: str) -> None:
    """An address that was set and is taken: it does not start, says why, and ends with 1."""
    async with GatewayProcess(valkey.url, prefix=prefix, env=FAST_DRAIN, name="first") as first:
        address = first.admin_url.removeprefix("http://")
        second = GatewayProcess(valkey.url, prefix=prefix, env={"TIDINGS_ADMIN_LISTEN": address}, name="second")
        second.launch()
        try:
            assert await second.wait_exit() == 1
            assert f"tidings: TIDINGS_ADMIN_LISTEN: cannot listen on {address}: Address already in use" in second.log
        finally:
            await second.close()
