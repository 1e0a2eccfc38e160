"""Publishing to whoever is primary, as the Sentinels have it, while that changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.publisher.conftest import Make
from tests.publisher.hammer import Hammer, close
from tests.publisher.support import RealLog
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy
from tests.support.replicated import Replicated
from tests.support.sentinels import SentinelProcess, Sentinels
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until_sync
from tidings import AsyncPublisher, Publisher, PublishError, Receipt
from tidings.log.page import ResyncReason

USERS = ["ann", "bob", "cid", "dan"]


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    with Sentinels(count=3) as sentinels:
        yield sentinels


def log_of(sentinels: Sentinels, prefix: str, user: str) -> RealLog:
    return RealLog(sentinels.primary, prefix, user)


def test_all_calls(make: Make, sentinels: Sentinels, prefix: str) -> None:
    """Stored at the primary, heard by who listens there, and confirmed by the replica."""
    log = RealLog(sentinels.primary, prefix, "ann")
    with make(sentinels.url, prefix=prefix) as publisher, log.listen() as channel:
        first = publisher.publish("ann", "a", 1)
        heard = channel.heard()
        assert heard is not None
        assert first.position in heard.decode()
        assert publisher.publish("ann", "a", 2, ephemeral=True) == Receipt(None, listening=1)
        assert publisher.position("ann") == first.position
        assert publisher.publish("ann", "a", 3, min_replicas=1).position
    assert len(log.read(None, last=9).entries) == 2


def test_a_sentinel_that_is_silent_or_gone(make: Make, sentinels: Sentinels, prefix: str) -> None:
    """Another one is asked, within the deadline."""
    silent, *_ = sentinels.sentinels
    url = sentinels.url.replace("://", f"://127.0.0.1:{free_port()},")
    silent.freeze()
    try:
        with make(url, prefix=prefix, deadline_s=4) as publisher:
            assert publisher.publish("ann", "a", 1).position
    finally:
        silent.thaw()


def test_nobody_knows_the_service(make: Make, sentinels: Sentinels, prefix: str) -> None:
    """The error names it, and that nothing is stored is known."""
    url = sentinels.url.replace("/orders", "/invoices")
    with make(url, prefix=prefix, deadline_s=0.3) as publisher, pytest.raises(PublishError, match="invoices") as caught:
        publisher.publish("ann", "a", 1)
    assert (caught.value.code, caught.value.retryable, caught.value.outcome_unknown) == ("unavailable", True, False)


@pytest.mark.parametrize("kind", [Publisher, pytest.param(AsyncPublisher, marks=pytest.mark.full)])
async def test_a_failover_while_publishing(kind: Any, sentinels: Sentinels, prefix: str) -> None:
    """Every event that was acknowledged with its replica is in the new primary's log, once, and in order."""
    await asyncio.to_thread(sentinels.wait_replicating)
    publisher = kind(sentinels.url, prefix=prefix, log_max_events=50_000, deadline_s=8)
    hammer = Hammer(publisher, USERS, min_replicas=1)
    await hammer.through(sentinels.failover)
    assert hammer.lost(partial(log_of, sentinels, prefix)) == set()
    assert not hammer.failed
    await close(publisher)


@pytest.mark.parametrize("kind", [pytest.param(Publisher, marks=pytest.mark.full), AsyncPublisher])
async def test_a_primary_that_dies(kind: Any, prefix: str) -> None:
    """kill -9: those who publish wait for the next one, within their deadline. Without the replica's confirmation an
    acknowledged event may be lost; then no position of that time can be continued."""
    sentinels = await asyncio.to_thread(Sentinels().start)
    publisher = kind(sentinels.url, prefix=prefix, log_max_events=50_000, deadline_s=10)
    try:
        hammer = Hammer(publisher, USERS)
        # As a gateway reads: from then on the log knows which primary it was last read from.
        logs = {user: RealLog(sentinels.primary, prefix, user, failover="resync") for user in USERS}
        before = {user: log.read(None).top for user, log in logs.items()}
        old = sentinels.primary

        def die() -> None:
            old.kill()
            sentinels.wait_moved(old)

        await hammer.through(die)
        assert not hammer.failed
        for event in hammer.lost(partial(log_of, sentinels, prefix)):
            log = RealLog(sentinels.primary, prefix, event.partition("-")[0], failover="resync")
            assert log.read(before[log.user]).reason is not None
    finally:
        await close(publisher)
        await asyncio.to_thread(sentinels.close)


