"""Several connections of one user, and a dead one beside its successor."""

from __future__ import annotations

import pytest

from tests.support.client import Client
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.proxy import FaultProxy
from tests.support.rawsocket import RawSocket
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher


async def test_one_tab_leaves_and_the_others_still_hear(valkey: ValkeyProcess, prefix: str) -> None:
    """Three sockets on one gateway and two on another, ended one by one in every way: all survivors hear every
    event, and each gateway holds exactly one subscription until its last one left (louischatriot/node-redis-pubsub
    #40)."""
    env = {**FAST_DRAIN, "TIDINGS_SUBSCRIPTION_LINGER_MS": "100"}
    channel = f"{prefix}:{{ann}}"

    def subscribed() -> int:
        return int(valkey.cli("PUBSUB", "NUMSUB", channel)[1])

    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env, name="one") as one,
        GatewayProcess(valkey.url, prefix=prefix, env=env, name="two") as two,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
    ):
        clients = [
            Client(url, mint("ann"), name=f"tab {n}") for n, url in enumerate([one.ws_url] * 3 + [two.ws_url] * 2)
        ]
        for client in clients:
            client.start()
            await client.until_synced()
        sent = 0
        for leaver, how in zip([0, 3, 1, 4], ["close", "reset", "reset", "close"], strict=True):
            expected = 2 if leaver in (0, 3, 1) else 1
            assert subscribed() == 2
            gone = clients[leaver]
            if how == "reset":
                gone.stopped = "the test is done with it"
                gone.cut()
            await gone.close()
            receipt = await publisher.publish("ann", "n", sent)
            sent += 1
            for client in clients:
                if client.stopped is None:
                    await client.until_events(sent)
            await until(lambda expected=expected: subscribed() == expected)
            assert receipt.listening is not None
        survivor = clients[2]
        assert [event.data for event in survivor.events] == list(range(sent))
        await survivor.close()
        await until(lambda: subscribed() == 0)
        for client in clients:
            client.check()


@pytest.mark.parametrize("end", ["heartbeat", "slow"])
async def test_the_half_dead_socket_does_not_harm_its_successor(valkey: ValkeyProcess, prefix: str, end: str) -> None:
    """The network swallowed the old socket; the client is back on a new one before the gateway notices. When the
    old one is timed out, or closed as a slow consumer, the new one hears on (socketio/socket.io #4880)."""
    env = {
        **FAST_DRAIN,
        "TIDINGS_HEARTBEAT_MS": "1000",
        "TIDINGS_HEARTBEAT_TIMEOUT_MS": "500",
        "TIDINGS_SLOW_TIMEOUT_MS": "1000",
        "TIDINGS_CLOSE_TIMEOUT_MS": "300",
        "TIDINGS_SEND_BUFFER_BYTES": "16384",
    }
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix) as publisher,
        FaultProxy(gateway.port, receive_buffer=4096) as proxy,
        Client(gateway.ws_url, mint("ann")) as client,
    ):
        await client.until_synced()
        before = gateway.descriptors()
        old = await RawSocket.connect(f"ws://127.0.0.1:{proxy.port}/v1/ws", receive_buffer=4096)
        await old.hello(mint("ann"))
        await old.recv_until("synced")
        proxy.blackhole()
        assert gateway.descriptors() == before + 1
        pad = "x" * (4000 if end == "slow" else 10)
        sent = 0
        while gateway.descriptors() > before:
            await publisher.publish("ann", "n", {"n": sent, "pad": pad})
            sent += 1
            await client.until_events(sent)
        await publisher.publish("ann", "n", {"n": sent, "pad": pad})
        client.cut()
        await publisher.publish("ann", "n", {"n": sent + 1, "pad": pad})
        await client.until_events(sent + 2)
        assert [event.data["n"] for event in client.events] == list(range(sent + 2))
        assert client.resyncs == []
        client.check()
        old.close()
