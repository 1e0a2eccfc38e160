"""Publishing over HTTP through a real gateway into a real log: the two sides of section "Publishing" fit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import orjson
import pytest

from tests.publisher.conftest import Make
from tests.publisher.support import RealLog
from tests.support.gateway import GatewayProcess
from tests.support.tokens import API_KEY
from tests.support.valkey import ValkeyProcess
from tidings import InvalidEvent, InvalidUser, Message, PublishError, Receipt
from tidings.log.position import Position


@pytest.fixture(scope="module")
def store() -> Iterator[ValkeyProcess]:
    with ValkeyProcess() as server:
        yield server


@pytest.fixture
def gateway(store: ValkeyProcess, prefix: str) -> Iterator[GatewayProcess]:
    process = GatewayProcess(store.url, prefix=prefix, env={"TIDINGS_BASE_PATH": "/push"})
    try:
        yield process.start_sync()
    finally:
        process.kill()
        asyncio.run(process.close(check=False))


def test_all_calls_through_a_gateway(make: Make, store: ValkeyProcess, gateway: GatewayProcess, prefix: str) -> None:
    """Receipts, positions, duplicates, ephemerals, several users, many messages, refusals: as over Redis."""
    log = RealLog(store, prefix, "alice")
    with make(f"{gateway.url}/push", api_key=API_KEY, deadline_s=10) as publisher:
        assert Position.parse(publisher.position("alice")).seq == 0
        first = publisher.publish("alice", "job.complete", {"n": 1.5}, key="k", idempotency_key="i")
        again = publisher.publish("alice", "job.complete", {"n": 1.5}, key="k", idempotency_key="i")
        assert (again.position, again.duplicate) == (first.position, True)
        assert publisher.position("alice") == first.position
        assert publisher.publish("alice", "job.progress", 1, ephemeral=True).position is None
        results = publisher.publish(["alice", "bob", "*"], "a", None)
        assert [type(result) for result in results] == [Receipt, Receipt, InvalidUser]
        results = publisher.publish_many([Message("alice", "a", number) for number in range(250)])
        assert [Position.parse(result.position).seq for result in results] == list(range(3, 253))
        with pytest.raises(InvalidEvent):
            publisher.publish("alice", "a", float("inf"))
    (entry,) = log.read(first.position.replace(".1-", ".0-").partition("-")[0] + "-0", limit=1).entries
    body = orjson.loads(entry.body)
    assert (body["event"], body["data"], body["key"]) == ("job.complete", {"n": 1.5}, "k")
    assert abs(body["time"] / 1000 - time.time()) < 60


def test_a_gateway_whose_store_is_full(make: Make, store: ValkeyProcess, gateway: GatewayProcess, prefix: str) -> None:
    """The refusal comes through with its code: retryable, and known not to be stored."""
    with make(f"{gateway.url}/push", api_key=API_KEY, deadline_s=3) as publisher:
        publisher.publish("alice", "a", 1)
        store.cli("CONFIG", "SET", "maxmemory", 1)
        try:
            with pytest.raises(PublishError) as caught:
                publisher.publish("alice", "a", 2)
            assert (caught.value.code, caught.value.retryable) == ("storage_full", True)
            assert caught.value.outcome_unknown is False
            assert caught.value.retry_after_s
            (result,) = publisher.publish_many([Message("alice", "a", 2)])
            assert isinstance(result, PublishError)
            assert result.code == "storage_full"
        finally:
            store.cli("CONFIG", "SET", "maxmemory", 0)
        assert Position.parse(publisher.publish("alice", "a", 3).position).seq == 2


def test_a_gateway_that_knows_another_key(make: Make, gateway: GatewayProcess) -> None:
    """A wrong API key is final."""
    with make(f"{gateway.url}/push", api_key="x" * 40) as publisher, pytest.raises(PublishError) as caught:
        publisher.position("alice")
    assert (caught.value.code, caught.value.retryable) == ("unauthorized", False)
