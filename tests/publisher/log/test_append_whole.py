"""append.lua refused, or copied to a replica: everything there, or nothing changed and nothing told."""

from __future__ import annotations

import pytest
import redis

from tests.publisher.support import RealLog
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings.log.position import Position


def _state(log: RealLog) -> tuple[object, ...]:
    server = log.server
    return (server.cli("XRANGE", log.log_key, "-", "+"), log.meta(), sorted(server.cli("KEYS", "*")))


def _follow(replica: ValkeyProcess, primary: ValkeyProcess) -> None:
    """Returns when the replica is in step."""
    replica.cli("REPLICAOF", "127.0.0.1", primary.port)
    until_sync(lambda: replica.cli("INFO", "replication")["master_link_status"] == "up", 10, "the replica is in step")


def test_a_full_server_stores_and_tells_nothing(own: ValkeyProcess) -> None:
    """Out of memory: refused, nothing changed, nothing published, for old and new users; reading still works; a
    duplicate is still recognised."""
    log = RealLog(own, "t")
    first = log.append(b"one", key="k")
    for user in ("u", "new"):
        log.user = user
        channel = log.listen()
        try:
            before = _state(log)
            own.cli("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                log.append(b"two", key="k2")
            assert _state(log) == before
            assert channel.heard(0.2) is None
            page = log.read(None, last=5)
            assert page.reason is None
            assert [record.body for record in page.entries] == ([b"one"] if user == "u" else [])
        finally:
            channel.close()
            own.cli("CONFIG", "SET", "maxmemory", 0)
    log.user = "u"
    own.cli("CONFIG", "SET", "maxmemory", 1)
    again = log.append(b"three", key="k")
    assert (again.duplicate, again.position) == (True, first.position)
    own.cli("CONFIG", "SET", "maxmemory", 0)
    second = log.append(b"two", key="k2").position
    assert second is not None
    assert Position.parse(second).seq == 2


def test_a_full_server_lets_a_stray_log_be_replaced_or_not_but_never_half(own: ValkeyProcess) -> None:
    """Out of memory with a stray log in the way: either the new epoch stands with its event, or nothing changed."""
    log = RealLog(own, "t")
    log.append(b"old")
    own.cli("DEL", log.meta_key)
    before = _state(log)
    own.cli("CONFIG", "SET", "maxmemory", 1)
    try:
        receipt = log.append(b"new", epoch="EpochNew", tag=4)
    except redis.exceptions.OutOfMemoryError:
        assert _state(log) == before
    else:
        assert receipt.position == "EpochNew.1-4"
        assert [record.body for record in log.read("EpochNew.0-0").entries] == [b"new"]
    finally:
        own.cli("CONFIG", "SET", "maxmemory", 0)


def test_too_few_replicas_store_and_tell_nothing(own: ValkeyProcess) -> None:
    """NOREPLICAS: refused, nothing changed, nothing published, although PUBLISH alone would have worked. Users with and
    without events can still be read."""
    log = RealLog(own, "t")
    log.append(b"one", key="k")
    own.cli("CONFIG", "SET", "min-replicas-to-write", 1)
    channel = log.listen()
    try:
        before = _state(log)
        for key in ("k2", "k", None):
            with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
                log.append(b"two", key=key)
        assert _state(log) == before
        assert channel.heard(0.2) is None
        assert [record.body for record in log.read(None, last=5).entries] == [b"one"]
        log.user = "new"
        assert log.read(None).top.endswith(b".0-0")
    finally:
        channel.close()


def test_a_replica_stores_and_tells_nothing(own: ValkeyProcess) -> None:
    """READONLY: refused; and a duplicate is not answered by a replica, which may be about to lose it."""
    log = RealLog(own, "t")
    log.append(b"one", key="k")
    with ValkeyProcess() as replica:
        _follow(replica, own)
        there = RealLog(replica, "t")
        channel = there.listen()
        try:
            for key in ("k", "k2", None):
                with pytest.raises(redis.exceptions.ReadOnlyError):
                    there.append(b"two", key=key)
            there.user = "new"
            with pytest.raises(redis.exceptions.ReadOnlyError):
                there.read(None)
            assert channel.heard(0.2) is None
        finally:
            channel.close()


def test_a_duplicate_gives_wait_something_to_wait_for(own: ValkeyProcess) -> None:
    """A duplicate writes too: WAIT behind a script that wrote nothing returns at once, and would call an event
    replicated that no replica has."""
    with ValkeyProcess() as replica:
        _follow(replica, own)
        log = RealLog(own, "t")
        log.append(b"one", key="k")
        assert own.cli("WAIT", 1, 5000) == 1
        replica.freeze()
        try:
            assert log.append(b"one", key="k").duplicate
            assert own.cli("WAIT", 1, 100) == 0
        finally:
            replica.thaw()


def test_an_append_reaches_a_replica_whole(own: ValkeyProcess) -> None:
    """Log, meta and idempotency key go to a replica as one transaction: after a failover none is there without the
    others, and the clock and random numbers of the primary are in it."""
    with ValkeyProcess() as replica:
        _follow(replica, own)
        log = RealLog(own, "t")
        for number in range(20):
            log.append(b"%d" % number, key=f"k{number}")
        assert own.cli("WAIT", 1, 5000) == 1
        assert _state(RealLog(replica, "t")) == _state(log)
