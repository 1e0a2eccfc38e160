"""Publishing into the log itself, blocking and not: networks that fail, servers that refuse."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import orjson
import pytest

from tests.publisher.conftest import Make
from tests.publisher.stub import StubGateway
from tests.publisher.support import RealLog
from tests.support.proxy import FaultProxy, ThreadedProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import BUSY_S, until_sync
from tidings import InvalidEvent, InvalidSetting, Message, PublishError, Receipt
from tidings.log.eventlog import LogLimits
from tidings.log.position import Position


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
        assert 0.4 <= time.monotonic() - start <= 0.5 + BUSY_S
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
        assert time.monotonic() - start <= 0.4 + BUSY_S
        assert caught.value.code == "timeout"
        proxy.call(FaultProxy.release)


def test_an_answer_that_drips_does_not_stretch_the_deadline(make: Make, valkey: ValkeyProcess, prefix: str) -> None:
    """A byte now and then is not progress: the deadline is for the whole answer."""
    with ThreadedProxy(valkey.port) as proxy, make(proxy.url, prefix=prefix, deadline_s=0.5) as publisher:
        publisher.publish("alice", "a", 0)
        proxy.call(lambda faults: faults.throttle(5, "down"))
        start = time.monotonic()
        with pytest.raises(PublishError):
            publisher.publish("alice", "a", 1)
        assert time.monotonic() - start <= 0.5 + BUSY_S


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
        with make(f"redis://{user_info}127.0.0.1:{server.port}", prefix=prefix, deadline_s=20) as publisher:
            start = time.monotonic()
            with pytest.raises(PublishError) as caught:
                publisher.publish("alice", "a", 1)
            assert time.monotonic() - start < BUSY_S
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
