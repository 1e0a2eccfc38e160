"""What every publisher does: blocking or not, over Redis or over HTTP, the same calls, results and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson
import pytest

from tests.publisher.blocking import Blocking
from tests.publisher.stub import StubGateway, as_json, problem
from tests.publisher.support import RealLog
from tests.support.ports import free_port
from tests.support.proxy import FaultProxy, ThreadedProxy
from tests.support.tokens import API_KEY
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings import InvalidEvent, InvalidSetting, InvalidUser, Message, Publisher, PublishError, Receipt
from tidings.log.eventlog import LogLimits
from tidings.log.position import Position

Make = Callable[..., Any]


@pytest.fixture(params=[Publisher, Blocking], ids=["blocking", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    kind: Make = request.param
    return kind


@pytest.fixture
def stub() -> Iterator[StubGateway]:
    with StubGateway() as stub:
        yield stub


@pytest.fixture(params=["redis", "http"])
def publisher(request: pytest.FixtureRequest, make: Make, valkey: ValkeyProcess, prefix: str) -> Iterator[Any]:
    if request.param == "redis":
        with make(valkey.url, prefix=prefix) as made:
            yield made
    else:
        with StubGateway() as stub, make(stub.url, api_key=API_KEY) as made:
            yield made


# Over Redis and HTTP alike


def test_publish_gives_a_receipt(publisher: Any) -> None:
    """The receipt holds the position, which is the user's position from then on."""
    before = publisher.position("alice")
    assert Position.parse(before).seq == 0
    first = publisher.publish("alice", "job.complete", {"job": 1})
    second = publisher.publish("alice", "job.complete", {"job": 2}, key="job 2")
    assert isinstance(first, Receipt)
    assert [Position.parse(receipt.position or "").seq for receipt in (first, second)] == [1, 2]
    assert publisher.position("alice") == second.position


def test_the_same_idempotency_key_stores_once(publisher: Any) -> None:
    """The second call gets the first one's position and is told so; without a key, two calls are two events."""
    first = publisher.publish("alice", "a", 1, idempotency_key="k")
    again = publisher.publish("alice", "a", 1, idempotency_key="k")
    assert (again.position, again.duplicate, first.duplicate) == (first.position, True, False)
    assert publisher.publish("alice", "a", 1).position != publisher.publish("alice", "a", 1).position


def test_an_ephemeral_event_has_no_position(publisher: Any) -> None:
    """It is told and not stored."""
    before = publisher.position("alice")
    receipt = publisher.publish("alice", "job.progress", 0.5, ephemeral=True)
    assert (receipt.position, receipt.duplicate) == (None, False)
    assert publisher.position("alice") == before


def test_several_users_get_one_result_each(publisher: Any) -> None:
    """In their order; a bad user is an error in its place and holds nobody up."""
    results = publisher.publish(["alice", "not a user", "bob", "alice"], "a", 1)
    assert isinstance(results[1], InvalidUser)
    assert [Position.parse(results[index].position).seq for index in (0, 2, 3)] == [1, 1, 2]
    assert publisher.publish(("alice",), "a")[0].position == publisher.position("alice")
    assert publisher.publish([], "a") == []


def test_many_messages_get_one_result_each(publisher: Any) -> None:
    """In their order, stored in their order; a bad message is an error in its place."""
    messages = [Message("alice", "a", number) for number in range(300)]
    messages[7] = Message("alice", "a", float("nan"))
    messages[8] = Message("*", "a", 1)
    messages[9] = Message("alice", "a b", 1)
    messages[10] = Message("alice", "a", 1, ephemeral=True, idempotency_key="k")
    messages[11] = Message("alice", "a", 1, ephemeral=True)
    results = publisher.publish_many(iter(messages))
    kinds = [InvalidEvent, InvalidUser, InvalidEvent, InvalidEvent]
    assert [type(result) for result in results[7:11]] == kinds
    assert results[7].path == "data"
    assert results[11].position is None
    stored = [result for result in results if isinstance(result, Receipt) and result.position]
    assert [Position.parse(receipt.position or "").seq for receipt in stored] == list(range(1, 296))
    assert publisher.publish_many([]) == []