def test_what_the_new_primary_never_had(prefix: str) -> None:
    """Acknowledged while the link to the replica was dead, and lost with the primary: the position a page was given
    then is refused afterwards, although every number fits. With `min_replicas` it was never acknowledged."""
    with Sentinels(linked=True) as sentinels, Publisher(sentinels.url, prefix=prefix, deadline_s=6) as publisher:
        publisher.publish("ann", "a", 1, min_replicas=1)
        position = publisher.position("ann")
        assert sentinels.data.link is not None
        sentinels.data.link.call(FaultProxy.blackhole)
        lost = publisher.publish("ann", "a", 2)
        old = sentinels.primary
        old.kill()
        sentinels.wait_moved(old)
        assert publisher.publish("ann", "a", 3).position != lost.position
        log = RealLog(sentinels.primary, prefix, "ann", failover="resync")
        assert log.read(position).reason is ResyncReason.EPOCH
        assert publisher.position("ann") == log.top.decode()
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            Publisher(sentinels.url, prefix=prefix, deadline_s=0.6).publish("ann", "a", 4, min_replicas=1)
        assert time.monotonic() - start < 0.6 + BUSY_S
        assert (caught.value.code, caught.value.outcome_unknown) == ("unreplicated", True)


def test_a_sentinel_cut_off_with_the_old_primary(make: Make, prefix: str) -> None:
    """What is published goes to the primary that the others made, not to the one that lives on and will forget it."""
    newer = "sentinel config-epoch orders 7"
    with (
        ValkeyProcess() as cut_off,
        ValkeyProcess() as other,
        SentinelProcess(cut_off.port, "orders") as believes,
        SentinelProcess(other.port, "orders", newer) as knows,
        SentinelProcess(other.port, "orders", newer) as too,
    ):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in (believes, knows, too))
        with make(f"redis+sentinel://{hosts}/orders", prefix=prefix) as publisher:
            position = publisher.publish("ann", "a", 1).position
        assert RealLog(other, prefix, "ann").top.decode() == position


def test_a_primary_cut_off_from_its_replicas(make: Make, prefix: str) -> None:
    """It lives, and so does a Sentinel that is cut off with it and believes in it; only that it refuses writes for want
    of replicas shows it. Others know who took over, and are asked: what is refused here is stored there."""
    with (
        ValkeyProcess("--min-replicas-to-write", "1") as cut_off,
        ValkeyProcess() as other,
        SentinelProcess(cut_off.port, "orders") as believes,
        SentinelProcess(other.port, "orders") as knows,
    ):
        url = f"redis+sentinel://127.0.0.1:{believes.port},127.0.0.1:{knows.port}/orders"
        with make(url, prefix=prefix, deadline_s=4) as publisher:
            position = publisher.publish("ann", "a", 1).position
        assert RealLog(other, prefix, "ann").top.decode() == position


def test_demoted_in_place(make: Make, prefix: str) -> None:
    """A primary by address that becomes a replica, alive, with every connection open: nothing is called a success that
    nobody will hear of, and it works again when it is the primary again (redis/go-redis #583)."""
    with Replicated() as servers, make(servers.primary.url, prefix=prefix, deadline_s=0.6) as publisher:
        old = servers.primary
        publisher.publish("ann", "a", 1)
        servers.promote()
        attempts = {
            "durable": partial(publisher.publish, "ann", "a", 2),
            "ephemeral": partial(publisher.publish, "ann", "a", 2, ephemeral=True),
            "position": partial(publisher.position, "ann"),
        }
        servers.wait_online()
        for attempt in attempts.values():
            # A machine that stands still may turn one into a timeout; none is ever a success.
            until_sync(lambda: _error_of(attempt) == ("read_only", False), 10, "the error says read_only")  # noqa: B023
        servers.promote(old)
        until_sync(lambda: old.role() == b"master", 5, "the old one is primary again")
        for attempt in attempts.values():
            assert attempt()


def _error_of(attempt: Callable[[], object]) -> tuple[str, bool]:
    with pytest.raises(PublishError) as caught:
        attempt()
    return caught.value.code, caught.value.outcome_unknown
