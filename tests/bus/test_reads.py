"""What is in every read."""

from __future__ import annotations

import random

import pytest

from tidings.errors import InvalidPosition, InvalidUser
from tidings.log.names import Names
from tidings_gateway.bus.reads import Reads


def reads(*, lone_key: bool) -> Reads:
    return Reads(Names("t"), random.Random(1), meta_ttl_s=90, failover="resync", lone_key=lone_key)


def test_the_settings_arrive_and_each_read_has_an_epoch_of_its_own() -> None:
    """Retention of `meta`, the way of failovers, and a name for a log that has to begin anew."""
    commands = [reads(lone_key=False).command("ann", b"epoch001.5-7", last=3, limit=2, max_bytes=9)]
    commands.append(reads(lone_key=True).command("ann", None, last=3, limit=2, max_bytes=9))
    several, lone = commands
    assert several.keys == (b"t:{ann}:meta", b"t:{ann}:log")
    assert several.args[:6] == (b"epoch001", b"5", b"7", b"0", b"2", b"9")
    assert several.args[7:] == (b"90", b"resync")
    assert lone.keys == (b"t:{ann}:meta",)
    assert lone.args[3:6] == (b"3", b"2", b"9")
    assert lone.args[7:] == (b"90", b"resync", b"t:{ann}:log", b"")
    same = reads(lone_key=False)
    assert len({same.command("ann", None, last=0, limit=1, max_bytes=1).args[6] for _ in range(20)}) == 20


def test_what_is_bad_is_refused_at_once() -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidUser):
        reads(lone_key=True).command("a b", None, last=0, limit=1, max_bytes=1)
    with pytest.raises(InvalidPosition):
        reads(lone_key=True).command("ann", b"nonsense", last=0, limit=1, max_bytes=1)
