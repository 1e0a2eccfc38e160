"""Only the subscribed connection is cut: commands go on, so nothing looks wrong to anybody else."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.faults.scene import PATIENT, Scene, scene
from tests.support.ledger import Outcome
from tests.support.proxy import FaultProxy
from tests.support.scraped import scrape
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.log.receipt import Receipt
from tidings.publishing.message import Message

LAG = "tidings_event_loop_lag_seconds"
STALL_S = 1.0
"""What the event loop may stand still for while all channels are subscribed anew. We promise 0.2 s; a machine that has
other things to do adds its own, and one SUBSCRIBE of everything would stall it for longer than this."""


async def cut(store: ValkeyProcess) -> None:
    store.cli("CLIENT", "KILL", "TYPE", "pubsub")


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("cuts", [10, pytest.param(100, marks=pytest.mark.full)])
async def test_cut_again_and_again_while_events_flow(prefix: str, cuts: int) -> None:
    """`CLIENT KILL TYPE pubsub` at random moments under 200 events/s, most of them while the last cut is being mended:
    no page is closed, misses anything or hears it twice, none is told to resync; and the metrics tell how often it was
    (redis/redis-py #2089, slact/nchan #442)."""
    rng = random.Random(2)
    with ValkeyProcess() as store:
        async with scene(store, prefix, users=15) as stage:
            async with stage.publishing(200):
                for _ in range(cuts):
                    await cut(store)
                    await asyncio.sleep(rng.uniform(0.01, 0.25))
                await stage.until_live(time.monotonic())
            told = await scrape(stage.gateway.admin_url)
            assert told["tidings_bus_resubscribes_total"] >= 3
            assert told.of("tidings_bus_lost_total", kind="closed") >= 3
            await stage.judge()


@pytest.mark.may_block(reason="the HTTP client reads certificates")
@pytest.mark.timeout(180)
@pytest.mark.parametrize("users", [100, pytest.param(2000, marks=pytest.mark.full)])
async def test_a_second_cut_while_all_channels_are_subscribed_anew(prefix: str, users: int) -> None:
    """Many users on one gateway; the subscribed connection is cut, and twice more when some of the channels are back
    and the others are not: every channel comes back, exactly once, none stays dead, and the event loop goes on
    meanwhile (StackExchange/StackExchange.Redis #517; centrifugal/centrifugo PR #163)."""
    names = [f"user-{number}" for number in range(users)]
    channels = [f"{prefix}:{{{user}}}" for user in names]
    env = {**PATIENT, "TIDINGS_SUBSCRIBE_BATCH": "4"}
    with ValkeyProcess() as store:
        async with (
            FaultProxy(store.port) as proxy,
            scene(store, prefix, env=env, redis_url=proxy.url) as stage,
        ):
            for start in range(0, users, 100):
                await stage.join(*names[start : start + 100])
            before = (await scrape(stage.gateway.admin_url)).samples[f"{LAG}_bucket"]
            proxy.throttle(users * 60, "up")  # All SUBSCRIBEs together take the better part of a second.
            await cut(store)
            for _ in range(2):
                await until(
                    lambda: users / 10 <= sum(_subscribers(store, channels)) <= users * 0.9, 20, "some are back"
                )
                await cut(store)
            proxy.pass_all()
            await until(
                lambda: _subscribers(store, channels) == [1] * users, 15, "each is subscribed once", every_s=0.1
            )
            after = (await scrape(stage.gateway.admin_url)).samples[f"{LAG}_bucket"]
            await _one_to_each(stage)
            await stage.judge()
            slow = [
                after[bucket] - before[bucket]
                for bucket in (frozenset({("le", "+Inf")}), frozenset({("le", f"{STALL_S}")}))
            ]
            assert slow[0] - slow[1] == 0, f"the event loop stood still for more than {STALL_S} s"


def _subscribers(store: ValkeyProcess, channels: list[str]) -> list[int]:
    return [int(count) for count in store.cli("PUBSUB", "NUMSUB", *channels)[1::2]]


async def _one_to_each(stage: Scene) -> None:
    messages = [Message(user, "n", stage.ledger.attempted(user, f"to {user}")) for user in stage.by_user]
    for receipt, message in zip(await stage.publisher.publish_many(messages), messages, strict=True):
        assert isinstance(receipt, Receipt)
        assert receipt.position is not None
        stage.ledger.acknowledged(f"to {message.user}", receipt.position)
    assert stage.ledger.count(Outcome.ACKNOWLEDGED) == len(messages)
