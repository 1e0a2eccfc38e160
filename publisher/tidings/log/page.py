"""A page of a log: the answer to "what comes after this position, and is it proved that nothing is missing?"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidings.log.record import DurableRecord


class ResyncReason(StrEnum):
    """Why a position could not be continued."""

    TRIMMED = "trimmed"
    """Older than what the log still keeps."""
    EPOCH = "epoch"
    """The log was lost, recreated, or forked by a failover."""
    AHEAD = "ahead"
    """Beyond the top: Redis lost acknowledged writes."""
    INVALID = "invalid"
    """Not a position at all."""
    FORBIDDEN = "forbidden"
    """A topic that is no longer granted."""


@dataclass(frozen=True, slots=True)
class Page:
    """Entries that follow `start` without a hole, and the top of the log when they were read, in one atomic read.

    `start` is the position asked for when the continuity rule proved it. When it could not, `reason` says why,
    `start` is the top and `entries` is empty. Without a position, `start` is the top, or the position before the
    oldest of the last N entries when a replay of N was asked for; `reason` is then None.
    `missed` is how many events lie between the position asked for and the top, where that can be known.
    """

    start: bytes
    top: bytes
    entries: tuple[DurableRecord, ...] = ()
    reason: ResyncReason | None = None
    missed: int | None = None
    failed_over: bool = False
    """The epoch ended with the primary: every reader of every log is told so at about the same time."""

    @property
    def end(self) -> bytes:
        """The position a reader has after sending this page."""
        return self.entries[-1].position if self.entries else self.start
