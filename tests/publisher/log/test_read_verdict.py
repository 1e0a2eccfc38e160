"""read.lua on a real server: the verdict of the continuity rule, as a table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.publisher.support import RealLog, filled
from tidings.log.page import ResyncReason
from tidings.log.position import Position

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
    filled(log, 10)
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