def test_bad_arguments_are_refused_before_anything_is_sent(publisher: Any) -> None:
    """User, type, data, key and idempotency key."""
    before = publisher.position("alice")
    for arguments, error in (
        (("not a user", "a", 1), InvalidUser),
        ((None, "a", 1), InvalidUser),
        (("alice", "a b", 1), InvalidEvent),
        (("alice", "a", {"x": {1}}), InvalidEvent),
        (("alice", "a", "x" * 70_000), InvalidEvent),
    ):
        with pytest.raises(error):
            publisher.publish(*arguments)
    with pytest.raises(InvalidEvent):
        publisher.publish("alice", "a", 1, key="")
    with pytest.raises(InvalidEvent):
        publisher.publish("alice", "a", 1, idempotency_key="é")
    with pytest.raises(InvalidUser):
        publisher.position("*")
    assert publisher.position("alice") == before


def test_a_closed_publisher_says_so(publisher: Any) -> None:
    """After close nothing is opened again in silence; closing twice does no harm."""
    publisher.publish("alice", "a", 1)
    publisher.close()
    with pytest.raises(PublishError) as caught:
        publisher.publish("alice", "a", 1)
    assert (caught.value.code, caught.value.retryable, caught.value.outcome_unknown) == ("closed", False, False)
    publisher.close()


@pytest.mark.parametrize("scheme", ["redis", "http"])
def test_nobody_listens(make: Make, scheme: str) -> None:
    """A dead port: retried until the deadline, then an error that says that nothing was stored, and may be retried."""
    url = f"{scheme}://127.0.0.1:{free_port()}"
    named = {"api_key": API_KEY} if scheme == "http" else {}
    with make(url, deadline_s=0.4, **named) as publisher:
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1)
        assert 0.1 <= time.monotonic() - start <= 0.8
        assert (caught.value.code, caught.value.retryable) == ("unavailable", True)
        assert caught.value.outcome_unknown is False
        assert isinstance(publisher.publish_many([Message("alice", "a", 1)])[0], PublishError)


# Over Redis


