"""Nothing for a long time, and then everybody at once."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.scene import PATIENT, scene
from tests.support.gateway import FAST_DRAIN, GatewayProcess
from tests.support.ledger import Outcome
from tests.support.proxy import FaultProxy
from tests.support.rawsocket import Ended, RawSocket, upgrade_request
from tests.support.scraped import until_told
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

READS_OUTSTANDING = 512
"""`BusLimits.reads_outstanding`: reads that Redis is asked for at the same time."""

USERS = 10

BURST = 500


def _links(store: ValkeyProcess) -> dict[str, dict[str, str]]:
    """The gateway's connections by name; publishers have none."""
    listed = [
        dict(word.partition("=")[::2] for word in line.split())
        for line in store.cli("CLIENT", "LIST").decode().splitlines()
    ]
    return {one["name"]: one for one in listed if one.get("name", "").startswith("tidings-")}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("idle_s", [2.0, pytest.param(60.0, marks=pytest.mark.full)])
async def test_idle_and_then_a_burst(prefix: str, idle_s: float) -> None:
    """With nothing published and one idle page: no reconnect, no line in the log, both connections are those of before
    and only grow older. Then 500 pages resume within the same moment and 1,000 events are published at once: all
    succeed, waiting where they must, none fails for want of a connection (redis/redis-py #4098, PR #4119, #2517;
    hopeit-git/hopeit.engine #222).

    The short run has shorter time-outs, so that it idles for longer than them as well."""
    short = {
        "TIDINGS_REDIS_TIMEOUT_MS": "1000",
        "TIDINGS_CANARY_INTERVAL_MS": "200",
        "TIDINGS_CANARY_TIMEOUT_MS": "1000",
    }
    users = [f"user-{number}" for number in range(BURST)]
    with ValkeyProcess() as store:
        async with scene(
            store, prefix, users=1, env={"TIDINGS_HEARTBEAT_MS": "20000", **(short if idle_s < 10 else {})}
        ) as stage:
            await until(lambda: "is reached" in stage.gateway.log, 10, "what is said of a new link was said")
            before, said = _links(store), stage.gateway.log
            await asyncio.sleep(idle_s)  # time: that nothing happens meanwhile is the requirement
            after = _links(store)
            assert [one["id"] for one in after.values()] == [one["id"] for one in before.values()]
            assert len(after) == 2
            for name, one in after.items():
                assert int(one["age"]) >= int(before[name]["age"]) + int(idle_s) - 1
            assert stage.gateway.log == said
            sockets = await asyncio.gather(*(RawSocket.connect(stage.gateway.ws_url, deadline_s=30) for _ in users))
            async with AsyncPublisher(store.url, prefix=prefix, deadline_s=30) as patient:
                stage.publisher = patient
                positions = await asyncio.gather(*(patient.position(user) for user in users))
                hellos = zip(sockets, users, positions, strict=True)
                await asyncio.gather(*(raw.hello(mint(user), position=at) for raw, user, at in hellos))
                outcomes, frames = await asyncio.gather(
                    asyncio.gather(*(stage.publish("user-0") for _ in range(2 * BURST))),
                    asyncio.gather(*(raw.recv_until("synced", 30) for raw in sockets)),
                )
            assert set(outcomes) == {Outcome.ACKNOWLEDGED}
            assert [page[0]["resumed"] for page in frames] == [True] * BURST
            for raw in sockets:
                raw.close()
            await stage.judge()
            assert "warning" not in stage.gateway.log.removeprefix(said)


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pages", [600, pytest.param(5000, marks=pytest.mark.full)])
async def test_all_pages_come_back_at_once(valkey: ValkeyProcess, prefix: str, pages: int) -> None:
    """More than Redis may be asked for at a time, all within the moment in which it answers nothing: the gateway keeps
    to its bound, the others wait in line, each is asked for once, and all are brought up to date (django/channels #568;
    mural.statuspage.io/incidents/3lwkql9dmxm4)."""
    async with (
        FaultProxy(valkey.port) as proxy,
        GatewayProcess(proxy.url, prefix=prefix, env={**FAST_DRAIN, **PATIENT}) as gateway,
    ):
        sockets: list[RawSocket] = []
        for start in range(0, pages, 100):
            group = (RawSocket.connect(gateway.ws_url, deadline_s=30) for _ in range(min(100, pages - start)))
            sockets += await asyncio.gather(*group)
        # Subscribed beforehand: a read waits for the confirmation, which would be held up as well.
        first = [await RawSocket.connect(gateway.ws_url, deadline_s=30) for _ in range(USERS)]
        for number, raw in enumerate(first):
            await raw.hello(mint(f"user-{number}"))
            await raw.recv_until("synced", 30)
        proxy.hold("down")
        for number, raw in enumerate(sockets):
            await raw.hello(mint(f"user-{number % USERS}"))
        told = await until_told(
            gateway.admin_url, lambda told: told["tidings_catchup_reads"] >= pages, "all have asked", 60
        )
        # One more: the canary does not wait in line.
        assert told.of("tidings_catchup_reads", state="outstanding") <= READS_OUTSTANDING + 1
        assert told.of("tidings_catchup_reads", state="queued") >= pages - READS_OUTSTANDING
        proxy.release("down")
        await asyncio.gather(*(raw.recv_until("synced", 60) for raw in sockets))
        for raw in (*first, *sockets):
            raw.close()
        told = await until_told(gateway.admin_url, lambda told: told["tidings_connections"] == 0, "all are gone", 30)
        assert told["tidings_catchup_pages_total"] == pages + USERS
        assert told["tidings_catchup_failures_total"] == 0
        assert told["tidings_bus_resubscribes_total"] == 0


async def test_more_pages_than_there_is_room_for(valkey: ValkeyProcess, prefix: str) -> None:
    """All at once on a gateway that takes few: those it has are not touched; the others are told when to come back, by
    4429 or, beyond those that can be told so, by 503 with Retry-After; and when there is room they get in."""
    room, comers = 40, 160
    env = {**FAST_DRAIN, "TIDINGS_MAX_CONNECTIONS": f"{room}"}
    async with GatewayProcess(valkey.url, prefix=prefix, env=env) as gateway:
        first = [await RawSocket.connect(gateway.ws_url) for _ in range(room)]
        for number, raw in enumerate(first):
            await raw.hello(mint(f"user-{number}"))
            await raw.recv_until("synced", 30)
        told = await asyncio.gather(*(_refused(gateway.ws_url) for _ in range(comers)))
        assert set(told) <= {"4429", "503"}
        async with AsyncPublisher(valkey.url, prefix=prefix) as publisher:
            for number, raw in enumerate(first):
                receipt = await publisher.publish(f"user-{number}", "n", number)
                assert (await raw.recv_json(30))["id"] == receipt.position
        for raw in first:
            raw.close()

        async def let_in() -> bool:
            try:
                async with await RawSocket.connect(gateway.ws_url) as raw:
                    await raw.hello(mint("late"))
                    await raw.recv_until("synced", 10)
                    return True
            except (AssertionError, Ended):
                return False

        await until(let_in, 15, "there is room again", every_s=0.05)


async def _refused(url: str) -> str:
    """How a page that finds no room is told when to come back."""
    raw = await RawSocket.tcp(url, deadline_s=30)
    async with raw:
        await raw.send_bytes(upgrade_request(url))
        if await raw.response(30) == 503:
            assert int(raw.headers["retry-after"]) >= 1
            return "503"
        goodbye = await raw.recv_json(30)
        assert (goodbye["type"], goodbye["retry_ms"] > 0) == ("goodbye", True)
        return f"{(await raw.recv_close(30))[0]}"
