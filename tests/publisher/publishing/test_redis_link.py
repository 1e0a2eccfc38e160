"""How a Redis connection is made, and what its errors mean."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio.connection
import redis.connection
from redis.exceptions import AuthenticationError, BusyLoadingError, OutOfMemoryError, ReadOnlyError

from tidings.publishing.redis_link import Dialer, failure_of, server_error
from tidings.publishing.routes import Server
from tidings.redis_url import Address, parse_redis_url

MODULES = [redis.connection, redis.asyncio.connection]


@pytest.mark.parametrize("connections", MODULES, ids=["blocking", "async"])
@pytest.mark.parametrize(
    ("url", "kind", "expected"),
    [
        ("redis://h:7", "Connection", {"host": "h", "port": 7, "username": None, "password": None}),
        ("redis://u:p%40@h/0", "Connection", {"username": "u", "password": "p@"}),
        ("rediss://h?ssl_cert_reqs=none", "SSLConnection", {"ssl_cert_reqs": "none", "ssl_check_hostname": False}),
        ("rediss://h?ssl_ca_certs=/ca", "SSLConnection", {"ssl_ca_certs": "/ca", "ssl_check_hostname": True}),
        ("unix:///run/x.sock", "UnixDomainSocketConnection", {"path": "/run/x.sock"}),
    ],
)
def test_everything_with_a_default_is_set(connections: Any, url: str, kind: str, expected: dict[str, Any]) -> None:
    """redis-py's own retries, timeouts and decoding are off, whatever its version (redis/redis-py #4098)."""
    dialer = Dialer(parse_redis_url(url), connections)
    arguments = dialer.arguments(None)
    assert dialer.kind is getattr(connections, kind)
    assert expected.items() <= arguments.items()
    connection = dialer.kind(**arguments)
    assert connection.retry.get_retries() == 0
    assert connection.socket_timeout is None
    assert connection.health_check_interval == 0
    assert connection.encoder.decode_responses is False
    assert connection.protocol == 2


def test_sentinels_have_credentials_of_their_own() -> None:
    """Those of the data servers are not shown to them, and the other way round."""
    url = parse_redis_url("redis+sentinel://app:data@s:1/orders?sentinel_username=w&sentinel_password=watch")
    dialer = Dialer(url, redis.connection)
    sentinel = dialer.arguments(Server(Address("s", 1), sentinel=True))
    assert (sentinel["host"], sentinel["port"], sentinel["username"], sentinel["password"]) == ("s", 1, "w", "watch")
    data = dialer.arguments(Server(Address("d", 2)))
    assert (data["host"], data["port"], data["username"], data["password"]) == ("d", 2, "app", "data")
    plain = Dialer(parse_redis_url("redis+sentinel://app:data@s/orders"), redis.connection)
    assert plain.arguments(Server(Address("s", 1), sentinel=True))["password"] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "OOM"),
        (ReadOnlyError("You can't write against a read only replica."), "READONLY"),
        (BusyLoadingError("Redis is loading the dataset in memory"), "LOADING"),
        (AuthenticationError("Authentication required."), "NOAUTH"),
        (AuthenticationError("invalid username-password pair or user is disabled."), "WRONGPASS"),
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), "NOREPLICAS"),
        (redis.ResponseError("READONLY You can't write"), "READONLY"),
    ],
)
def test_the_code_comes_back(error: Exception, code: str) -> None:
    """redis-py takes the code off some errors and not off others; ours always have it."""
    assert server_error(error).code == code


def test_words_for_a_broken_exchange() -> None:
    """Whether anything was sent, and what was under way when time ran out."""
    failure = failure_of(TimeoutError(), sent=True, doing="waiting for the answer")
    assert (failure.code, failure.sent) == ("timeout", True)
    assert "waiting for the answer" in failure.why
    failure = failure_of(redis.ConnectionError("Error 111 connecting"), sent=False, doing="connecting")
    assert (failure.code, failure.sent, failure.final) == ("unavailable", False, False)
    failure = failure_of(AuthenticationError("invalid username-password pair"), sent=False, doing="connecting")
    assert (failure.code, failure.final) == ("unauthorized", True)
    failure = failure_of(BusyLoadingError("loading"), sent=False, doing="connecting")
    assert (failure.code, failure.final) == ("loading", False)
    assert failure_of(OSError(), sent=True, doing="").why
