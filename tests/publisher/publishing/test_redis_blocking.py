"""Exchanges with Redis, one at a time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.proxy import ThreadedProxy
from tests.support.tls import TlsRelay
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until_sync
from tidings.publishing.faults import ServerError
from tidings.publishing.redis_blocking import BlockingRedis
from tidings.publishing.redis_wire import RedisRequest
from tidings.redis_url import parse_redis_url


def request(*commands: tuple[bytes, ...], preparing: int = 0) -> RedisRequest:
    return RedisRequest(commands, preparing)


def test_answers_in_order_and_errors_among_them(valkey: ValkeyProcess) -> None:
    """An error is an answer like others: those behind it are still read, by whom they are for."""
    transport = BlockingRedis(parse_redis_url(valkey.url), 1)
    commands = [(b"ECHO", b"0"), (b"ECHO", b"1"), (b"NOSUCHCOMMAND",), (b"EVALSHA", b"0" * 40, b"0"), (b"ECHO", b"2")]
    outcome = transport.run(request(*commands, preparing=1), 5)
    assert outcome.failure is None
    one, unknown, script, two = outcome.answers
    assert (one, two) == (b"1", b"2")
    assert isinstance(unknown, ServerError)
    assert isinstance(script, ServerError)
    assert script.code == "NOSCRIPT"
    assert transport.run(request((b"ECHO", b"3")), 5).answers == [b"3"]
    transport.close()


def test_waiting_for_a_connection_is_not_having_sent(valkey: ValkeyProcess) -> None:
    """When all connections are in use until time is up, nothing was sent."""
    with ThreadedProxy(valkey.port) as proxy:
        transport = BlockingRedis(parse_redis_url(proxy.url), 1)
        transport.run(request((b"PING",)), 5)
        proxy.call(lambda faults: faults.hold("down"))
        sent = proxy.call(lambda faults: faults.bytes_up)
        busy = threading.Thread(target=transport.run, args=(request((b"PING",)), 5))
        busy.start()
        until_sync(lambda: proxy.call(lambda faults: faults.bytes_up) > sent, 5, "the connection is in use")
        outcome = transport.run(request((b"PING",)), 0.2)
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent) == ("busy", False)
        proxy.call(lambda faults: faults.release())
        busy.join()
        transport.close()


def test_what_was_answered_before_the_break_counts(valkey: ValkeyProcess) -> None:
    """The answers that came are given, with why there are no more."""
    with ThreadedProxy(valkey.port) as proxy:
        transport = BlockingRedis(parse_redis_url(proxy.url), 1)
        transport.run(request((b"PING",)), 5)
        proxy.call(lambda faults: faults.cut_after(10))
        outcome = transport.run(request(*[(b"ECHO", b"x")] * 5), 5)
        assert outcome.answers == [b"x"]
        assert outcome.failure is not None
        assert outcome.failure.sent
        transport.close()


def test_a_demoted_server_empties_the_pool(valkey: ValkeyProcess) -> None:
    """READONLY: every open connection may lead to the old primary; all are opened anew, where the name leads now."""
    with ValkeyProcess() as server:
        transport = BlockingRedis(parse_redis_url(server.url), 3)
        threads = [
            threading.Thread(target=transport.run, args=(request((b"BLPOP", b"none", b"0.1")), 5)) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool = transport._pools.get()
        assert len(pool._idle._by_server[None]) == 3
        server.cli("REPLICAOF", "127.0.0.1", "1")
        (answer,) = transport.run(request((b"SET", b"a", b"b")), 5).answers
        assert isinstance(answer, ServerError)
        assert answer.code == "READONLY"
        assert pool._idle.servers == []
        transport.close()


def test_connecting_counts(valkey: ValkeyProcess) -> None:
    """A handshake that is never answered ends in time, and nothing was sent."""
    with ThreadedProxy(valkey.port) as proxy:
        proxy.call(lambda faults: faults.hold("down"))
        transport = BlockingRedis(parse_redis_url(f"redis://:password@127.0.0.1:{proxy.port}"), 1)
        start = time.monotonic()
        outcome = transport.run(request((b"PING",)), 0.3)
        assert time.monotonic() - start < 0.3 + BUSY_S
        assert outcome.failure is not None
        assert (outcome.failure.code, outcome.failure.sent) == ("timeout", False)
        proxy.call(lambda faults: faults.release())
        transport.close()


@pytest.mark.parametrize("trusted", [True, False])
def test_tls(valkey: ValkeyProcess, tls: TlsRelay, trusted: bool) -> None:
    """rediss:// with a certificate that is trusted works, again on the same connection; one that is not is an error."""
    option = f"?ssl_ca_certs={tls.certificate}" if trusted else ""
    transport = BlockingRedis(parse_redis_url(f"rediss://127.0.0.1:{tls.relay_to(valkey.port)}{option}"), 2)
    outcomes = [transport.run(request((b"ECHO", b"x" * 50_000)), 5) for _ in range(3)]
    if trusted:
        assert [outcome.answers for outcome in outcomes] == [[b"x" * 50_000]] * 3
        assert tls.accepted == 1
    else:
        assert all(outcome.failure is not None and not outcome.failure.sent for outcome in outcomes)
    transport.close()


def test_a_local_socket(tmp_path: Path) -> None:
    """unix:// leads to a server on the same machine; where none listens, it says so."""
    path = tmp_path / "s"
    with ValkeyProcess("--unixsocket", str(path)):
        transport = BlockingRedis(parse_redis_url(f"unix://{path}"), 1)
        assert transport.run(request((b"ECHO", b"x")), 5).answers == [b"x"]
        transport.close()
    outcome = BlockingRedis(parse_redis_url(f"unix://{path}"), 1).run(request((b"ECHO", b"x")), 1)
    assert outcome.failure is not None
    assert not outcome.failure.sent
