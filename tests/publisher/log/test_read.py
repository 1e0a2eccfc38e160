"""read.lua on a real server: pages that hold to the continuity rule."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tests.publisher.support import RealLog, filled
from tests.support.valkey import ValkeyProcess
from tidings.errors import InvalidPosition
from tidings.log.eventlog import LogLimits

FRAME_BYTES = 112


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
    filled(log, 3)
    log.server.cli("DEL", log.meta_key)
    assert log.read(None, last=10, epoch="EpochTwo").entries == ()
    assert log.server.cli("EXISTS", log.log_key) == 0


def test_resume_twice_with_nothing_between(log: RealLog) -> None:
    """The same position twice gives the same page twice: a read moves nothing."""
    at = filled(log, 5)
    assert log.read(at[2]) == log.read(at[2])


@pytest.mark.parametrize(
    ("last", "numbers"), [(0, []), (1, [10]), (3, [8, 9, 10]), (10, list(range(1, 11))), (99, list(range(1, 11)))]
)
def test_the_last_n(log: RealLog, last: int, numbers: list[int]) -> None:
    """Without a position the last N are given, after the position before the oldest of them."""
    at = filled(log, 10)
    page = log.read(None, last=last)
    assert [int(record.body) for record in page.entries] == numbers
    assert page.start == at[numbers[0] - 1 if numbers else 10]
    assert (page.top, page.reason, page.missed) == (at[10], None, None)


def test_a_position_wins_over_the_last_n(log: RealLog) -> None:
    """With a position, N does not count."""
    at = filled(log, 10)
    assert log.read(at[9], last=5).start == at[9]


def test_the_last_n_of_a_damaged_log(log: RealLog) -> None:
    """The last N go as far back as the log does; where the newest is missing, nothing is passed off as it."""
    at = filled(log, 10)
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
    at = filled(log, 100)
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
    at = filled(log, 10)
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
    at = filled(log, 3)
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


def test_what_is_not_a_log_is_an_error(log: RealLog) -> None:
    """A key of another type is a fault to be seen, not an empty log."""
    filled(log, 1)
    log.server.cli("DEL", log.log_key)
    log.server.cli("SET", log.log_key, "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        log.read("EpochOne.0-0")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        log.append()
