"""A user's event log as the contract describes it, in memory: what a feed may believe, in plain Python.

It shares no code with the scripts that run in Redis or with the feed, only the types of what is read; that it answers
as the scripts do is a test of its own. Every entry that ever existed under any position is kept in a `Truth`, shared by
all copies of a log, so that a test can ask what really came after what, long after the log was trimmed, lost or
forked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidings.log.page import Page, ResyncReason
from tidings.log.record import DurableRecord

FRAME_BYTES = 112
"""What an entry counts for in a page beside its body."""


@dataclass(slots=True)
class Truth:
    """All entries that ever were, by position; and a source of epochs and tags that never repeats itself."""

    entries: dict[bytes, DurableRecord] = field(default_factory=dict)
    _serial: int = 0

    def epoch(self) -> str:
        self._serial += 1
        return f"Epoch{self._serial:06d}"

    def tag(self) -> int:
        # Neither rising nor falling, and never twice: the modulus is prime.
        self._serial += 1
        return self._serial * 7_368_787 % 9_999_999_967


class Entry(NamedTuple):
    seq: int
    tag: int
    before: int
    """The tag of the entry before."""
    body: bytes


def spell(epoch: str, seq: int, tag: int) -> bytes:
    return b"%b.%d-%d" % (epoch.encode(), seq, tag)


class ModelLog:
    """One primary's copy of one user's log. `retention`: how many entries are kept. `era`: the primary's identity;
    `watch_era`: a read under another era than the one it is stamped with gives the log a new epoch
    (TIDINGS_FAILOVER=resync)."""

    def __init__(self, truth: Truth, *, retention: int = 1000, era: int = 0, watch_era: bool = False) -> None:
        self.truth = truth
        self.retention = retention
        self.era = era
        self.watch_era = watch_era
        self.stamped_era: int | None = None
        self.epoch: str | None = None
        """None: there is no meta."""
        self.was: str | None = None
        """The epoch that the last change of era ended."""
        self.seq = 0
        self.tag = 0
        self.entries: list[Entry] = []

    @property
    def top(self) -> bytes:
        self._ensure_meta()
        assert self.epoch is not None
        return spell(self.epoch, self.seq, self.tag)

    def append(self, body: bytes) -> DurableRecord:
        """Store one event and return the record that is published."""
        self._ensure_meta()
        entry = Entry(self.seq + 1, self.truth.tag(), self.tag, body)
        self.entries.append(entry)
        del self.entries[: -self.retention]
        self.seq, self.tag = entry.seq, entry.tag
        return self._remember(entry)

    def trim(self, keep: int) -> None:
        self.entries = self.entries[len(self.entries) - keep :] if keep < len(self.entries) else self.entries

    def delete_entry(self, index: int) -> None:
        """XDEL by somebody who should not."""
        if self.entries:
            del self.entries[index % len(self.entries)]

    def delete_log(self) -> None:
        """The stream expired or was evicted; meta is still there."""
        self.entries = []

    def wipe(self, *, stray: bool = False) -> None:
        """Meta is gone; `stray`: the stream is still there."""
        self.epoch = None
        self.stamped_era = self.was = None
        if not stray:
            self.entries = []

    def fork(self, lost: int) -> ModelLog:
        """The copy that a failover makes the primary: the last `lost` entries never reached it."""
        copy = ModelLog(self.truth, retention=self.retention, era=self.era + 1, watch_era=self.watch_era)
        copy.epoch, copy.was, copy.stamped_era = self.epoch, self.was, self.stamped_era
        kept = self.entries[: max(0, len(self.entries) - lost)] if lost else self.entries
        copy.entries = list(kept)
        if kept:
            copy.seq, copy.tag = kept[-1].seq, kept[-1].tag
        elif not lost:
            copy.seq, copy.tag = self.seq, self.tag
        elif self.entries:
            # All that is stored was lost: the copy is where it was before the oldest of it.
            copy.seq, copy.tag = self.entries[0].seq - 1, self.entries[0].before
        else:
            copy.seq, copy.tag = self.seq, self.tag
        return copy

    def read_after(self, position: bytes | None, *, last: int = 0, limit: int = 128, max_bytes: int = 131_072) -> Page:
        """The continuity rule, and what follows if it holds."""
        self._ensure_meta()
        self._watch_era()
        epoch = self.epoch
        assert epoch is not None
        top = spell(epoch, self.seq, self.tag)
        if position is None:
            oldest = self.seq - last + 1
            index = next((index for index, entry in enumerate(self.entries) if entry.seq >= oldest), None)
            page = () if index is None or not last else self._take(index, limit, max_bytes)
            return Page(page[0].before if page else top, top, page)
        asked_epoch, _, rest = position.decode().partition(".")
        seq, _, tag = rest.partition("-")
        asked = int(seq)
        if asked_epoch != epoch:
            return Page(top, top, reason=ResyncReason.EPOCH, failed_over=asked_epoch == self.was)
        if asked > self.seq:
            return Page(top, top, reason=ResyncReason.AHEAD)
        if asked == self.seq:
            if int(tag) != self.tag:
                return Page(top, top, reason=ResyncReason.EPOCH)
            return Page(position, top)
        index = next((index for index, entry in enumerate(self.entries) if entry.seq > asked), None)
        if index is None or self.entries[index].seq != asked + 1:
            return Page(top, top, reason=ResyncReason.TRIMMED, missed=self.seq - asked)
        if self.entries[index].before != int(tag):
            return Page(top, top, reason=ResyncReason.EPOCH)
        return Page(position, top, self._take(index, limit, max_bytes))

    def _ensure_meta(self) -> None:
        if self.epoch is None:
            self.epoch = self.truth.epoch()
            self.stamped_era = self.era
            self.seq = self.tag = 0
            self.entries = []

    def _watch_era(self) -> None:
        if self.watch_era and self.stamped_era != self.era:
            self.stamped_era = self.era
            self.was, self.epoch = self.epoch, self.truth.epoch()
            for entry in self.entries:
                self._remember(entry)

    def _take(self, start: int, limit: int, max_bytes: int) -> tuple[DurableRecord, ...]:
        taken: list[DurableRecord] = []
        size = 0
        following = None
        for entry in self.entries[start : start + limit]:
            size += len(entry.body) + FRAME_BYTES
            if taken and (size > max_bytes or entry.seq != following):
                break
            following = entry.seq + 1
            taken.append(self._record(entry))
        return tuple(taken)

    def _record(self, entry: Entry) -> DurableRecord:
        assert self.epoch is not None
        return DurableRecord(
            spell(self.epoch, entry.seq - 1, entry.before), spell(self.epoch, entry.seq, entry.tag), entry.body
        )

    def _remember(self, entry: Entry) -> DurableRecord:
        record = self._record(entry)
        assert record.position not in self.truth.entries
        self.truth.entries[record.position] = record
        return record
