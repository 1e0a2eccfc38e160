"""Publishing through a gateway, blocking and not: what is asked, and what is made of the answers."""

from __future__ import annotations

import time

import pytest

from tests.publisher.conftest import Make
from tests.publisher.stub import StubGateway, as_json, problem
from tests.support.proxy import FaultProxy, ThreadedProxy
from tests.support.tokens import API_KEY
from tests.support.waiting import BUSY_S
from tidings import InvalidSetting, Message, PublishError, Receipt


def test_what_is_asked_of_the_gateway(make: Make, stub: StubGateway) -> None:
    """The members of the contract, the key in the header, connections kept alive."""
    with make(stub.url, api_key=API_KEY) as publisher:
        publisher.publish("alice", "a.b", {"n": [1, "é"]}, key="k", idempotency_key="i")
        publisher.publish("alice", "a.b", ephemeral=True)
        publisher.publish(["alice", "bob"], "a.b", 1, idempotency_key="j")
        publisher.position("a+b=c@d")
    (_, path, headers, first), (*_, second), (*_, third), (method, asked, _, _) = stub.requests
    assert (path, headers["authorization"]) == ("/v1/publish", f"Bearer {API_KEY}")
    assert headers["content-type"] == "application/json"
    assert first == {"user": "alice", "event": "a.b", "data": {"n": [1, "é"]}, "key": "k", "idempotency_key": "i"}
    assert second == {"user": "alice", "event": "a.b", "data": None, "ephemeral": True}
    assert [message["user"] for message in third["messages"]] == ["alice", "bob"]
    assert {message["idempotency_key"] for message in third["messages"]} == {"j"}
    assert (method, asked) == ("GET", "/v1/position?user=a%2Bb%3Dc%40d")
    assert stub.connections == 1


def test_a_base_path(make: Make) -> None:
    """A gateway below a path of its host."""
    with StubGateway("/push") as stub, make(stub.url + "/", api_key=API_KEY) as publisher:
        assert publisher.publish("alice", "a").position == publisher.position("alice")
        assert [path for _, path, _, _ in stub.requests] == ["/push/v1/publish", "/push/v1/position?user=alice"]


def test_some_stored_and_some_not(make: Make, stub: StubGateway) -> None:
    """207: each message has its own result."""
    with make(stub.url, api_key=API_KEY) as publisher:
        results = publisher.publish_many([Message("alice", "a"), Message("alice", "refused"), Message("alice", "a")])
        assert [type(result) for result in results] == [Receipt, PublishError, Receipt]
        assert (results[1].code, results[1].retryable) == ("invalid", False)
        assert "no such event" in results[1].why
        with pytest.raises(PublishError):
            publisher.publish("alice", "refused")


def test_only_what_failed_is_repeated(make: Make, stub: StubGateway) -> None:
    """A message that was stored is not sent again with one that was not."""
    failed = {"error": {"code": "unavailable", "status": 503, "detail": "x", "retryable": True}}
    stored = {"user": "alice", "id": "EpochOne.1-1", "duplicate": False, "listening": 0}
    stub.canned.append(as_json(207, {"results": [stored, failed, stored]}))
    with make(stub.url, api_key=API_KEY) as publisher:
        results = publisher.publish_many([Message(f"user{number}", "a") for number in range(3)])
    assert all(isinstance(result, Receipt) for result in results)
    assert [body.get("user", "several") for *_, body in stub.requests] == ["several", "user1"]


def test_retry_after_is_obeyed_within_the_deadline(make: Make, stub: StubGateway) -> None:
    """503 with Retry-After: not sooner; and when it lies beyond the deadline, the caller is told at once."""
    stub.canned.append(problem(503, "unavailable", "x", headers={"retry-after": "1"}))
    with make(stub.url, api_key=API_KEY, deadline_s=20) as publisher:
        start = time.monotonic()
        assert publisher.publish("alice", "a").duplicate is False
        assert time.monotonic() - start >= 1.0
        stub.canned.append(problem(503, "storage_full", "full", headers={"retry-after": "30"}))
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a")
        assert time.monotonic() - start < BUSY_S
        assert (caught.value.code, caught.value.retry_after_s) == ("storage_full", 30.0)
        assert (caught.value.retryable, caught.value.outcome_unknown) == (True, False)


