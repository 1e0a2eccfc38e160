"""A Redis that answers, but not as we need it: its credentials, permissions, role, what it is at all. Said in words,
and mended by itself when Redis is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from tests.bus.support import (
    DURABLE,
    HEALED_S,
    NOTICED_S,
    Listener,
    append,
    heard,
    running,
    several_attempts,
    warnings,
)
from tests.support.proxy import FaultProxy
from tests.support.tls import TlsRelay
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.log.names import Names
from tidings_gateway.bus.trouble import Kind


@asynccontextmanager
async def refused(url: str, prefix: str, kind: Kind, words: str) -> AsyncIterator[Callable[[], bool]]:
    """A bus at `url` says why it has no link; gives the question whether it is up."""
    async with running(url, prefix, up=False) as bus:
        await until(lambda: words in bus.why_down, what=f"it says {words!r}")
        assert bus._primary.kind_down is kind
        assert not bus.up
        yield lambda: bus.up


async def test_credentials_in_words(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """No password, a wrong one, one too many, an unknown user: each said, never shown, and mended on Redis' side alone
    it heals."""
    with ValkeyProcess() as server:
        address = f"127.0.0.1:{server.port}"
        async with refused(f"redis://:sesame@{address}", prefix, Kind.CREDENTIALS, "has no password set") as up:
            server.cli("CONFIG", "SET", "requirepass", "sesame")
            await until(up, HEALED_S)
        async with refused(server.url, prefix, Kind.CREDENTIALS, "gives none"):
            pass
        async with refused(f"redis://:sesam@{address}", prefix, Kind.CREDENTIALS, "refused the user name"):
            pass
        async with refused(f"redis://gw:sesame@{address}", prefix, Kind.CREDENTIALS, "refused the user name") as up:
            server.cli("AUTH", "sesame")
            server.cli("ACL", "SETUSER", "gw", "on", ">sesame", "~*", "&*", "+@all")
            await until(up, HEALED_S)
    assert "sesam" not in caplog.text


async def test_least_privilege_is_enough(prefix: str) -> None:
    """A Redis user with only these commands, keys and channels runs the whole bus."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess() as server:
        commands = (
            "+subscribe +unsubscribe +publish +evalsha +script|load +set +get +hmget +hset +ttl +expire +exists +del"
        )
        server.cli(
            "ACL", "SETUSER", "gw", "on", ">pw", f"~{prefix}:*", f"&{prefix}:*", "-@all",
            *commands.split(), "+xrange", "+xadd", "+time",
        )  # fmt: skip
        async with running(f"redis://gw:pw@127.0.0.1:{server.port}", prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(server, listener, names, "ann", b"1")
            assert [entry.body for entry in (await bus.read("ann", None, last=5)).entries] == [b"1"]


async def test_no_permission_to_subscribe(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """Commands work, SUBSCRIBE is forbidden: not up, said in words; taken away while running it is noticed too, and
    given back it heals, without one line per attempt."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess() as server:
        server.cli("ACL", "SETUSER", "gw", "on", ">pw", "~*", "&*", "+@all", "-subscribe")
        async with running(f"redis://gw:pw@127.0.0.1:{server.port}", prefix, listener, up=False) as bus:
            bus.want(names.channel("ann"))
            await until(lambda: "subscribe" in bus.why_down)
            assert bus._primary.kind_down is Kind.PERMISSION
            await several_attempts(bus)
            assert len(warnings(caplog)) == 1
            server.cli("ACL", "SETUSER", "gw", "+subscribe")
            await heard(server, listener, names, "ann", b"1")
            server.cli("ACL", "SETUSER", "gw", "resetchannels")
            await until(lambda: not bus.up and "permission" in bus.why_down)
            server.cli("ACL", "SETUSER", "gw", "allchannels")
            await heard(server, listener, names, "ann", b"2")


async def test_users_channels_forbidden(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """The canary's channel is allowed and the users' are not: the link dies again and again, and that is one line in
    the log, not two per attempt."""
    names, listener = Names(prefix), Listener()
    caplog.set_level(logging.INFO)
    with ValkeyProcess() as server:
        server.cli("ACL", "SETUSER", "gw", "on", ">pw", "~*", "resetchannels", f"&{prefix}:gw:*", "+@all")
        async with running(f"redis://gw:pw@127.0.0.1:{server.port}", prefix, listener, up=False) as bus:
            bus.want(names.channel("ann"))
            await until(lambda: listener.lost >= 4, 10)
            assert listener.on == {}
        assert len(warnings(caplog)) == 1
        assert "is reached" not in caplog.text


async def test_a_demoted_primary_is_left(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """REPLICAOF on the live server: connections stay, PING works, PUBLISH works; the canary's write is refused and the
    link goes. Promoted again, it comes back."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess() as other, ValkeyProcess() as server:
        async with running(server.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(server, listener, names, "ann", b"before")
            server.cli("REPLICAOF", "127.0.0.1", other.port)
            await until(lambda: not bus.up and "replica" in bus.why_down, NOTICED_S + 2)
            assert bus._primary.kind_down is Kind.REPLICA
            assert listener.lost == 1
            server.cli("REPLICAOF", "NO", "ONE")
            await heard(server, listener, names, "ann", b"after")
    assert any("replica" in line for line in warnings(caplog))


async def test_a_replica_that_takes_writes_is_refused(prefix: str) -> None:
    """`replica-read-only no` fools the canary's write, not the greeting."""
    with ValkeyProcess() as other, ValkeyProcess("--replica-read-only", "no") as server:
        server.cli("REPLICAOF", "127.0.0.1", other.port)
        async with refused(server.url, prefix, Kind.REPLICA, "works with the primary only"):
            pass


async def test_loading_in_words(prefix: str) -> None:
    """A server that is reading its data from disk is not up; when it has finished, it is."""
    listener = Listener()
    server = ValkeyProcess(*DURABLE)
    try:
        server.start()
        for _ in range(20):
            server.cli("EVAL", "for i = 1, 500 do redis.call('SET', KEYS[1] .. i, string.rep('x', 100)) end", 1, prefix)
        server.cli("SET", "rest", "x")
        server.kill()
        server.extra = (*DURABLE, "--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
        server.start(wait=False)
        async with running(server.url, prefix, listener, up=False) as bus:
            await until(lambda: "loading its data" in bus.why_down, 10)
            assert bus._primary.kind_down is Kind.LOADING
            await until(lambda: bus.up, 20)
    finally:
        server.close()


async def test_a_full_redis_is_still_read_and_heard(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """maxmemory reached under `noeviction`: the link stays, reads go on, what is refused is said once and ends."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess("--maxmemory-policy", "noeviction") as server:
        append(server, names, "ann", b"stored")
        async with running(server.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await until(lambda: listener.on)
            server.cli("CONFIG", "SET", "maxmemory", "1")
            await until(lambda: bus.writes_refused.startswith("OOM"))
            lag = bus.lag_ms
            await until(lambda: bus.lag_ms != lag, what="the canary is heard all the same")
            assert [entry.body for entry in (await bus.read("ann", None, last=1)).entries] == [b"stored"]
            server.cli("PUBLISH", names.channel("ann"), "x\nlive")
            await until(lambda: listener.bodies(names.channel("ann")) == [b"live"])
            server.cli("CONFIG", "SET", "maxmemory", "0")
            await until(lambda: bus.writes_refused == "")
            assert listener.lost == 0
    assert len([line for line in warnings(caplog) if "takes no writes" in line]) == 1


async def test_no_more_clients_in_words(prefix: str) -> None:
    """`maxclients` reached: Redis refuses before it is asked anything."""
    with ValkeyProcess() as server:
        server.cli("CONFIG", "SET", "maxclients", "1")
        async with refused(server.url, prefix, Kind.FULL, "takes no more clients") as up:
            server.cli("CONFIG", "SET", "maxclients", "100")
            await until(up, HEALED_S)


async def test_something_else_listens(prefix: str) -> None:
    """A wrong port is said, whatever answers there."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with suppress(OSError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, refused(f"redis://127.0.0.1:{port}", prefix, Kind.ANSWERED, "does not speak the Redis protocol"):
        pass


async def test_two_servers_behind_one_address(valkey: ValkeyProcess, prefix: str) -> None:
    """A balancer that spreads connections: reads would come from one server and records from another."""
    with ValkeyProcess() as other:
        balancer = Balancer(valkey.port, other.port)
        async with balancer, refused(balancer.url, prefix, Kind.DEAF, "two connections"):
            pass


class Balancer(FaultProxy):
    """Sends each connection to the other one of two servers."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)
        self._ports = [one, two]

    @property
    def target(self) -> tuple[str, int]:
        self._ports.reverse()
        return "127.0.0.1", self._ports[0]

    @target.setter
    def target(self, value: tuple[str, int]) -> None:
        pass


async def test_tls(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """`rediss://` with a certificate that is trusted works; one that is not, and a server without TLS, are said."""
    names, listener = Names(prefix), Listener()
    with closing(TlsRelay(tmp_path)) as relay:
        url = f"rediss://127.0.0.1:{relay.relay_to(valkey.port)}"
        async with running(f"{url}?ssl_ca_certs={relay.certificate}", prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(valkey, listener, names, "ann", b"1")
            assert (await bus.read("ann", None)).top
        async with refused(url, prefix, Kind.TLS, "is not trusted"):
            pass
    async with refused(f"rediss://127.0.0.1:{valkey.port}", prefix, Kind.TLS, "without TLS"):
        pass
