"""Exchanges with Redis for asyncio, one at a time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.publisher.publishing.test_redis_blocking import request
from tests.support.proxy import FaultProxy
from tests.support.tls import TlsRelay
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until
from tidings.publishing.faults import ServerError
from tidings.publishing.redis_async import AsyncRedis
from tidings.redis_url import parse_redis_url


async def test_answers_in_order_and_errors_among_them(valkey: ValkeyProcess) -> None:
    """An error is an answer like others: those behind it are still read, by whom they are for."""
    transport = AsyncRedis(parse_redis_url(valkey.url), 1)
    commands = [(b"ECHO", b"0"), (b"ECHO", b"1"), (b"NOSUCHCOMMAND",), (b"ECHO", b"2")]
    outcome = await transport.run(request(*commands, preparing=1), 5)
    assert outcome.failure is None
    one, unknown, two = outcome.answers
    assert (one, two) == (b"1", b"2")
    assert isinstance(unknown, ServerError)
    assert (await transport.run(request((b"ECHO", b"3")), 5)).answers == [b"3"]
    await transport.close()


async def test_waiting_for_a_connection_is_not_having_sent(valkey: ValkeyProcess) -> None:
    """When all connections are in use until time is up, nothing was sent."""
    async with FaultProxy(valkey.port) as proxy:
        transport = AsyncRedis(parse_redis_url(proxy.url), 1)
        await transport.run(request((b"PING",)), 5)
        proxy.hold("down")
        sent = proxy.bytes_up
        busy = asyncio.create_task(transport.run(request((b"PING",)), 5))
        await until(lambda: proxy.bytes_up > sent, 5, "the connection is in use")
        outcome = await transport.run(request((b"PING",)), 0.1)
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent) == ("busy", False)
        proxy.release()
        assert (await busy).answers == [b"PONG"]
        await transport.close()


async def test_what_was_answered_before_the_break_counts(valkey: ValkeyProcess) -> None:
    """The answers that came are given, with why there are no more."""
    async with FaultProxy(valkey.port) as proxy:
        transport = AsyncRedis(parse_redis_url(proxy.url), 1)
        await transport.run(request((b"PING",)), 5)
        proxy.cut_after(10)
        outcome = await transport.run(request(*[(b"ECHO", b"x")] * 5), 5)
        assert outcome.answers == [b"x"]
        assert outcome.failure is not None
        assert outcome.failure.sent
        await transport.close()


async def test_connecting_counts(valkey: ValkeyProcess) -> None:
    """A handshake that is never answered ends in time, and nothing was sent."""
    async with FaultProxy(valkey.port) as proxy:
        proxy.hold("down")
        transport = AsyncRedis(parse_redis_url(f"redis://:password@127.0.0.1:{proxy.port}"), 1)
        start = time.monotonic()
        outcome = await transport.run(request((b"PING",)), 0.3)
        assert time.monotonic() - start < 0.3 + BUSY_S
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent) == ("timeout", False)
        await transport.close()


async def test_a_connection_is_used_again(valkey: ValkeyProcess) -> None:
    """One call after the other needs one connection; one that has something to read is not used."""
    async with FaultProxy(valkey.port) as proxy:
        transport = AsyncRedis(parse_redis_url(proxy.url), 5)
        for _ in range(5):
            await transport.run(request((b"PING",)), 5)
        assert proxy.accepted == 1
        proxy.reset()
        for _ in range(3):  # the proxy closes its sockets in the next rounds of this loop
            await asyncio.sleep(0)
        assert (await transport.run(request((b"PING",)), 5)).answers == [b"PONG"]
        assert proxy.accepted == 2
        await transport.close()


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.may_block("reads the certificate file when it connects, which redis-py leaves no other time for")
async def test_tls(valkey: ValkeyProcess, tls: TlsRelay, trusted: bool) -> None:
    """rediss:// with a certificate that is trusted works, again on the same connection; one that is not is an error."""
    option = f"?ssl_ca_certs={tls.certificate}" if trusted else ""
    transport = AsyncRedis(parse_redis_url(f"rediss://127.0.0.1:{tls.relay_to(valkey.port)}{option}"), 2)
    outcomes = [await transport.run(request((b"ECHO", b"x" * 50_000)), 5) for _ in range(3)]
    if trusted:
        assert [outcome.answers for outcome in outcomes] == [[b"x" * 50_000]] * 3
        assert tls.accepted == 1
    else:
        assert all(outcome.failure is not None and not outcome.failure.sent for outcome in outcomes)
    await transport.close()


async def test_a_local_socket(tmp_path: Path) -> None:
    """unix:// leads to a server on the same machine; where none listens, it says so."""
    path = tmp_path / "s"
    with ValkeyProcess("--unixsocket", str(path)):
        transport = AsyncRedis(parse_redis_url(f"unix://{path}"), 1)
        assert (await transport.run(request((b"ECHO", b"x")), 5)).answers == [b"x"]
        await transport.close()
    outcome = await AsyncRedis(parse_redis_url(f"unix://{path}"), 1).run(request((b"ECHO", b"x")), 1)
    assert outcome.failure is not None
    assert not outcome.failure.sent
