"""The owner of the link: what it notices, how fast, what it says, and that it comes back."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.bus.support import FAST, NOTICED_S, Listener, append, numsub, raw_clients, running
from tests.support.proxy import FaultProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until
from tidings.errors import StoreUnavailable
from tidings.log.names import Names
from tidings_gateway.bus.bus import Bus
from tidings_gateway.bus.trouble import Kind

HEALED_S = 5
"""Users have their events within this after Redis is back."""

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def heard(server: ValkeyProcess, listener: Listener, names: Names, user: str, body: bytes) -> None:
    """What is published now arrives."""
    await until(lambda: names.channel(user) in listener.on, HEALED_S, "the channel is back")
    append(server, names, user, body)
    await until(lambda: body in listener.bodies(names.channel(user)), what=f"{body!r} is heard")


async def test_all_channels_come_back_after_three_cuts_in_a_second(valkey: ValkeyProcess, prefix: str) -> None:
    """2,000 channels, the subscribed connection killed three times at 100 to 300 ms, in the middle of re-subscribing:
    each channel is subscribed exactly once and heard (StackExchange/StackExchange.Redis #517; centrifugal/centrifugo PR
    #163)."""
    names, listener = Names(prefix), Listener()
    channels = [names.channel(f"u{n}") for n in range(2000)]
    async with running(valkey.url, prefix, listener) as bus:
        for channel in channels:
            bus.want(channel)
        await until(lambda: len(listener.on) == 2000)
        for pause_s in (0.1, 0.3, 0.2):
            # Only ours: other tests of this worker may use the server.
            for line in raw_clients(valkey):
                if f"name=tidings-{bus.gateway_id}-pubsub" in line:
                    valkey.cli("CLIENT", "KILL", "ID", line.split()[0].removeprefix("id="))
            await asyncio.sleep(pause_s)
        await until(lambda: len(listener.on) == 2000 and bus.up, HEALED_S)
        assert numsub(valkey, channels) == [1] * 2000
        assert listener.lost >= 2
        assert set(listener.on.values()) == {bus.generation}
        for user in ("u0", "u999", "u1999"):
            await heard(valkey, listener, names, user, b"back")


async def test_a_frozen_redis_is_noticed_and_healed(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """SIGSTOP raises nothing on any connection: the canary notices within its bound, reads fail instead of hanging, and
    after SIGCONT everything is back by itself."""
    names, listener = Names(prefix), Listener()
    with ValkeyProcess() as server:
        async with running(server.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(server, listener, names, "ann", b"before")
            server.freeze()
            frozen = time.monotonic()
            stuck = bus.read("ann", None)
            await until(lambda: not bus.up, what="noticed", deadline_s=10)
            assert time.monotonic() - frozen < NOTICED_S + 0.5
            assert listener.lost == 1
            with pytest.raises(StoreUnavailable) as raised:
                await stuck
            assert raised.value.retry_after_s is not None
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await bus.read("ann", None)
            bus.want(names.channel("bob"))
            await several_attempts(bus)
            server.thaw()
            await until(lambda: bus.up, HEALED_S, "healed")
            assert bus.generation == 2
            await heard(server, listener, names, "ann", b"after")
            await heard(server, listener, names, "bob", b"after")
    assert len([line for line in warnings(caplog) if "does not answer" in line]) == 1


async def test_half_open_connections_are_noticed(valkey: ValkeyProcess, prefix: str) -> None:
    """A network that swallows everything and tells nobody, for both connections."""
    names, listener = Names(prefix), Listener()
    async with FaultProxy(valkey.port) as proxy, running(proxy.url, prefix, listener) as bus:
        bus.want(names.channel("ann"))
        await until(lambda: listener.on)
        proxy.blackhole()
        begun = time.monotonic()
        await until(lambda: not bus.up, what="noticed")
        assert time.monotonic() - begun < NOTICED_S + 0.5
        proxy.pass_all()
        await heard(valkey, listener, names, "ann", b"after")


async def test_a_deaf_subscriber_is_noticed(valkey: ValkeyProcess, prefix: str) -> None:
    """Only the subscribed connection is swallowed: every command works, and still the link is replaced."""
    names, listener = Names(prefix), Listener()
    async with FaultProxy(valkey.port) as proxy, running(proxy.url, prefix, listener) as bus:
        bus.want(names.channel("ann"))
        await until(lambda: listener.on)
        first = bus._primary.link
        assert first is not None
        # As a socket that never becomes readable: what Redis sends stays in the kernel.
        assert first._pubsub._transport is not None
        first._pubsub._transport.pause_reading()
        assert await bus.ping() >= 0
        await until(lambda: listener.lost == 1, what="noticed")
        assert first.trouble is not None
        assert first.trouble.kind is Kind.DEAF
        await heard(valkey, listener, names, "ann", b"after")


async def test_killed_and_restarted(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """kill -9, some time of nothing, start: said once each, back by itself, what was stored is read."""
    caplog.set_level(logging.INFO)
    names, listener = Names(prefix), Listener()
    with ValkeyProcess(*DURABLE) as server:
        async with running(server.url, prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(server, listener, names, "ann", b"before")
            await until(lambda: "is reached" in caplog.text)
            position = (await bus.read("ann", None)).top
            server.kill()
            await until(lambda: "nothing listens" in bus.why_down)
            await several_attempts(bus)
            server.restart()
            await until(lambda: bus.up, HEALED_S)
            await heard(server, listener, names, "ann", b"after")
            page = await bus.read("ann", position)
            assert [entry.body for entry in page.entries] == [b"after"]
            await until(lambda: caplog.text.count("is reached") == 2)
    said = warnings(caplog)
    assert len(said) == len(set(said)) <= 2, said


async def test_started_before_redis(prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """The bus starts, says once what is missing, refuses reads, and is up soon after Redis appears."""
    names, listener = Names(prefix), Listener()
    server = ValkeyProcess()
    try:
        async with running(server.url, prefix, listener, up=False) as bus:
            bus.want(names.channel("ann"))
            await until(lambda: "nothing listens" in bus.why_down)
            assert not bus.up
            assert not bus.reached
            assert bus.lag_ms is None
            with pytest.raises(StoreUnavailable, match="nothing listens"):
                await bus.read("ann", None)
            with pytest.raises(StoreUnavailable):
                await bus.ping()
            await several_attempts(bus)
            assert len(warnings(caplog)) == 1
            server.start()
            await until(lambda: bus.up, HEALED_S)
            await heard(server, listener, names, "ann", b"first")
        assert listener.lost == 1, "only by closing: no link was ever lost"
    finally:
        server.close()


async def several_attempts(bus: Bus) -> None:
    """Long enough to see that each says no more than the one before."""
    after = bus._primary.attempts + 3
    await until(lambda: bus._primary.attempts >= after, 15, "three more attempts")


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


async def test_a_stalled_process_does_not_take_redis_for_dead(valkey: ValkeyProcess, prefix: str) -> None:
    """This process stands still for longer than every deadline while commands are under way: the answers are in the
    sockets, and the link stays."""
    listener = Listener()
    async with running(valkey.url, prefix, listener) as bus:
        for _ in range(3):
            link = bus._primary.link
            assert link is not None
            link._sing()
            reading = bus.read("ann", None)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            time.sleep(FAST.canary_timeout_ms / 1000 + 0.2)
            assert (await reading).top
        assert listener.lost == 0


async def test_tls(valkey: ValkeyProcess, prefix: str, tmp_path: Path) -> None:
    """`rediss://` with a certificate that is trusted works; one that is not, and a server without TLS, are said."""
    certificate, context = make_certificate(tmp_path)
    names, listener = Names(prefix), Listener()
    async with tls_proxy(valkey.port, context) as port:
        url = f"rediss://127.0.0.1:{port}"
        async with running(f"{url}?ssl_ca_certs={certificate}", prefix, listener) as bus:
            bus.want(names.channel("ann"))
            await heard(valkey, listener, names, "ann", b"1")
            assert (await bus.read("ann", None)).top
        async with refused(url, prefix, Kind.TLS, "is not trusted"):
            pass
    async with refused(f"rediss://127.0.0.1:{valkey.port}", prefix, Kind.TLS, "without TLS"):
        pass


def make_certificate(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1, and a server's context with it."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "valkey")])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    path = directory / "certificate.pem"
    path.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, directory / "key.pem")
    return path, context


@asynccontextmanager
async def tls_proxy(target_port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Ends TLS in front of a server that has none."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        near, far = await asyncio.open_connection("127.0.0.1", target_port)
        ways = [asyncio.ensure_future(pump(reader, far)), asyncio.ensure_future(pump(near, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far.transport.abort()
            writer.transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
