"""How a Redis connection is made, and what its errors mean."""

from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio.connection
import redis.connection
from redis.exceptions import AuthenticationError, BusyLoadingError, OutOfMemoryError, ReadOnlyError

from tidings.errors import InvalidSetting
from tidings.publishing.faults import ServerError
from tidings.publishing.redis_link import connection_class_and_arguments, failure_of, is_stale, server_error

MODULES = [redis.connection, redis.asyncio.connection]


@pytest.mark.parametrize("connections", MODULES, ids=["blocking", "async"])
@pytest.mark.parametrize(
    ("url", "kind", "expected"),
    [
        ("redis://h:7", "Connection", {"host": "h", "port": 7}),
        ("redis://u:p%40@h/0", "Connection", {"username": "u", "password": "p@"}),
        ("rediss://h?ssl_cert_reqs=none", "SSLConnection", {"ssl_cert_reqs": "none"}),
        ("unix:///run/x.sock", "UnixDomainSocketConnection", {"path": "/run/x.sock"}),
        ("redis://h?socket_timeout=3&retry_on_timeout=true&decode_responses=true&protocol=3", "Connection", {}),
    ],
)
def test_everything_with_a_default_is_set(connections: Any, url: str, kind: str, expected: dict[str, Any]) -> None:
    """redis-py's own retries, timeouts and decoding are off, whatever its version (redis/redis-py #4098) and URL."""
    made, arguments = connection_class_and_arguments(url, connections)
    assert made is getattr(connections, kind)
    assert expected.items() <= arguments.items()
    connection = made(**arguments)
    assert connection.retry.get_retries() == 0
    assert connection.socket_timeout is None
    assert connection.health_check_interval == 0
    assert connection.encoder.decode_responses is False
    assert connection.protocol == 2


@pytest.mark.parametrize("url", ["redis://:geheim@h?db=3", "redis://:geheim@h?colour=red", "redis://:geheim@h?db=x"])
def test_bad_options_are_refused_without_showing_the_url(url: str) -> None:
    """Before any connection is made."""
    with pytest.raises(InvalidSetting) as caught:
        connection_class_and_arguments(url, redis.connection)
    assert "geheim" not in str(caught.value)


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


def test_which_answers_make_connections_stale() -> None:
    """After a demotion, all open connections lead to the wrong server."""
    assert is_stale([b"x", ServerError("READONLY You can't write")])
    assert is_stale([ServerError("LOADING x")])
    assert not is_stale([b"x", ServerError("OOM x"), 1, []])
