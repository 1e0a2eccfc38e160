"""Redis is there and of no use: at the start of the gateway or later. The gateway lives, says what is wrong, and heals
by itself when that is mended on Redis' side.

Redis that is not there at all at the start: `tests/test_app.py`, and how soon it is noticed that it came:
`tests/bus/test_primary.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
import pytest

from tests.faults.scene import DURABLE, ENV, KEY, QUICK, scene
from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Outcome
from tests.support.ports import free_port
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until

Mend = Callable[[], object]
READY_WITHIN_S = 10
LOOK_EVERY_S = 0.1


def wrong_password(store: ValkeyProcess) -> tuple[str, Mend]:
    store.start()
    url = store.url.replace("redis://", "redis://:sesame-sesame@")

    return url, lambda: store.cli("CONFIG", "SET", "requirepass", "sesame-sesame")


def read_only(store: ValkeyProcess) -> tuple[str, Mend]:
    """A replica whose primary is not there: it keeps what it has, and takes no writes."""
    store.start()
    store.cli("REPLICAOF", "127.0.0.1", free_port())
    return store.url, lambda: store.cli("REPLICAOF", "NO", "ONE")


def loading(store: ValkeyProcess) -> tuple[str, Mend]:
    """It reads its data from disk, for some seconds, and then is done by itself."""
    store.start()
    for _ in range(20):
        store.cli("EVAL", "for i = 1, 500 do redis.call('SET', KEYS[1] .. i, string.rep('x', 100)) end", 1, "load")
    store.cli("SET", "rest", "x")
    store.kill()
    store.extra = (*DURABLE, "--key-load-delay", "400", "--loading-process-events-interval-bytes", "1024")
    store.start(wait=False)
    return store.url, lambda: None


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.parametrize(
    ("harm", "words", "codes"),
    [
        (wrong_password, "no password set", {"unauthorized"}),
        pytest.param(read_only, "works with the primary only", {"read_only"}, marks=pytest.mark.full),
        (loading, "is loading its data", {"loading", "timeout"}),
    ],
)
async def test_a_start_with_a_redis_of_no_use(
    prefix: str, harm: Callable[[ValkeyProcess], tuple[str, Mend]], words: str, codes: set[str]
) -> None:
    """Wrong password, read-only replica, still loading: the process starts and stays, /livez 200, /readyz 503, a page
    is told to come back, a publisher gets an error with its kind, and the log says it in words, once. Mended, it is
    ready within 10 s, without a restart (Vexa-ai/vexa #248; caesarakalaeii/all-chat PR #459; redis/redis-py #460)."""
    store = ValkeyProcess(*DURABLE)
    try:
        url, mend = harm(store)
        gateway = GatewayProcess(url, prefix=prefix, env={**ENV, **QUICK, "TIDINGS_STORE_WAIT_MS": "300"})
        http = httpx.AsyncClient(base_url=gateway.url, timeout=10, headers=KEY)
        message = {"user": "ann", "event": "n", "data": 1}
        try:
            await gateway.start(ready=False)
            await until(lambda: words in gateway.log, 15, f"the log says {words!r}")
            assert (await http.get("/livez")).status_code == 200
            assert (await http.get("/readyz")).status_code == 503
            answer = await http.post("/v1/publish", json=message)
            assert answer.status_code >= 500
            assert answer.json()["code"] in codes
            async with Client(gateway.ws_url, mint("ann"), base_ms=50, cap_ms=300) as client:
                await until(lambda: bool(client.closes))
                assert (client.closes[0].code, client.closes[0].reason) == (1013, "store away")
                mend()
                await client.until_synced(READY_WITHIN_S + 5)
                assert (await http.get("/readyz")).status_code == 200
                assert (await http.post("/v1/publish", json=message)).status_code == 200
                await client.until_events(1)
                client.check()
            if harm is not loading:  # It answers now and then, and is 'silent' in between.
                assert gateway.log.count(words) == 1
            assert "sesame" not in gateway.log
        finally:
            await http.aclose()
            await gateway.close()
    finally:
        store.close()


async def test_demoted_and_promoted_again(prefix: str) -> None:
    """The primary becomes a read-only replica under live sessions and stays up, so nothing is cut: publishers get 503
    `read_only`, never a false success; the gateway leaves the link, pages stay, and all goes on after the promotion
    (redis/redis #6545; redis/redis-py #460; redis/go-redis #583)."""
    with ValkeyProcess() as store:
        async with scene(store, prefix, users=6, env=QUICK) as stage:
            async with stage.publishing(100):
                await stage.until_live(time.monotonic())
                store.cli("REPLICAOF", "127.0.0.1", free_port())
                await stage.until_ready(False)
                answer = await stage.http.post("/v1/publish", json={"user": "user-0", "event": "n", "data": 1})
                assert (answer.status_code, answer.json()["code"]) == (503, "read_only")
                assert await stage.publish("user-0") is Outcome.FAILED
                store.cli("REPLICAOF", "NO", "ONE")
                await stage.until_live(time.monotonic())
            await stage.judge()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("lasts_s", [1.0, pytest.param(20.0, marks=pytest.mark.full)])
async def test_the_subscription_is_cut_and_denied(prefix: str, lasts_s: float) -> None:
    """`CLIENT KILL` and an ACL without SUBSCRIBE, so that the gateway cannot listen while everything else works:
    /readyz is red all the time, the process lives, and when the permission is back it hears again by itself, and every
    page has what was published meanwhile (open-webui/open-webui #28909; dapr/components-contrib #554)."""
    with ValkeyProcess() as store:
        store.cli("ACL", "SETUSER", "gw", "on", ">pw", "~*", "&*", "+@all")
        url = store.url.replace("redis://", "redis://gw:pw@")
        async with scene(store, prefix, users=6, redis_url=url) as stage:
            async with stage.publishing(100):
                await stage.until_live(time.monotonic())
                store.cli("ACL", "SETUSER", "gw", "-subscribe")
                store.cli("CLIENT", "KILL", "TYPE", "pubsub")
                await stage.until_ready(False)
                end = time.monotonic() + lasts_s
                while time.monotonic() < end:
                    assert (await stage.http.get("/readyz")).status_code == 503
                    assert (await stage.http.get("/livez")).status_code == 200
                    await asyncio.sleep(LOOK_EVERY_S)
                store.cli("ACL", "SETUSER", "gw", "+subscribe")
                await stage.until_live(time.monotonic())
                await stage.until_ready(True)
            await stage.judge()
