"""What every connection says first, and what it is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.bus.test_resp import Clock, connection, transport
from tests.bus.test_scripts import SCRIPT, sent
from tests.support.valkey import ValkeyProcess
from tidings_gateway.bus.endpoint import Endpoint
from tidings_gateway.bus.handshake import greet
from tidings_gateway.bus.resp import RespConnection
from tidings_gateway.bus.trouble import Kind, Trouble


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


WITH_PASSWORD = Endpoint("x", username="u", password="p")
SERVER = bulk(b"# Server\r\nredis_version:9.9.9\r\nrun_id:abc123\r\n")
PRIMARY = bulk(b"# Replication\r\nrole:master\r\n")
REPLICA = bulk(b"# Replication\r\nrole:slave\r\n")


async def said(
    answers: bytes, endpoint: Endpoint | None = None, *, sharded: bool = False
) -> tuple[list[list[bytes]], bytes | None]:
    conn = connection()
    greeting = greet(conn, endpoint or Endpoint(), name="me", scripts=(SCRIPT,), sharded=sharded)
    task = asyncio.ensure_future(greeting)
    await asyncio.sleep(0)
    conn.data_received(answers)
    run_id = await task
    assert len(transport(conn).written) == 1, "one round trip"
    return sent(conn), run_id


async def test_everything_in_one_round_trip() -> None:
    """Log in, name, who is there, scripts."""
    commands, run_id = await said(b"+OK\r\n+OK\r\n" + SERVER + PRIMARY + bulk(b"sha"), WITH_PASSWORD)
    assert [command[:2] for command in commands] == [
        [b"AUTH", b"u"],
        [b"CLIENT", b"SETNAME"],
        [b"INFO", b"server"],
        [b"INFO", b"replication"],
        [b"SCRIPT", b"LOAD"],
    ]
    assert run_id == b"abc123"


async def test_names_and_info_may_be_forbidden() -> None:
    """A Redis user with only the permissions the work needs is enough."""
    denied = b"-NOPERM this user has no permissions\r\n"
    _, run_id = await said(denied * 3 + bulk(b"sha"))
    assert run_id is None


async def test_a_replica_is_refused() -> None:
    """Also one that takes writes: only primaries are read."""
    with pytest.raises(Trouble) as raised:
        await said(b"+OK\r\n" + SERVER + REPLICA + bulk(b"sha"))
    assert raised.value.kind is Kind.REPLICA


@pytest.mark.parametrize("mode", [b"redis_mode", b"server_mode"])
async def test_a_node_of_a_cluster_is_refused_unless_that_is_what_we_came_for(mode: bytes) -> None:
    """Most users' logs are elsewhere; which URL it should have been is said."""
    server = bulk(b"# Server\r\n" + mode + b":cluster\r\nrun_id:abc123\r\n")
    with pytest.raises(Trouble, match=r"redis\+cluster://") as raised:
        await said(b"+OK\r\n" + server + PRIMARY + bulk(b"sha"))
    assert raised.value.kind is Kind.CLUSTER
    _, run_id = await said(b"+OK\r\n" + server + PRIMARY + bulk(b"sha"), sharded=True)
    assert run_id == b"abc123"


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (
            b"-WRONGPASS invalid username-password pair\r\n" + b"-NOAUTH Authentication required.\r\n" * 4,
            Kind.CREDENTIALS,
        ),
        (b"+OK\r\n+OK\r\n" + SERVER + PRIMARY + b"-LOADING Redis is loading the dataset in memory\r\n", Kind.LOADING),
        (b"+OK\r\n+OK\r\n" + SERVER + PRIMARY + b"-NOPERM no permission for 'script|load'\r\n", Kind.PERMISSION),
        (b"+OK\r\n-BUSY Redis is busy running a script.\r\n", Kind.BUSY),
    ],
)
async def test_the_first_refusal_is_the_reason(answers: bytes, kind: Kind) -> None:
    """What follows from it is not."""
    with pytest.raises(Trouble) as raised:
        await said(answers, WITH_PASSWORD)
    assert raised.value.kind is kind


async def test_against_a_real_server(valkey: ValkeyProcess) -> None:
    """Two connections to one server see the same run."""
    loop = asyncio.get_running_loop()
    runs = []
    for _ in range(2):
        _, conn = await loop.create_connection(
            lambda: RespConnection(turn_replies=16, turn_ms=2, clock_ms=Clock()), "127.0.0.1", valkey.port
        )
        runs.append(await greet(conn, Endpoint(port=valkey.port), name="me", scripts=(SCRIPT,)))
        conn.fail(None)
    assert runs[0] == runs[1]
    assert runs[0]
