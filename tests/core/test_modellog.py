"""The model that the feed is tested against is the log that runs in Redis: the same calls, the same answers."""

from __future__ import annotations

import random
import secrets

import pytest

from tests.publisher.support import RealLog
from tests.support.modellog import ModelLog, Truth, spell
from tests.support.valkey import ValkeyProcess
from tidings.log.eventlog import Failover, LogLimits
from tidings.log.position import Position

RETENTION = 8

STEPS = 40
DAMAGE = ("trim", "delete log", "delete entry", "delete entry", "wipe", "wipe meta", "failover")


class Pair:
    """One log of each kind, given the same epochs and tags."""

    def __init__(self, server: ValkeyProcess, watch_era: bool) -> None:
        self.model = ModelLog(Truth(), retention=RETENTION, watch_era=watch_era)
        limits = LogLimits(max_events=RETENTION)
        failover: Failover = "resync" if watch_era else "trust"
        self.real = RealLog(server, f"m-{secrets.token_hex(6)}", limits=limits, failover=failover)
        self.server = server

    def _epoch(self, before: str | None) -> str:
        """What the real one is to begin anew with: as the model did, and never if the model did not."""
        assert self.model.epoch is not None
        return self.model.epoch if self.model.epoch != before else "Unexpected"

    def append(self, size: int) -> None:
        before = self.model.epoch
        record = self.model.append(b"x" * size)
        receipt = self.real.append(record.body, epoch=self._epoch(before), tag=Position.parse(record.position).tag)
        assert receipt.position is not None
        assert receipt.position.encode() == record.position

    def read(self, position: bytes | None, last: int, limit: int, max_bytes: int) -> None:
        before = self.model.epoch
        expected = self.model.read_after(position, last=last, limit=limit, max_bytes=max_bytes)
        assert (
            self.real.read(position, last=last, limit=limit, max_bytes=max_bytes, epoch=self._epoch(before)) == expected
        )

    def positions(self) -> list[bytes]:
        """Those that were true once and not too long ago, and some that never were."""
        known = [record.position for record in list(self.model.truth.entries.values())[-2 * RETENTION :]]
        epoch, seq, tag = self.model.epoch or "Elsewhere", self.model.seq, self.model.tag
        return [
            *known,
            spell(epoch, 0, 0),
            spell(epoch, seq, tag + 1),
            spell(epoch, max(0, seq - 1), tag + 1),
            spell(epoch, seq + 1, tag),
            spell("Elsewhere", seq, tag),
        ]

    def damage(self, how: str, number: int) -> None:
        model, server, log, meta = self.model, self.server, self.real.log_key, self.real.meta_key
        match how:
            case "trim":
                model.trim(number)
                server.cli("XTRIM", log, "MAXLEN", number)
            case "delete log":
                model.delete_log()
                server.cli("DEL", log)
            case "delete entry":
                if model.entries:
                    entry = model.entries[number % len(model.entries)]
                    server.cli("XDEL", log, f"{entry.seq}-{entry.tag}")
                model.delete_entry(number)
            case "wipe":
                model.wipe()
                server.cli("DEL", log, meta)
            case "wipe meta":
                model.wipe(stray=True)
                server.cli("DEL", meta)
            case "failover":
                # As another primary looks to the script: the identity it finds stamped is not its own.
                model.era += 1
                if server.cli("HEXISTS", meta, "era"):
                    server.cli("HSET", meta, "era", "0" * 40)


@pytest.mark.parametrize("seed", range(16))
def test_the_model_answers_as_redis_does(valkey: ValkeyProcess, seed: int) -> None:
    """Verdict, start, top, entries and where a page ends: for every position and limit, after every damage."""
    rng = random.Random(seed)
    pair = Pair(valkey, watch_era=seed % 2 == 1)
    for _ in range(STEPS):
        if rng.random() < 0.75:
            for _ in range(rng.randrange(1, 4)):
                pair.append(rng.choice((1, 100, 300)))
        else:
            pair.damage(rng.choice(DAMAGE), rng.randrange(10))
        if rng.random() < 0.5:
            limit, max_bytes = rng.randrange(1, 6), rng.choice((1, 300, 500, 1_000, 131_072))
            pair.read(None, rng.randrange(2 * RETENTION), limit, max_bytes)
            for position in pair.positions():
                pair.read(position, 0, limit, max_bytes)


def test_tags_and_epochs_never_come_twice() -> None:
    """Or the model would call a fork the same log."""
    truth = Truth()
    tags = [truth.tag() for _ in range(10_000)]
    assert len(set(tags)) == len(tags)
    assert all(1 <= tag <= 9_999_999_999 for tag in tags)
    assert len({truth.epoch() for _ in range(1_000)}) == 1_000
