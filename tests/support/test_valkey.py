"""The test server itself."""

from __future__ import annotations

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until, until_sync


def test_data_and_port_survive_a_restart() -> None:
    """With an append-only file, `restart(kill=True)` comes back on the same port with the same data."""
    with ValkeyProcess("--appendonly", "yes", "--appendfsync", "always") as server:
        port = server.port
        server.cli("SET", "a", "1")
        server.restart(kill=True)
        assert server.port == port
        assert server.cli("GET", "a") == b"1"


def test_frozen_server_answers_nothing_and_comes_back() -> None:
    """`freeze()` leaves connections open and unanswered; after `thaw()` the same server answers."""
    with ValkeyProcess() as server:
        server.freeze()
        client = redis.Redis(
            port=server.port, socket_timeout=0.2, socket_connect_timeout=0.2, retry=Retry(NoBackoff(), 0)
        )
        with pytest.raises(redis.TimeoutError):
            client.ping()
        client.close()
        server.thaw()
        assert until_sync(lambda: server.cli("PING"))


def test_a_server_that_cannot_start_says_why() -> None:
    """A wrong option is reported with the server's own words, not as a time-out."""
    server = ValkeyProcess("--no-such-option", "1")
    with pytest.raises(RuntimeError, match="no-such-option"):
        server.start()
    server.close()


def test_a_server_that_cannot_start_leaves_nothing_behind() -> None:
    """Nobody is inside the `with` to clean up: neither a process nor a directory stays."""
    server = ValkeyProcess("--no-such-option", "1")
    with pytest.raises(RuntimeError, match="no-such-option"), server:
        raise AssertionError("it runs")
    assert not server.running
    assert not server.directory.exists()


async def test_shared_fixture_is_private_to_the_worker(valkey: ValkeyProcess, prefix: str) -> None:
    """The session-wide server answers, and a prefix is unused."""
    assert valkey.cli("KEYS", f"{prefix}*") == []
    assert await until(lambda: valkey.cli("PING"))
