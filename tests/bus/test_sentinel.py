"""Which server the Sentinels call primary, and that the link is always to that one."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator

import pytest

from tests.bus.support import FAST, Listener, append, clients, numsub, running
from tests.support.ports import free_port
from tests.support.sentinels import Sentinels as Servers
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.errors import StoreUnavailable
from tidings.log.names import Names
from tidings.redis_url import Address, parse_redis_url
from tidings_gateway.bus import locate
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.sentinel import Sentinels, Sighting, newest
from tidings_gateway.bus.trouble import Kind, Trouble

OLD, NEW = Address("10.0.0.1", 6379), Address("10.0.0.2", 6379)
FAILED_OVER_S = 10


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Three Sentinels over a primary and a replica, which change places from test to test."""
    with Servers(count=3) as servers:
        yield servers


@pytest.mark.parametrize(
    ("said", "known", "current", "believed"),
    [
        ([], 0, None, None),
        ([(OLD, 3)], 0, None, OLD),
        ([(OLD, 3), (NEW, 4)], 3, OLD, NEW),
        ([(NEW, 4), (OLD, 3)], 4, None, NEW),
        ([(OLD, 3)], 4, NEW, None),
        ([(OLD, 0), (OLD, 0)], 4, NEW, OLD),
        ([(OLD, 4), (NEW, 4)], 4, NEW, NEW),
    ],
    ids=["nobody", "one", "newest", "any order", "outdated", "begun anew", "tie"],
)
def test_whom_to_believe(
    said: list[tuple[Address, int]], known: int, current: Address | None, believed: Address | None
) -> None:
    """The newest decision counts; one that is older than what is known only if a majority has forgotten the rest."""
    sightings = [Sighting(*one) for one in said]
    found = newest(sightings, known_epoch=known, majority=2, current=current)
    assert (found.address if found else None) == believed


async def still_there(bus: Bus, listener: Listener, servers: Servers, names: Names) -> None:
    """What is published at the primary arrives, if not the first of it."""
    body = b'{"n":%d}' % time.monotonic_ns()

    def heard() -> bool:
        append(servers.primary, names, "ann", body)
        return bus.up and body in listener.bodies(names.channel("ann"))

    await until(heard, FAILED_OVER_S, "heard", every_s=0.05)


def monitor(servers: Servers, primary: ValkeyProcess) -> None:
    """The Sentinels forget what they know. All of them first: one that remembers would tell the others."""
    for sentinel in servers.sentinels:
        sentinel.cli("SENTINEL", "REMOVE", servers.service)
    for sentinel in servers.sentinels:
        sentinel.cli("SENTINEL", "MONITOR", servers.service, "127.0.0.1", primary.port, 2)


async def test_a_failover_is_followed_at_once(servers: Servers, prefix: str) -> None:
    """On command, with the old primary alive: the link is at the new one, with all channels, and nothing is left at the
    old one (redis/redis #6545)."""
    names, listener = Names(prefix), Listener()
    await asyncio.to_thread(servers.wait_replicating)
    async with running(servers.url, prefix, listener) as bus:
        bus.want(names.channel("ann"))
        await still_there(bus, listener, servers, names)
        old = servers.primary
        new = await asyncio.to_thread(servers.failover)
        begun = time.monotonic()
        await still_there(bus, listener, servers, names)
        assert time.monotonic() - begun < 5
        assert numsub(new, [names.channel("ann")]) == [1]
        assert not [name for name in clients(old) if bus.gateway_id in name]