def test_what_lies_in_the_log(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """The body is the event with its time by the publisher's clock; retention is as set, here or by variable."""
    log = RealLog(valkey, prefix, "alice", LogLimits(log_ttl_s=50, meta_ttl_s=70))
    now = time.time() * 1000
    with make(
        valkey.url, prefix=prefix, log_max_events=2, log_ttl_s=50, meta_ttl_s=70, idempotency_ttl_s=90
    ) as publisher:
        for number in range(4):
            publisher.publish("alice", "a.b", {"n": number}, key="k", idempotency_key=f"i{number}")
    bodies = [orjson.loads(record.body) for record in log.read(None, last=10).entries]
    assert [body["data"] for body in bodies] == [{"n": 2}, {"n": 3}]
    assert set(bodies[0]) == {"event", "data", "time", "key"}
    assert (bodies[0]["event"], bodies[0]["key"]) == ("a.b", "k")
    assert abs(bodies[0]["time"] - now) < 60_000
    assert valkey.cli("TTL", log.log_key) <= 50
    assert valkey.cli("TTL", log.meta_key) <= 70
    assert valkey.cli("TTL", log.names.idem("alice", "i3")) <= 90


def test_the_settings_come_from_the_environment(
    make: Make, valkey: ValkeyProcess, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without arguments, the variables of the gateway are those of the publisher."""
    monkeypatch.setenv("TIDINGS_REDIS_URL", valkey.url)
    monkeypatch.setenv("TIDINGS_PREFIX", prefix)
    monkeypatch.setenv("TIDINGS_LOG_MAX_EVENTS", "1")
    monkeypatch.setenv("TIDINGS_MAX_EVENT_BYTES", "300")
    with make() as publisher:
        publisher.publish("alice", "a", 1)
        publisher.publish("alice", "a", 2)
        with pytest.raises(InvalidEvent):
            publisher.publish("alice", "a", "x" * 300)
    assert len(RealLog(valkey, prefix, "alice").read(None, last=5).entries) == 1


@pytest.mark.parametrize(
    "arguments", [{"prefix": "a b"}, {"log_max_events": 0}, {"deadline_s": 0}, {"max_connections": 0}]
)
def test_settings_that_make_no_sense(make: Make, arguments: dict[str, Any]) -> None:
    """They are refused when the publisher is made, without a connection."""
    with pytest.raises(InvalidSetting):
        make("redis://127.0.0.1:1", **arguments)


@pytest.mark.parametrize(
    "url", ["redis://:geheim@h/1", "redis://:geheim@h?db=2", "redis://:geheim@h?no_such_option=1", "amqp://:geheim@h"]
)
def test_bad_urls(make: Make, url: str) -> None:
    """They are refused when the publisher is made, and not shown."""
    with pytest.raises(InvalidSetting) as caught:
        make(url)
    assert "geheim" not in str(caught.value)


def test_a_lost_answer_does_not_store_twice(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """The reply is cut, twice: the event is stored once, and the receipt is that of the one stored."""
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix) as publisher:
        publisher.publish("alice", "a", 0)
        for number in range(1, 4):
            proxy.call(partial(FaultProxy.cut_after, count=number))
            receipt = publisher.publish("alice", "a", number)
            assert receipt.duplicate is True
            assert Position.parse(receipt.position).seq == number + 1
        log = RealLog(valkey, prefix, "alice")
        assert [orjson.loads(record.body)["data"] for record in log.read(None, last=9).entries] == [0, 1, 2, 3]


def test_a_lost_answer_in_a_pipeline_does_not_store_twice(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """Wherever the replies are cut: every message is stored once, in order."""
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix) as publisher:
        for cut in (10, 100, 300, 500):
            proxy.call(partial(FaultProxy.cut_after, count=cut))
            results = publisher.publish_many([Message(f"user{cut}", "a", number) for number in range(40)])
            assert all(isinstance(result, Receipt) for result in results)
            log = RealLog(valkey, prefix, f"user{cut}")
            bodies = [orjson.loads(record.body)["data"] for record in log.read(None, last=99).entries]
            assert bodies == list(range(40))


def test_an_ephemeral_event_is_not_repeated_when_its_answer_is_lost(
    make: Make, valkey: ValkeyProcess, prefix: str
) -> None:
    """It cannot be recognised, so a repetition would be heard twice: the caller is told that the outcome is unknown."""
    log = RealLog(valkey, prefix, "alice")
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix) as publisher, log.listen() as channel:
        publisher.publish("alice", "a", 0)
        assert channel.heard()
        proxy.call(lambda faults: faults.cut_after(0))
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1, ephemeral=True)
        assert (caught.value.outcome_unknown, caught.value.retryable) == (True, True)
        heard = channel.heard()
        assert heard is not None
        assert heard.startswith(b"x\n")
        assert channel.heard(0.2) is None


def test_a_connection_that_died_while_idle_is_not_used(make: Make, prefix: str) -> None:
    """After a restart of the server the next call, an ephemeral one too, goes through at once."""
    with ValkeyProcess() as server, make(server.url, prefix=prefix) as publisher:
        publisher.publish("alice", "a", 0)
        server.restart(kill=True)
        assert publisher.publish("alice", "a", 1, ephemeral=True) == Receipt(None)
        server.cli("SCRIPT", "FLUSH")
        assert publisher.publish("alice", "a", 2).position is not None


def test_a_frozen_server(make: Make, prefix: str) -> None:
    """SIGSTOP: the deadline is kept, the outcome is unknown, and a retry with the error's own key after the thaw finds
    out, although what was queued ran late."""
    with ValkeyProcess() as server, make(server.url, prefix=prefix, deadline_s=0.5) as publisher:
        publisher.publish("alice", "a", 0)
        server.freeze()
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1)
        assert 0.4 <= time.monotonic() - start <= 0.8
        assert (caught.value.outcome_unknown, caught.value.retryable) == (True, True)
        with pytest.raises(PublishError) as ephemeral:
            publisher.publish("alice", "a", 1, ephemeral=True)
        assert ephemeral.value.outcome_unknown in (True, False)
        server.thaw()
        receipt = publisher.publish("alice", "a", 1, idempotency_key=caught.value.idempotency_key)
        assert Position.parse(receipt.position).seq == 2
        entries = RealLog(server, prefix, "alice").read(None, last=9).entries
        assert [orjson.loads(record.body)["data"] for record in entries] == [0, 1]


def test_a_server_that_comes_back_in_time(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """A short absence is not seen by the caller at all."""
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix, deadline_s=5) as publisher:
        proxy.call(lambda faults: faults.refuse())

        def return_later() -> None:
            until_sync(lambda: proxy.call(lambda faults: faults.accepted) >= 3, 5, "three attempts")
            proxy.call(lambda faults: faults.refuse(False))

        helper = threading.Thread(target=return_later)
        helper.start()
        assert publisher.publish("alice", "a", 1).duplicate is False
        helper.join()


def test_a_black_hole(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """Connections that are accepted and never answered: the deadline holds, connecting included."""
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix, deadline_s=0.4) as publisher:
        proxy.call(FaultProxy.blackhole)
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1)
        assert time.monotonic() - start <= 0.8
        assert caught.value.code == "timeout"
        proxy.call(FaultProxy.release)


def test_an_answer_that_drips_does_not_stretch_the_deadline(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """A byte now and then is not progress: the deadline is for the whole answer."""
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix, deadline_s=0.5) as publisher:
        publisher.publish("alice", "a", 0)
        proxy.call(lambda faults: faults.throttle(20, "down"))
        start = time.monotonic()
        with pytest.raises(PublishError):
            publisher.publish("alice", "a", 1)
        assert time.monotonic() - start <= 0.9


@pytest.mark.parametrize(
    ("harm", "heal", "code", "words"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "storage_full", "maxmemory"),
        (
            ("CONFIG", "SET", "min-replicas-to-write", "1"),
            ("CONFIG", "SET", "min-replicas-to-write", "0"),
            "no_replicas",
            "min-replicas-to-write",
        ),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "read_only", "replica"),
    ],
)
def test_a_server_that_refuses(
    make: Make, prefix: str, harm: tuple[str, ...], heal: tuple[str, ...], code: str, words: str
) -> None:
    """Said in words, retried until the deadline, known not to be stored; and it works again when it is mended."""
    with ValkeyProcess() as server, make(server.url, prefix=prefix, deadline_s=0.3) as publisher:
        publisher.publish("alice", "a", 0)
        server.cli(*harm)
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1)
        assert (caught.value.code, caught.value.retryable, caught.value.outcome_unknown) == (code, True, False)
        assert words in caught.value.why
        server.cli(*heal)
        assert Position.parse(publisher.publish("alice", "a", 2).position).seq == 2


@pytest.mark.parametrize("user_info", ["", ":wrong@", "nobody:wrong@"])
def test_a_wrong_password(make: Make, prefix: str, user_info: str) -> None:
    """Said at once, in words, without the password: trying again is no use."""
    with ValkeyProcess("--requirepass", "right") as server:
        with make(f"redis://:right@127.0.0.1:{server.port}", prefix=prefix) as publisher:
            publisher.publish("alice", "a", 0)
        with make(f"redis://{user_info}127.0.0.1:{server.port}", prefix=prefix) as publisher:
            start = time.monotonic()
            with pytest.raises(PublishError) as caught:
                publisher.publish("alice", "a", 1)
            assert time.monotonic() - start < 1
            assert (caught.value.code, caught.value.retryable) == ("unauthorized", False)
            assert "TIDINGS_REDIS_URL" in caught.value.why
            assert "wrong" not in caught.value.why


def test_a_missing_right(make: Make, prefix: str) -> None:
    """A Redis user that may store but not publish: an error each time, not a silence; whether it is stored, unknown."""
    with ValkeyProcess() as server:
        server.cli("ACL", "SETUSER", "worker", "on", ">secret", f"~{prefix}:*", "resetchannels", "+@all")
        with make(f"redis://worker:secret@127.0.0.1:{server.port}", prefix=prefix) as publisher:
            with pytest.raises(PublishError) as caught:
                publisher.publish("alice", "a", 1)
            assert (caught.value.code, caught.value.retryable) == ("forbidden", False)
            assert caught.value.outcome_unknown is True
            server.cli("ACL", "SETUSER", "worker", f"&{prefix}:*")
            publisher.publish("alice", "a", 1)


def test_what_is_no_redis(make: Make) -> None:
    """Something that speaks another protocol is an error in words, within the deadline."""
    with StubGateway() as stub, make(f"redis://127.0.0.1:{stub.port}", deadline_s=0.5) as publisher:
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a", 1)
        assert caught.value.why


# Over HTTP


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
    with make(stub.url, api_key=API_KEY) as publisher:
        start = time.monotonic()
        assert publisher.publish("alice", "a").duplicate is False
        assert 1.0 <= time.monotonic() - start < 2.0
        stub.canned.append(problem(503, "storage_full", "full", headers={"retry-after": "30"}))
        start = time.monotonic()
        with pytest.raises(PublishError) as caught:
            publisher.publish("alice", "a")
        assert time.monotonic() - start < 0.8
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
        assert 0.3 <= time.monotonic() - start <= 0.8
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
