"""What a page would continue from is not there any more. It is told so; it never gets a part that looks like the whole.

Trimmed by its length, its keys deleted one by one, forked by a failover: `tests/integration/test_resume.py`.
"""

from __future__ import annotations

import asyncio
import time

from tests.faults.scene import scene
from tests.support.client import Client
from tests.support.gateway import GatewayProcess
from tests.support.ledger import Outcome
from tests.support.scraped import scrape, until_told
from tests.support.tokens import mint
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings import AsyncPublisher

TTL_S = 1
CLOSED = "tidings_connections_closed_total"


async def test_away_for_longer_than_events_are_kept(valkey: ValkeyProcess, prefix: str) -> None:
    """The stream has expired: `trimmed` with how many there were, the position of the top, and live from there. A page
    that had everything resumes as if nothing had been (dunglas/mercure #704)."""
    async with (
        GatewayProcess(valkey.url, prefix=prefix, env={"TIDINGS_LOG_TTL_S": f"{TTL_S}"}) as gateway,
        AsyncPublisher(valkey.url, prefix=prefix, log_ttl_s=TTL_S) as publisher,
    ):
        positions = {}
        for user in ("ann", "bob"):
            async with Client(gateway.ws_url, mint(user)) as client:
                await client.until_synced()
                await publisher.publish(user, "n", 0)
                await client.until_events(1)
                positions[user] = client.stored
        missed = [await publisher.publish("ann", "n", number) for number in (1, 2, 3)]
        await until(lambda: not valkey.cli("EXISTS", f"{prefix}:{{ann}}:log", f"{prefix}:{{bob}}:log"), TTL_S + 10)
        async with (
            Client(gateway.ws_url, mint("ann"), position=positions["ann"]) as ann,
            Client(gateway.ws_url, mint("bob"), position=positions["bob"]) as bob,
        ):
            await asyncio.gather(ann.until_synced(), bob.until_synced())
            (resync,) = ann.resyncs
            assert (resync.reason, resync.missed, resync.position) == ("trimmed", 3, missed[-1].position)
            assert bob.resyncs == []
            for client, user in ((ann, "ann"), (bob, "bob")):
                await publisher.publish(user, "n", 4)
                await client.until_events(1)
                assert [event.data for event in client.events] == [4]
                client.check()


async def test_flushed_under_live_sessions_and_those_away(prefix: str) -> None:
    """`FLUSHALL` while events flow and half of the pages are away: every page is told `epoch`, whether it was connected
    or comes back later, and nobody is told it goes on. The metrics count each."""
    with ValkeyProcess() as store:
        async with scene(store, prefix, users=10) as stage:
            async with stage.publishing(100):
                await stage.until_live(time.monotonic())
                for client in stage.clients[:5]:
                    client.cut()
                # A session whose cut is not yet seen would be told as well, and its page be counted twice.
                await until_told(stage.gateway.admin_url, lambda told: told[CLOSED] == 5, "the cuts are seen")
                store.cli("FLUSHALL")
                await stage.until_live(time.monotonic())
            await until(lambda: all(client.resyncs for client in stage.clients))
            reasons = [[resync.reason for resync in client.resyncs] for client in stage.clients]
            assert reasons == [["epoch"]] * 10
            told = await scrape(stage.gateway.admin_url)
            assert told.by("tidings_resyncs_total", "reason") == {"epoch": 10}
            assert stage.ledger.count(Outcome.FAILED) == 0
            await stage.judge(resyncs_allowed=True, same_connection=False)
