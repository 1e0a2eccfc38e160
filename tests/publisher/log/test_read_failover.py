"""read.lua on a real server: whether a change of primary ends an epoch."""

from __future__ import annotations

import pytest

from tests.publisher.support import RealLog, filled
from tests.support.proxy import ThreadedProxy
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import until_sync
from tidings.log.page import ResyncReason


def _change_primary(server: ValkeyProcess) -> None:
    """What clients see after a failover that lost nothing: another replication id."""
    before = server.cli("INFO", "replication")["master_replid"]
    server.cli("DEBUG", "CHANGE-REPL-ID")
    assert server.cli("INFO", "replication")["master_replid"] != before


def test_another_primary_ends_the_epoch(own: ValkeyProcess) -> None:
    """With failover "resync" no position outlives a change of primary, whoever it was that lost something; the entries
    stay and the numbers go on."""
    log = RealLog(own, "t", failover="resync")
    at = filled(log, 3)
    assert log.read(at[2]).reason is None
    _change_primary(own)
    for position in at:
        page = log.read(position, epoch="EpochTwo")
        assert (page.reason, page.missed, page.top) == (ResyncReason.EPOCH, None, b"EpochTwo.3-103")
        assert page.failed_over, "the first reader, and those after it"
    assert [record.position for record in log.read(None, last=2, epoch="Unused00").entries] == [
        b"EpochTwo.2-102",
        b"EpochTwo.3-103",
    ]
    log.append(b"4", tag=104)
    page = log.read("EpochTwo.3-103", epoch="Unused00")
    assert (page.reason, page.top) == (None, b"EpochTwo.4-104")


def test_only_a_change_of_primary_is_called_one(own: ValkeyProcess) -> None:
    """Not a fork, not a log that began anew, not a position of two primaries ago."""
    log = RealLog(own, "t", failover="resync")
    (first, *_), fork = filled(log, 2), b"EpochOne.2-9999"
    _change_primary(own)
    second = log.read(first, epoch="EpochTwo").top
    assert (log.read(second[:-1] + b"9").reason, log.read(second[:-1] + b"9").failed_over) == ("epoch", False)
    assert log.read(fork).failed_over
    _change_primary(own)
    assert log.read(second, epoch="EpochThree").failed_over
    assert (log.read(first).reason, log.read(first).failed_over) == ("epoch", False)
    own.cli("DEL", log.meta_key)
    log.append(epoch="EpochFour")
    assert (log.read(b"EpochThree.2-102").reason, log.read(b"EpochThree.2-102").failed_over) == ("epoch", False)


def test_the_same_primary_keeps_the_epoch(own: ValkeyProcess) -> None:
    """Whether it began with a read or with an event, also an earlier version's, which stamped nothing: no resync
    without a change."""
    log = RealLog(own, "t", failover="resync")
    at = filled(log, 2)
    for log.user in ("later", "of-an-earlier-version"):
        log.append()
        if log.user != "later":
            own.cli("HDEL", log.meta_key, "era")
        top = log.read(None, epoch="Unused00").top.decode()
        assert log.read(top, epoch="Unused00").reason is None
    log.user = "u"
    assert log.read(at[1], epoch="Unused00").reason is None
    assert log.meta()[b"era"] == own.cli("INFO", "replication")["master_replid"].encode()


def test_a_stamp_that_was_lost_is_a_change_of_primary(own: ValkeyProcess) -> None:
    """A log of an earlier version, which was stamped by its first reader only. Who holds a position has read. If
    there is no stamp, it did not reach the replica that took over, and neither, perhaps, did what was acknowledged
    after it."""
    log = RealLog(own, "t", failover="resync")
    log.append()
    position = log.read(None).top.decode()
    own.cli("HDEL", log.names.meta("u"), "era")
    page = log.read(position, epoch="EpochTwo")
    assert page.reason == "epoch"
    assert page.failed_over
    assert log.read(page.top.decode(), epoch="Unused00").reason is None


def test_trust_takes_the_new_primary_at_its_word(own: ValkeyProcess) -> None:
    """With failover "trust" a change of primary changes nothing, nor what the log is stamped with."""
    log = RealLog(own, "t", failover="trust")
    at = filled(log, 3)
    began = log.meta()[b"era"]
    _change_primary(own)
    page = log.read(at[1])
    assert (page.reason, len(page.entries)) == (None, 2)
    assert log.meta()[b"era"] == began


def test_a_real_failover(own: ValkeyProcess) -> None:
    """The replica is made primary without the newest entries: with "resync" everybody is told, also who saw none of
    the lost ones; with "trust" whoever is ahead of it, or on the other branch, is told."""
    log = RealLog(own, "t", failover="resync")
    at = filled(log, 3)
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


def test_a_newcomer_does_not_hide_what_was_lost(own: ValkeyProcess) -> None:
    """The event that began the log reached the replica; what came after it, the first read and an acknowledged event,
    did not. Whoever reads first on the new primary, also without a position, nobody goes on from a position of the
    old one."""
    log = RealLog(own, "t", failover="resync")
    with ValkeyProcess() as replica, ThreadedProxy(own.port) as proxy:
        replica.cli("REPLICAOF", "127.0.0.1", proxy.port)
        until_sync(lambda: replica.cli("INFO", "replication").get("master_link_status") == "up", 10, "in step")
        log.append(epoch="EpochOne", tag=101)
        assert own.cli("WAIT", 1, 5000) == 1
        proxy.call(lambda faults: faults.blackhole())
        watching = log.read(None).top
        assert log.append(b"lost", tag=102).position
        own.kill()
        replica.cli("REPLICAOF", "NO", "ONE")
        after = RealLog(replica, "t", failover="resync")
        newcomer = after.read(None, epoch="EpochTwo").top
        page = after.read(watching, epoch="Unused00")
        assert (page.reason, page.failed_over) == ("epoch", True)
        assert after.read(newcomer, epoch="Unused00").reason is None


@pytest.mark.parametrize("refusing", [("min-replicas-to-write", 1), ("maxmemory", 1)])
def test_a_new_primary_that_takes_no_writes_is_read(own: ValkeyProcess, refusing: tuple[str, int]) -> None:
    """The only replica took over, say, and has none of its own: until it has, nothing is stored, but whoever comes is
    let in, and whoever is there is told what may be lost. What they are given meanwhile is never proved."""
    log = RealLog(own, "t", failover="resync")
    at = filled(log, 3)
    own.cli("CONFIG", "SET", *refusing)
    try:
        _change_primary(own)
        meanwhile = log.read(None, last=1, epoch="EpochTwo")
        assert [record.body for record in meanwhile.entries] == [b"3"]
        page = log.read(at[3], epoch="EpochThree")
        assert (page.reason, page.failed_over) == ("epoch", True)
        assert log.read(page.top, epoch="EpochFour").reason == "epoch"
    finally:
        own.cli("CONFIG", "SET", refusing[0], 0)
    assert log.read(meanwhile.top, epoch="EpochFive").reason == "epoch"
    assert log.read(at[3]).failed_over
    assert log.read("EpochFive.3-103").reason is None
