"""append.lua on a real server: in order, once, told only when stored."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import redis

from tests.publisher.support import RNG, RealLog
from tests.support.valkey import ValkeyProcess
from tidings.log.eventlog import (
    GENERATED_KEY,
    GENERATED_KEY_TTL_S,
    LogLimits,
    append_command,
    new_epoch,
    new_tag,
    parse_append,
    parse_record_of,
)
from tidings.log.position import Position
from tidings.log.receipt import Receipt
from tidings.log.record import DurableRecord, parse_record


def test_the_first_event_begins_an_epoch(log: RealLog) -> None:
    """A log begins with the caller's epoch and seq 1, after `<epoch>.0-0`."""
    receipt = log.append(b"one", epoch="EpochAAA", tag=7)
    assert receipt.position == "EpochAAA.1-7"
    assert log.append(b"two", epoch="EpochBBB", tag=9).position == "EpochAAA.2-9"
    first, second = log.read(None, last=2).entries
    assert first == DurableRecord(b"EpochAAA.0-0", b"EpochAAA.1-7", b"one")
    assert second == DurableRecord(b"EpochAAA.1-7", b"EpochAAA.2-9", b"two")


def test_what_is_stored_and_what_is_told_are_the_same(log: RealLog) -> None:
    """The record on the channel names the position before, the position and the body, byte for byte as in the log."""
    body = '{"event":"a","data":"line\u2028 \\n é","time":1}'.encode() + b"\n\x00 e c x"
    channel = log.listen()
    try:
        receipt = log.append(body)
        assert receipt.listening == 1
        message = channel.heard()
        assert message is not None
        assert parse_record(message) == log.read(None, last=1).entries[0]
    finally:
        channel.close()
    assert log.append(body).listening == 0


def test_meta_holds_the_top(log: RealLog) -> None:
    """meta is what a read trusts: epoch, seq and tag of the newest entry, and when it was stored by Redis' clock; and
    which primary the log began on."""
    for _ in range(3):
        position = log.append().position
    assert position is not None
    part, meta = Position.parse(position), log.meta()
    assert meta[b"epoch"].decode() == part.epoch
    assert (int(meta[b"seq"]), int(meta[b"tag"])) == (3, part.tag)
    seconds, _ = log.server.cli("TIME")
    assert abs(int(meta[b"last_ms"]) / 1000 - int(seconds)) < 60
    assert meta[b"era"].decode() == log.server.cli("INFO", "replication")["master_replid"]
    assert set(meta) == {b"epoch", b"seq", b"tag", b"last_ms", b"era"}


@pytest.mark.parametrize(
    "nodes", [("stream-node-max-entries", 0), ("stream-node-max-entries", 100), ("stream-node-max-entries", 4096)]
)
@pytest.mark.parametrize("size", [50, 6_000])
def test_retention_by_count_is_exact(own: ValkeyProcess, nodes: tuple[str, int], size: int) -> None:
    """The log never holds more than its limit, whatever the server's stream nodes look like (redis/redis #9469)."""
    own.cli("CONFIG", "SET", *nodes)
    log = RealLog(own, "t", limits=LogLimits(max_events=20))
    body = b"x" * size
    for count in range(1, 300):
        log.append(body)
        assert own.cli("XLEN", log.log_key) == min(count, 20)
    page = log.read(None, last=1000)
    assert [Position.parse(record.position).seq for record in page.entries] == list(range(280, 300))


def test_expiries_slide(log: RealLog) -> None:
    """Each append gives the log its whole lifetime again, and meta its longer one."""
    log.limits = LogLimits(log_ttl_s=100, meta_ttl_s=1000)
    log.append()
    log.server.cli("EXPIRE", log.log_key, 5)
    log.server.cli("EXPIRE", log.meta_key, 7)
    log.append()
    assert 99 <= log.server.cli("TTL", log.log_key) <= 100
    assert 999 <= log.server.cli("TTL", log.meta_key) <= 1000


