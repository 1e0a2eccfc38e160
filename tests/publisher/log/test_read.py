"""read.lua on a real server: the verdict of the continuity rule, and pages that hold to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.publisher.support import RealLog
from tests.support.proxy import ThreadedProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings.errors import InvalidPosition
from tidings.log.eventlog import LogLimits
from tidings.log.page import ResyncReason
from tidings.log.position import Position

FRAME_BYTES = 112


@pytest.fixture
def log(valkey: ValkeyProcess, prefix: str) -> RealLog:
    return RealLog(valkey, prefix)


@pytest.fixture
def own() -> Iterator[ValkeyProcess]:
    """A server this test may harm."""
    with ValkeyProcess() as server:
        yield server


def _fill(log: RealLog, count: int) -> list[bytes]:
    """Entries 1 to `count`, tagged 101, 102, …; the positions from `<epoch>.0-0` on."""
    at = [log.read(None, epoch="EpochOne").top]
    for number in range(1, count + 1):
        position = log.append(b"%d" % number, tag=100 + number).position
        assert position is not None
        at.append(position.encode())
    return at


# The verdict, as a table. The log holds 1 to 10 of EpochOne, tagged 101 to 110, unless `damage` changed it.


def _nothing(log: RealLog) -> None:
    pass


def _trim(log: RealLog) -> None:
    log.server.cli("XTRIM", log.log_key, "MAXLEN", "=", 4)


def _drop_log(log: RealLog) -> None:
    log.server.cli("DEL", log.log_key)


def _wipe(log: RealLog) -> None:
    log.server.cli("DEL", log.log_key, log.meta_key)


def _drop_meta(log: RealLog) -> None:
    log.server.cli("DEL", log.meta_key)


def _hole(log: RealLog) -> None:
    log.server.cli("XDEL", log.log_key, "6-106")


def _drop_top(log: RealLog) -> None:
    log.server.cli("XDEL", log.log_key, "10-110")


def _fork(log: RealLog) -> None:
    """The primary lost 8 to 10, its successor wrote another 8 and 9."""
    for number in (10, 9, 8):
        log.server.cli("XDEL", log.log_key, f"{number}-{100 + number}")
    entries = log.server.cli("XRANGE", log.log_key, "-", "+")
    log.server.cli("DEL", log.log_key)
    for entry, fields in entries:
        log.server.cli("XADD", log.log_key, entry, *[part for item in fields.items() for part in item])
    log.server.cli("HSET", log.meta_key, "seq", 7, "tag", 107)
    log.append(b"other 8", tag=208)
    log.append(b"other 9", tag=209)


def _foreign(log: RealLog) -> None:
    """Somebody else wrote entry 11 behind the top, with the wrong fields."""
    log.server.cli("XADD", log.log_key, "11-1", "payload", "x")


def _foreign_within(log: RealLog) -> None:
    """Entry 6 is not ours."""
    entries = log.server.cli("XRANGE", log.log_key, "-", "+")
    log.server.cli("DEL", log.log_key)
    for entry, fields in entries:
        fields = {b"payload": b"x"} if entry == b"6-106" else fields
        log.server.cli("XADD", log.log_key, entry, *[part for item in fields.items() for part in item])


def _retag(log: RealLog) -> None:
    """Entry 6 is another one than entry 7 follows."""
    entries = log.server.cli("XRANGE", log.log_key, "-", "+")
    log.server.cli("DEL", log.log_key)
    for entry, fields in entries:
        entry = b"6-999" if entry == b"6-106" else entry
        log.server.cli("XADD", log.log_key, entry, *[part for item in fields.items() for part in item])


VERDICTS: list[tuple[Callable[[RealLog], None], str, ResyncReason | None, int | None, list[int]]] = [
    # damage, position, reason, missed, entries given
    (_nothing, "EpochOne.0-0", None, None, list(range(1, 11))),
    (_nothing, "EpochOne.3-103", None, None, list(range(4, 11))),
    (_nothing, "EpochOne.9-109", None, None, [10]),
    (_nothing, "EpochOne.10-110", None, None, []),
    (_nothing, "EpochOne.10-111", ResyncReason.EPOCH, None, []),
    (_nothing, "EpochOne.3-104", ResyncReason.EPOCH, None, []),
    (_nothing, "EpochOne.0-1", ResyncReason.EPOCH, None, []),
    (_nothing, "EpochOne.11-111", ResyncReason.AHEAD, None, []),
    (_nothing, "EpochOne.9999999999999999-1", ResyncReason.AHEAD, None, []),
    (_nothing, "EpochTwo.10-110", ResyncReason.EPOCH, None, []),
    (_nothing, "epochone.10-110", ResyncReason.EPOCH, None, []),
    (_nothing, "EpochOnee.10-110", ResyncReason.EPOCH, None, []),
    (_trim, "EpochOne.0-0", ResyncReason.TRIMMED, 10, []),
    (_trim, "EpochOne.5-105", ResyncReason.TRIMMED, 5, []),
    (_trim, "EpochOne.6-106", None, None, [7, 8, 9, 10]),
    (_trim, "EpochOne.6-107", ResyncReason.EPOCH, None, []),
    (_trim, "EpochOne.10-110", None, None, []),
    (_drop_log, "EpochOne.9-109", ResyncReason.TRIMMED, 1, []),
    (_drop_log, "EpochOne.10-110", None, None, []),
    (_drop_log, "EpochOne.10-109", ResyncReason.EPOCH, None, []),
    (_wipe, "EpochOne.10-110", ResyncReason.EPOCH, None, []),
    (_wipe, "EpochOne.0-0", ResyncReason.EPOCH, None, []),
    (_drop_meta, "EpochOne.3-103", ResyncReason.EPOCH, None, []),
    (_hole, "EpochOne.3-103", None, None, [4, 5]),
    (_hole, "EpochOne.5-105", ResyncReason.TRIMMED, 5, []),
    (_hole, "EpochOne.6-106", None, None, [7, 8, 9, 10]),
    (_drop_top, "EpochOne.7-107", None, None, [8, 9]),
    (_drop_top, "EpochOne.9-109", ResyncReason.TRIMMED, 1, []),
    (_fork, "EpochOne.10-110", ResyncReason.AHEAD, None, []),
    (_fork, "EpochOne.9-109", ResyncReason.EPOCH, None, []),
    (_fork, "EpochOne.8-108", ResyncReason.EPOCH, None, []),
    (_fork, "EpochOne.7-107", None, None, [8, 9]),
    (_fork, "EpochOne.9-209", None, None, []),
    (_foreign, "EpochOne.9-109", None, None, [10]),
    (_foreign, "EpochOne.10-110", None, None, []),
    (_foreign, "EpochOne.11-1", ResyncReason.AHEAD, None, []),
    (_foreign_within, "EpochOne.3-103", None, None, [4, 5]),
    (_foreign_within, "EpochOne.5-105", ResyncReason.TRIMMED, 5, []),
    (_retag, "EpochOne.3-103", None, None, [4, 5, 6]),
    (_retag, "EpochOne.6-999", ResyncReason.EPOCH, None, []),
]


@pytest.mark.parametrize(
    ("damage", "position", "reason", "missed", "numbers"),
    VERDICTS,
    ids=[f"{damage.__name__.strip('_')} {position}" for damage, position, *_ in VERDICTS],
)
def test_the_verdict(
    log: RealLog,
    damage: Callable[[RealLog], None],
    position: str,
    reason: ResyncReason | None,
    missed: int | None,
    numbers: list[int],
) -> None:
    """A position is continued only if it is proved that nothing is missing; otherwise the answer says why."""
    _fill(log, 10)
    damage(log)
    page = log.read(position)
    assert (page.reason, page.missed) == (reason, missed)
    assert [Position.parse(record.position).seq for record in page.entries] == numbers
    assert page.start == (page.top if reason else position.encode())
    before = page.start
    for record in page.entries:
        assert record.before == before
        before = record.position
    assert page.end == before
    top = log.meta()
    assert page.top == b"%b.%b-%b" % (top[b"epoch"], top[b"seq"], top[b"tag"])


@pytest.mark.parametrize("position", ["", "EpochOne.1", "0-0", "x" * 3000, "EpochOne.1-1~a.EpochOne.1-1"])
def test_not_a_position_never_reaches_redis(log: RealLog, position: str) -> None:
    """What is not one part is `InvalidPosition`; the script is never asked."""
    with pytest.raises(InvalidPosition):
        log.read(position)


def test_a_user_without_events_has_a_position(log: RealLog) -> None:
    """It is created by the first read, is the same at the next, can be proved before and after the first event."""
    top = log.read(None, epoch="EpochOne").top
    assert top == b"EpochOne.0-0"
    assert log.read(None, epoch="EpochTwo").top == top
    assert log.read(top).reason is None
    log.append(b"first")
    page = log.read(top)
    assert [record.body for record in page.entries] == [b"first"]
    assert log.read(page.end).reason is None


def test_a_read_deletes_a_stray_log(log: RealLog) -> None:
    """Entries whose meta is gone are given to nobody."""
    _fill(log, 3)
    log.server.cli("DEL", log.meta_key)
    assert log.read(None, last=10, epoch="EpochTwo").entries == ()
    assert log.server.cli("EXISTS", log.log_key) == 0


def test_resume_twice_with_nothing_between(log: RealLog) -> None:
    """The same position twice gives the same page twice: a read moves nothing."""
    at = _fill(log, 5)
    assert log.read(at[2]) == log.read(at[2])


@pytest.mark.parametrize(
    ("last", "numbers"), [(0, []), (1, [10]), (3, [8, 9, 10]), (10, list(range(1, 11))), (99, list(range(1, 11)))]
)
def test_the_last_n(log: RealLog, last: int, numbers: list[int]) -> None:
    """Without a position the last N are given, after the position before the oldest of them."""
    at = _fill(log, 10)
    page = log.read(None, last=last)
    assert [int(record.body) for record in page.entries] == numbers
    assert page.start == at[numbers[0] - 1 if numbers else 10]
    assert (page.top, page.reason, page.missed) == (at[10], None, None)


def test_a_position_wins_over_the_last_n(log: RealLog) -> None:
    """With a position, N does not count."""
    at = _fill(log, 10)
    assert log.read(at[9], last=5).start == at[9]


def test_the_last_n_of_a_damaged_log(log: RealLog) -> None:
    """The last N go as far back as the log does; where the newest is missing, nothing is passed off as it."""
    at = _fill(log, 10)
    log.server.cli("XTRIM", log.log_key, "MAXLEN", "=", 4)
    page = log.read(None, last=8)
    assert (page.start, len(page.entries)) == (at[6], 4)
    log.server.cli("XDEL", log.log_key, "10-110")
    assert [int(record.body) for record in log.read(None, last=3).entries] == [8, 9]
    assert log.read(None, last=1).entries == ()
    log.server.cli("DEL", log.log_key)
    page = log.read(None, last=3)
    assert (page.start, page.entries) == (at[10], ())


def test_paging_by_count(log: RealLog) -> None:
    """Pages of any size, one after the other, are the log."""
    at = _fill(log, 100)
    for limit in (1, 2, 3, 4, 5, 7, 12, 31, 32, 33, 60, 61, 99, 100, 101):
        position, seen = at[0], []
        while position != at[100]:
            page = log.read(position, limit=limit)
            assert 1 <= len(page.entries) <= limit
            seen += [int(record.body) for record in page.entries]
            position = page.end
        assert seen == list(range(1, 101))


def test_no_entries_when_none_are_asked_for(log: RealLog) -> None:
    """`limit` 0 gives the verdict and the top alone."""
    at = _fill(log, 10)
    assert log.read(at[3], limit=0).entries == ()
    assert log.read(at[3], limit=0).reason is None
    assert log.read("EpochTwo.3-103", limit=0).reason == "epoch"
    assert log.read(None, last=5, limit=0).start == at[5]


def test_paging_by_bytes(log: RealLog) -> None:
    """A page holds at most its bytes, counted as frames on the wire, but always one entry."""
    sizes = [10, 65_536, 65_536, 65_536, 10, 10, 200_000, 10, *([1000] * 200)]
    for size in sizes:
        log.append(b"x" * size)
    top = log.top
    position, seen, pages = log.read(None, last=len(sizes), limit=0).start, [], 0
    while position != top:
        page = log.read(position, limit=1000, max_bytes=131_072)
        total = sum(len(record.body) + FRAME_BYTES for record in page.entries)
        assert total <= 131_072 or len(page.entries) == 1
        if page.end != top:
            following = log.read(page.end, limit=1).entries[0]
            assert total + len(following.body) + FRAME_BYTES > 131_072
        seen += [len(record.body) for record in page.entries]
        position = page.end
        pages += 1
    assert seen == sizes
    assert pages == 6


def test_a_page_never_loads_the_whole_log(own: ValkeyProcess) -> None:
    """However many entries follow, the script asks for few at a time, and for more only as they prove to be small: no
    megabytes inside Redis either."""
    log = RealLog(own, "t")
    for user, size in (("large", 65_536), ("small", 10)):
        log.user = user
        for _ in range(128):
            log.append(b"x" * size)
    connection: Any = redis.Connection  # untyped
    monitor = connection(host="127.0.0.1", port=own.port, protocol=2, socket_timeout=5)
    monitor.connect()
    monitor.send_command("MONITOR")
    monitor.read_response()
    for user, counts in (("large", [4]), ("small", [4, 8, 16, 32, 32, 32, 32])):
        log.user = user
        log.read(log.read(None, last=128, limit=0).start)
        own.cli("ECHO", "end")
        lines: list[str] = []
        while not lines or '"ECHO"' not in lines[-1]:
            lines.append(monitor.read_response().decode())
        asked = [line.split('"')[-2] for line in lines if '"XRANGE"' in line]
        assert [int(count) for count in asked] == [4, *counts]  # the first is that of `last`
    monitor.disconnect()


def test_reading_keeps_meta_alive(log: RealLog) -> None:
    """A user who only listens keeps a provable position: a read renews meta's expiry when half of it is used, and
    writes nothing before that."""
    log.limits = LogLimits(log_ttl_s=100, meta_ttl_s=1000)
    log.read(None)
    assert 999 <= log.server.cli("TTL", log.meta_key) <= 1000
    log.server.cli("EXPIRE", log.meta_key, 600)
    log.read(None)
    assert 599 <= log.server.cli("TTL", log.meta_key) <= 600
    log.server.cli("EXPIRE", log.meta_key, 400)
    log.read(None)
    assert 999 <= log.server.cli("TTL", log.meta_key) <= 1000
    log.server.cli("PERSIST", log.meta_key)
    log.read(None)
    assert 999 <= log.server.cli("TTL", log.meta_key) <= 1000


def test_reading_does_not_keep_the_entries_alive(log: RealLog) -> None:
    """The age of a log counts from its last append."""
    log.limits = LogLimits(log_ttl_s=100, meta_ttl_s=1000)
    log.append()
    log.server.cli("EXPIRE", log.log_key, 5)
    log.read(None, last=5)
    assert log.server.cli("TTL", log.log_key) <= 5


def test_a_full_server_answers_old_and_new_users(own: ValkeyProcess) -> None:
    """Out of memory, a user with events is read as always, and one without is let in: the position cannot be proved
    later, which costs a resync, never a hole."""
    log = RealLog(own, "t")
    at = _fill(log, 3)
    log.user = "new"
    own.cli("CONFIG", "SET", "maxmemory", 1)
    top = log.read(None, epoch="EpochTwo").top
    assert top == b"EpochTwo.0-0"
    log.user = "u"
    assert len(log.read(at[0]).entries) == 3
    own.cli("CONFIG", "SET", "maxmemory", 0)
    log.user = "new"
    log.append(b"first")
    assert log.read(top).reason == "epoch"


# Which primary


def _change_primary(server: ValkeyProcess) -> None:
    """What clients see after a failover that lost nothing: another replication id."""
    before = server.cli("INFO", "replication")["master_replid"]
    server.cli("DEBUG", "CHANGE-REPL-ID")
    assert server.cli("INFO", "replication")["master_replid"] != before


def test_another_primary_ends_the_epoch(own: ValkeyProcess) -> None:
    """With failover "resync" no position outlives a change of primary, whoever it was that lost something; the entries
    stay and the numbers go on."""
    log = RealLog(own, "t", failover="resync")
    at = _fill(log, 3)
    assert log.read(at[2]).reason is None
    _change_primary(own)
    for position in at:
        page = log.read(position, epoch="EpochTwo")
        assert (page.reason, page.missed, page.top) == (ResyncReason.EPOCH, None, b"EpochTwo.3-103")
    assert [record.position for record in log.read(None, last=2, epoch="Unused00").entries] == [
        b"EpochTwo.2-102",
        b"EpochTwo.3-103",
    ]
    log.append(b"4", tag=104)
    page = log.read("EpochTwo.3-103", epoch="Unused00")
    assert (page.reason, page.top) == (None, b"EpochTwo.4-104")


def test_the_same_primary_keeps_the_epoch(own: ValkeyProcess) -> None:
    """Whether it was stamped by the read that created it, or later: no resync without a change."""
    log = RealLog(own, "t", failover="resync")
    at = _fill(log, 2)
    log.user = "stamped later"[:7]
    later = log.append().position
    assert later is not None
    assert log.read(later, epoch="Unused00").reason is None
    log.user = "u"
    assert log.read(at[1], epoch="Unused00").reason is None
    assert log.meta()[b"era"] == own.cli("INFO", "replication")["master_replid"].encode()


def test_trust_takes_the_new_primary_at_its_word(own: ValkeyProcess) -> None:
    """With failover "trust" a change of primary changes nothing, and nothing is stamped."""
    log = RealLog(own, "t", failover="trust")
    at = _fill(log, 3)
    _change_primary(own)
    page = log.read(at[1])
    assert (page.reason, len(page.entries)) == (None, 2)
    assert b"era" not in log.meta()


def test_a_real_failover(own: ValkeyProcess) -> None:
    """The replica is made primary without the newest entries: with "resync" everybody is told, also who saw none of
    the lost ones; with "trust" whoever is ahead of it, or on the other branch, is told."""
    log = RealLog(own, "t", failover="resync")
    at = _fill(log, 3)
    with ValkeyProcess() as replica, ThreadedProxy(own.port) as proxy:
        replica.cli("REPLICAOF", "127.0.0.1", proxy.port)
        until_sync(lambda: replica.cli("INFO", "replication").get("master_link_status") == "up", 10, "in step")
        assert own.cli("WAIT", 1, 5000) == 1
        proxy.call(lambda faults: faults.blackhole())
        lost = log.append(b"lost", tag=104).position
        assert lost is not None
        own.kill()
        replica.cli("REPLICAOF", "NO", "ONE")
        trusting = RealLog(replica, "t", failover="trust")
        assert trusting.read(lost).reason == "ahead"
        assert trusting.read(at[3]).reason is None
        trusting.append(b"another 4", tag=204)
        assert trusting.read(lost).reason == "epoch"
        watching = RealLog(replica, "t", failover="resync")
        assert watching.read(at[3], epoch="EpochTwo").reason == "epoch"
        assert watching.read("EpochTwo.4-204", epoch="Unused00").reason is None


def test_what_is_not_a_log_is_an_error(log: RealLog) -> None:
    """A key of another type is a fault to be seen, not an empty log."""
    _fill(log, 1)
    log.server.cli("DEL", log.log_key)
    log.server.cli("SET", log.log_key, "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        log.read("EpochOne.0-0")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        log.append()