def test_a_dropped_answer_over_http_does_not_store_twice(make: Make, stub: StubGateway) -> None:
    """The connection ends instead of an answer: repeated with the same key, stored once."""
    stub.drops = 2
    with make(stub.url, api_key=API_KEY) as publisher:
        receipt = publisher.publish("alice", "a")
    assert receipt.duplicate is True
    assert len(stub.stored["alice"]) == 1
    keys = {body["idempotency_key"] for *_, body in stub.requests}
    assert (len(keys), len(stub.requests)) == (1, 3)


def test_an_ephemeral_event_over_http_is_sent_once(make: Make, stub: StubGateway) -> None:
    """As over Redis: what cannot be recognised is not repeated."""
    stub.drops = 1
    with make(stub.url, api_key=API_KEY) as publisher, pytest.raises(PublishError) as caught:
        publisher.publish("alice", "a", ephemeral=True)
    assert caught.value.outcome_unknown
    assert len(stub.requests) == 1


def test_a_gateway_that_hangs(make: Make, stub: StubGateway) -> None:
    """The deadline is kept, and the outcome is unknown."""
    stub.hangs = True
    with make(stub.url, api_key=API_KEY, deadline_s=0.4) as publisher:
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a")
        assert 0.3 <= time.monotonic() - start <= 0.4 + BUSY_S
        assert (caught.value.code, caught.value.outcome_unknown) == ("timeout", True)


def test_a_wrong_api_key(make: Make, stub: StubGateway) -> None:
    """Final, in words, without the key."""
    with make(stub.url, api_key="wrong" + "x" * 40) as publisher, pytest.raises(PublishError) as caught:
        publisher.publish("alice", "a")
    assert (caught.value.code, caught.value.retryable) == ("unauthorized", False)
    assert "wrongx" not in str(caught.value)
    assert len(stub.requests) == 1


def test_redirects_are_not_followed(make: Make, stub: StubGateway) -> None:
    """The API key is shown to nobody else."""
    with StubGateway() as other:
        stub.canned.append((308, {"location": other.url + "/v1/publish"}, b""))
        with make(stub.url, api_key=API_KEY) as publisher, pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a")
        assert (caught.value.code, caught.value.retryable) == ("redirected", False)
        assert other.requests == []


def test_an_idle_connection_that_was_closed(make: Make, stub: StubGateway) -> None:
    """A gateway may close an idle connection at any time: the next call, an ephemeral one too, does not notice."""
    stub.canned.append(as_json(200, {"id": "EpochOne.1-1"}, connection="close"))
    with ThreadedProxy(stub.port) as proxy, make(f"http://127.0.0.1:{proxy.port}", api_key=API_KEY) as publisher:
        publisher.publish("alice", "a")
        publisher.publish("alice", "a")
        assert proxy.call(FaultProxy.reset) == 1
        proxy.call(FaultProxy.reset)  # answered in a later round of the proxy's loop, when the sockets are closed
        assert publisher.publish("alice", "a", ephemeral=True) == Receipt(None, listening=2)


def test_an_api_key_is_needed_and_only_for_http(make: Make, monkeypatch: pytest.MonkeyPatch, stub: StubGateway) -> None:
    """The first of TIDINGS_API_KEY serves; a digest does not, nor a key for Redis."""
    with pytest.raises(InvalidSetting, match="needed"):
        make(stub.url)
    with pytest.raises(InvalidSetting, match="digest"):
        make(stub.url, api_key="sha256:" + "0" * 64)
    with pytest.raises(InvalidSetting, match="over HTTP"):
        make("redis://127.0.0.1", api_key=API_KEY)
    with pytest.raises(InvalidSetting, match="ASCII"):
        make(stub.url, api_key="k" * 40 + "\n")
    monkeypatch.setenv("TIDINGS_API_KEY", f"{API_KEY},{'o' * 40}")
    with make(stub.url) as publisher:
        assert publisher.publish("alice", "a").position


@pytest.mark.parametrize("url", ["http://", "https://u:p@h", "http://h?x=1", "http://h:port", "http://h#x"])
def test_bad_http_urls(make: Make, url: str) -> None:
    """They are refused when the publisher is made."""
    with pytest.raises(InvalidSetting):
        make(url, api_key=API_KEY)