async def test_a_primary_that_lives_on_is_left(servers: Servers, prefix: str) -> None:
    """Nothing is wrong with the link, every canary is heard, nobody cuts it: only the Sentinels say that another server
    is the primary. It is left within an interval (centrifugal/centrifuge PR #594)."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess() as island:
        locator = Sentinels(parse_redis_url(servers.url), timeout_ms=1000)
        right = await locator.locate()
        why = await locator.moved(type(right)("127.0.0.1", island.port))
        assert why is not None
        assert why.kind is Kind.MOVED
        assert await locator.moved(right) is None

        async with running(servers.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await still_there(bus, listener, servers, names)
            old = servers.primary
            # To the gateway it looks as if its primary had been cut off from the Sentinels with it.
            monitor(servers, island)
            try:
                await until(lambda: numsub(island, [names.channel("ann")]) == [1], FAILED_OVER_S, "at the other server")
                assert old.role() == b"master"
                assert not [name for name in clients(old) if bus.gateway_id in name]
            finally:
                monitor(servers, old)
            await until(lambda: numsub(old, [names.channel("ann")]) == [1], 5, "and back")


async def test_one_sentinel_is_enough_and_none_keeps_the_link(prefix: str) -> None:
    """Sentinels that are gone cost no link that works; what they said is remembered by nobody, so a new link waits for
    one to return, and says so."""
    names, listener = Names(prefix), Listener()
    with Servers() as servers:
        (sentinel,) = servers.sentinels
        url = servers.url.replace("redis+sentinel://", f"redis+sentinel://127.0.0.1:{free_port()},")
        async with running(url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await until(lambda: listener.on)
            sentinel.kill()
            await asyncio.sleep(4 * FAST.canary_interval_ms / 1000)  # time: that nothing happens is the requirement
            assert bus.up
            assert listener.lost == 0
            servers.data.primary.cli("CLIENT", "KILL", "TYPE", "pubsub")
            await until(lambda: "no Sentinel answers at 127.0.0.1" in bus.why_down, what="said")
            with pytest.raises(StoreUnavailable, match="no Sentinel answers"):
                await bus.read("ann", None)
            sentinel.start()
            await until(lambda: len(listener.on) > 0 and bus.up, 5, "back")


async def test_what_is_no_sentinel_and_an_unknown_service(servers: Servers, valkey: ValkeyProcess, prefix: str) -> None:
    """Said in words that name the mistake."""
    for url, words in (
        (servers.url.replace("/orders", "/nobody"), "knows no service nobody"),
        (f"redis+sentinel://127.0.0.1:{valkey.port}/orders", "answered with: ERR unknown command 'SENTINEL'"),
    ):
        with pytest.raises(Trouble, match=re.escape(words)) as raised:
            await Sentinels(parse_redis_url(url), timeout_ms=1000).locate()
        assert raised.value.kind is Kind.SENTINEL
        async with running(url, prefix, up=False) as bus:
            await until(lambda words=words, bus=bus: words in bus.why_down)
            assert not bus.up


async def test_sentinels_have_credentials_of_their_own(servers: Servers) -> None:
    """Those of the data servers are not shown to a Sentinel; wrong ones are told in words."""
    for sentinel in servers.sentinels:
        sentinel.cli("ACL", "SETUSER", "asker", "on", ">let me in", "+@all")
    hosts = servers.url.partition("://")[2]
    right = f"redis+sentinel://data:secret@{hosts}?sentinel_username=asker&sentinel_password=let%20me%20in"
    found = await Sentinels(parse_redis_url(right), timeout_ms=1000).locate()
    assert (found.port, found.auth) == (servers.primary.port, ("AUTH", "data", "secret"))
    with pytest.raises(Trouble, match="refused the user name or password") as raised:
        await Sentinels(parse_redis_url(right.replace("%20in", "")), timeout_ms=1000).locate()
    assert raised.value.kind is Kind.CREDENTIALS


class _Broken(Sentinels):
    async def moved(self, _: Endpoint, /) -> Trouble | None:
        raise RuntimeError("no such thing")


async def test_a_watcher_that_dies_is_noticed(
    servers: Servers, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault in asking must not leave a link that nobody watches: it is logged, and the link is replaced."""
    monkeypatch.setattr(locate, "Sentinels", _Broken)
    listener = Listener()
    async with running(servers.url, prefix, listener):
        await until(lambda: listener.lost >= 2, what="replaced, and again")
    assert "nobody watches where the primary is" in caplog.text
    assert "no such thing" in caplog.text