def test_the_numbers_go_on_after_the_log_expired(log: RealLog) -> None:
    """When the entries are gone but meta is not, the next entry still follows the last one there was."""
    log.append(tag=5)
    old = log.top
    log.server.cli("DEL", log.log_key)
    receipt = log.append(b"next", tag=6)
    assert receipt.position == old.decode().replace(".1-5", ".2-6")
    assert log.read(old).entries == (DurableRecord(old, receipt.position.encode(), b"next"),)


def test_an_idempotency_key_stores_once(log: RealLog) -> None:
    """The same key gives the first position again, `duplicate`, and publishes nothing."""
    first = log.append(b"one", key="k")
    log.append(b"two", key="other")
    channel = log.listen()
    try:
        again = log.append(b"three", key="k")
        assert (again.position, again.duplicate, again.listening) == (first.position, True, 0)
        assert log.append(b"four").listening == 1
        message = channel.heard()
        assert message is not None
        assert message.endswith(b"\nfour")
    finally:
        channel.close()
    assert [record.body for record in log.read(None, last=10).entries] == [b"one", b"two", b"four"]


def test_an_idempotency_key_outlives_its_epoch(log: RealLog) -> None:
    """Also after the log was lost, the answer is the first position, of the past epoch: it was stored, once."""
    first = log.append(key="k")
    log.server.cli("DEL", log.log_key, log.meta_key)
    log.append(epoch="EpochNew")
    again = log.append(key="k")
    assert again.duplicate
    assert again.position == first.position
    assert log.top.startswith(b"EpochNew.1-")


def test_an_idempotency_key_is_the_user_s_own(log: RealLog) -> None:
    """Another user's same key is another key."""
    log.append(key="k")
    log.user = "other"
    assert not log.append(key="k").duplicate


def test_how_long_an_idempotency_key_lives(log: RealLog) -> None:
    """A caller's key lives its time from the last use; one that a publisher made up only as long as retries come."""
    log.limits = LogLimits(idempotency_ttl_s=5000)
    key = log.names.idem(log.user, "k")
    log.append(key="k")
    assert 4999 <= log.server.cli("TTL", key) <= 5000
    log.server.cli("EXPIRE", key, 10)
    log.append(key="k")
    assert 4999 <= log.server.cli("TTL", key) <= 5000
    made_up = GENERATED_KEY + "abc"
    log.append(key=made_up)
    ttl = log.server.cli("TTL", log.names.idem(log.user, made_up))
    assert GENERATED_KEY_TTL_S - 1 <= ttl <= GENERATED_KEY_TTL_S


def test_a_stray_log_is_not_continued(log: RealLog) -> None:
    """Without meta nobody can say what the entries follow: they are deleted, and a new epoch begins."""
    log.append(b"old", tag=1)
    log.server.cli("DEL", log.meta_key)
    receipt = log.append(b"new", epoch="EpochNew", tag=2)
    assert receipt.position == "EpochNew.1-2"
    assert [record.body for record in log.read(None, last=10).entries] == [b"new"]


@pytest.mark.parametrize("damage", [("HDEL", "epoch"), ("HDEL", "seq"), ("HDEL", "tag"), ("HSET", "seq", "abc")])
def test_a_damaged_meta_is_no_meta(log: RealLog, damage: tuple[str, ...]) -> None:
    """meta without one of its members begins anew, and keeps nothing of what it was."""
    log.append()
    log.server.cli("HSET", log.meta_key, "era", "abc", "read", "1")
    log.server.cli(damage[0], log.meta_key, *damage[1:])
    assert log.append(epoch="EpochNew").position is not None
    assert set(log.meta()) == {b"epoch", b"seq", b"tag", b"last_ms", b"era"}
    assert log.meta()[b"era"] != b"abc"
    assert log.top.startswith(b"EpochNew.1-")


