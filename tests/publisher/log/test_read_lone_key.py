"""read.lua with one declared key, as it is sent to a Cluster."""

from __future__ import annotations

import pytest
import redis

from tests.publisher.support import RealLog, filled
from tests.support.valkey import ValkeyProcess
from tidings.log.eventlog import parse_page, read_command
from tidings.log.page import Page, ResyncReason


def read(log: RealLog, position: bytes | None, *, asked: bool, last: int = 0) -> Page:
    command = read_command(log.names, log.user, position, new_epoch="Unused00", last=last, lone_key=True, asked=asked)
    assert len(command.keys) == 1
    return parse_page(log.run(command))


@pytest.mark.parametrize("asked", [False, True])
def test_the_answer_is_the_same(own: ValkeyProcess, asked: bool) -> None:
    """As with both keys, whatever is asked for."""
    log = RealLog(own, "t")
    for position in (*filled(log, 3), b"EpochOne.2-9999", b"EpochOne.9-1", b"Another1.1-1", None):
        assert read(log, position, asked=asked) == log.read(position)


def test_a_log_that_may_not_have_come_yet_is_not_called_trimmed(own: ValkeyProcess) -> None:
    """Behind ASKING, entries that are absent may still be with the old owner of the slot: ask again. Who misses none of
    them needs no entries."""
    log = RealLog(own, "t")
    at = filled(log, 3)
    own.cli("DEL", log.log_key)
    assert read(log, at[1], asked=False).reason is ResyncReason.TRIMMED
    with pytest.raises(redis.exceptions.TryAgainError):
        read(log, at[1], asked=True)
    with pytest.raises(redis.exceptions.TryAgainError):
        read(log, None, asked=True, last=2)
    assert read(log, None, asked=False, last=2).entries == ()
    assert read(log, at[3], asked=True).reason is None
