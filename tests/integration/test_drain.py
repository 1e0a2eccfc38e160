"""SIGTERM on the whole gateway: who is told what, and when."""

from __future__ import annotations

import asyncio
import signal
import time

import httpx
import pytest

from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.rawsocket import RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

DRAIN = {"TIDINGS_DRAIN_GRACE_MS": "1000", "TIDINGS_DRAIN_WINDOW_MS": "3000", "TIDINGS_RETRY_MS": "700"}


async def test_everybody_is_told_1012_spread_over_the_window(valkey: ValkeyProcess, prefix: str) -> None:
    """100 sockets: each hears goodbye and a Close frame 1012, none before the grace is over, evenly spread; what
    was published meanwhile is flushed first; exit code 0 and no traceback (Kludex/uvicorn #1344)."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=DRAIN) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        raws = [await RawSocket.connect(gateway.ws_url) for _ in range(100)]
        for number, raw in enumerate(raws):
            await raw.hello(mint(f"user-{number % 10}"))
            await raw.recv_until("synced")
        begin = time.monotonic()
        gateway.sigterm()
        await publisher.publish("user-3", "n", "during the grace")
        closed: list[float] = []

        async def hear_out(raw: RawSocket) -> list[str]:
            types = []
            while (frame := await raw.recv_frame(10)).opcode != 8:
                types.append(frame.json["type"])
            closed.append(time.monotonic() - begin)
            assert frame.close == (1012, "draining")
            await raw.send_frame(8, frame.payload)
            return types

        heard = await asyncio.gather(*(hear_out(raw) for raw in raws))
        assert all(types[-1] == "goodbye" for types in heard)
        assert list(heard[3::10]) == [["event", "goodbye"]] * 10
        assert min(closed) >= 1.0
        assert max(closed) <= 4.5
        buckets = [sum(1 for at in closed if low <= at - 1 < low + 0.5) for low in (0, 0.5, 1, 1.5, 2, 2.5)]
        assert max(buckets) <= 3 * 100 / 6, buckets
        assert await gateway.wait_exit(10) == 0
        for raw in raws:
            raw.close()


async def test_readiness_goes_first_and_the_listener_stays(valkey: ValkeyProcess, prefix: str) -> None:
    """Grace: /readyz 503, everything else as usual. Window: new upgrades get 503 + Retry-After, other requests are
    served."""
    async with GatewayProcess(valkey.url, prefix=prefix, env=DRAIN) as gateway, httpx.AsyncClient() as http:
        assert (await http.get(f"{gateway.url}/readyz")).status_code == 200
        keeper = await RawSocket.connect(gateway.ws_url)
        await keeper.hello(mint("ann"))
        await keeper.recv_until("synced")
        gateway.sigterm()

        async def status(path: str) -> int:
            return (await http.get(f"{gateway.url}{path}")).status_code

        end = time.monotonic() + 0.9
        while await status("/readyz") != 503:
            assert time.monotonic() < end
        assert await status("/livez") == 200
        late = await RawSocket.connect(gateway.ws_url)
        await late.hello(mint("bob"))
        assert (await late.recv_until("synced"))[0]["type"] == "welcome"

        refused = None
        end = time.monotonic() + 3
        while refused is None and time.monotonic() < end:
            try:
                raw = await RawSocket.connect(gateway.ws_url)
                raw.close()
            except AssertionError:
                refused = await RawSocket.connect(gateway.ws_url, expect=503)
        assert refused is not None
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["content-type"] == "application/problem+json"
        assert await status("/livez") == 200
        assert await gateway.wait_exit(10) == 0
        for raw in (keeper, late, refused):
            raw.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_it_at_once(valkey: ValkeyProcess, prefix: str, number: signal.Signals) -> None:
    """Without waiting for anybody, and without a traceback."""
    env = {"TIDINGS_DRAIN_GRACE_MS": "20000"}
    async with GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway:
        raw = await RawSocket.connect(gateway.ws_url)
        await raw.hello(mint("ann"))
        await raw.recv_until("synced")
        gateway.signal(number)
        await until(lambda: "draining" in gateway.log)
        gateway.signal(number)
        await gateway.wait_exit(4)
        raw.close()


@pytest.mark.full
@pytest.mark.timeout(60)
async def test_it_ends_within_30_s_when_peers_never_answer(valkey: ValkeyProcess, prefix: str) -> None:
    """Shipped times, peers that neither read nor answer, their buffers full: exit code 0 within 30 s."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        raws = [await RawSocket.connect(gateway.ws_url, receive_buffer=4096) for _ in range(20)]
        for raw in raws:
            await raw.hello(mint("ann"))
        for _ in range(800):
            await publisher.publish("ann", "n", "x" * 4000)
        silent = [await RawSocket.tcp(gateway.url) for _ in range(5)]
        begin = time.monotonic()
        gateway.sigterm()
        assert await gateway.wait_exit(31) == 0
        assert time.monotonic() - begin <= 30
        for raw in [*raws, *silent]:
            raw.close()


async def test_peers_that_never_answer_do_not_hold_it(valkey: ValkeyProcess, prefix: str) -> None:
    """The same with short times."""
    env = {
        **DRAIN,
        "TIDINGS_CLOSE_TIMEOUT_MS": "500",
        "TIDINGS_DRAIN_GRACE_MS": "200",
        "TIDINGS_DRAIN_WINDOW_MS": "1000",
    }
    async with GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway:
        raws = [await RawSocket.connect(gateway.ws_url) for _ in range(20)]
        for raw in raws:
            await raw.hello(mint("ann"))
        begin = time.monotonic()
        gateway.sigterm()
        assert await gateway.wait_exit(10) == 0
        assert time.monotonic() - begin < 0.2 + 1 + 2 + 2 + 1
        for raw in raws:
            raw.close()


@pytest.mark.full
async def test_clients_of_a_drained_gateway_are_back_on_the_other_without_loss(
    valkey: ValkeyProcess, prefix: str
) -> None:
    """A rolling restart of two gateways under load: everything received once, in order."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=DRAIN, name="one") as one,
        GatewayProcess(valkey.url, prefix=prefix, env=DRAIN, name="two") as two,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        clients = [Client([one.ws_url, two.ws_url], mint("ann"), name=f"c{n}", cap_ms=300).start() for n in range(10)]
        try:
            for client in clients:
                await client.until_synced()
            sent = 0
            for gateway in (one, two):
                gateway.sigterm()
                while gateway.running:
                    await publisher.publish("ann", "n", sent)
                    sent += 1
                    await asyncio.sleep(0.01)  # time: the pace of the publisher
                assert await gateway.wait_exit() == 0
                await gateway.start()
            for client in clients:
                await client.until_synced(20)
                await client.until_events(sent)
                assert [event.data for event in client.events] == list(range(sent))
                assert client.resyncs == []
                client.check()
        finally:
            await asyncio.gather(*(client.close() for client in clients))