def test_a_log_ahead_of_its_meta_begins_anew(log: RealLog) -> None:
    """When an old meta was restored, XADD refuses the next id: the log heals by a new epoch, so that nothing clients
    hold can be taken for valid."""
    log.append(tag=3)
    meta = log.meta()
    for _ in range(5):
        log.append()
    lost = log.top
    log.server.cli("DEL", log.meta_key)
    log.server.cli("HSET", log.meta_key, *[part for item in meta.items() for part in item])
    receipt = log.append(b"healed", epoch="EpochNew", tag=8)
    assert receipt.position == "EpochNew.1-8"
    assert log.read(lost).reason == "epoch"
    assert [record.body for record in log.read(None, last=10).entries] == [b"healed"]


def test_large_numbers_stay_whole(log: RealLog) -> None:
    """Sequence numbers and tags are written out in full up to the end of the grammar, never as 1e+15."""
    seq = 2**53 - 3
    log.server.cli("HSET", log.meta_key, "epoch", "EpochOld", "seq", seq, "tag", "9999999999")
    receipt = log.append(b"big", tag=9_999_999_998)
    assert receipt.position == f"EpochOld.{seq + 1}-9999999998"
    assert log.read(f"EpochOld.{seq}-9999999999").entries[0].body == b"big"
    assert log.append(tag=1).position == f"EpochOld.{seq + 2}-1"


def test_twenty_publishers_at_once(valkey: ValkeyProcess, log: RealLog) -> None:
    """Twenty at a time: seq rises by one, every record names the one before, channel order is log order."""
    channel = log.listen()
    start = threading.Barrier(20)

    def publish(number: int) -> list[str]:
        client = redis.Redis(port=valkey.port)
        start.wait()
        positions = []
        for count in range(15):
            command = append_command(
                log.names, log.user, b"%d.%d" % (number, count), epoch=new_epoch(RNG), tag=new_tag(RNG)
            )
            positions.append(client.execute_command(*command.evalsha())[0].decode())  # type: ignore[no-untyped-call]
        client.close()
        return positions

    try:
        with ThreadPoolExecutor(20) as pool:
            positions = [position for batch in pool.map(publish, range(20)) for position in batch]
        records = []
        for _ in range(300):
            message = channel.heard()
            assert message is not None
            records.append(parse_record(message))
    finally:
        channel.close()
    stored: list[DurableRecord] = []
    at: bytes | None = None
    while len(stored) < 300:
        page = log.read(at, last=300)
        assert page.entries
        stored += page.entries
        at = page.end
    assert records == stored
    assert {record.position.decode() for record in stored} == set(positions)
    assert [Position.parse(record.position).seq for record in stored] == list(range(1, 301))
    assert all(one.position == two.before for one, two in pairwise(stored))
    for number in range(20):
        mine = [record.body for record in stored if record.body.startswith(b"%d." % number)]
        assert mine == [b"%d.%d" % (number, count) for count in range(15)]


def test_behind_asking(valkey: ValkeyProcess, prefix: str) -> None:
    """With only the meta among the KEYS it does the same, and gives the record for those who listen elsewhere: also of
    a duplicate, as it was stored, and nothing when the entry is gone."""
    log = RealLog(valkey, prefix)
    first = log.append(tag=7, epoch="EpochOne")

    def asked(body: bytes) -> Any:
        command = append_command(
            log.names, "u", body, epoch="EpochTwo", tag=8, idempotency_key="k", sharded=True, asked=True
        )
        assert command.keys == (log.meta_key,)
        return log.run(command)

    with log.listen(sharded=True) as channel:
        reply = asked(b"one")
        assert parse_append(reply) == Receipt("EpochOne.2-8", False, 1)
        assert parse_record_of(reply) == channel.heard() == b"e%b EpochOne.2-8\none" % (first.position or "").encode()
        again = asked(b"two")
        assert parse_append(again) == Receipt("EpochOne.2-8", True, 0)
        assert parse_record_of(again) == parse_record_of(reply)
    valkey.cli("XDEL", log.log_key, "2-8")
    assert parse_record_of(asked(b"one")) is None
    assert log.append(key="k").duplicate
