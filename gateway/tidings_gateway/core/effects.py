"""What a feed asks its session to do. Inputs of a feed return these, to be carried out in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidings.log.page import ResyncReason
from tidings.log.record import DurableRecord


@dataclass(frozen=True, slots=True)
class ReadAfter:
    """Read a page after `position` (None: from the top, less the `last` newest entries) and answer with `page` or
    `read_failed`, exactly once, within bounded time."""

    read_id: int
    position: bytes | None
    last: int


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Call `retry` after a wait that grows with `attempt` (from 0), with jitter."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The log has answered: the session starts at `position`. `resumed`: the client asked for it and misses nothing."""

    resumed: bool
    position: bytes


@dataclass(frozen=True, slots=True)
class Send:
    """Send this entry. It follows the one before, or the position of the last Opened or Resync."""

    record: DurableRecord
    replay: bool


@dataclass(frozen=True, slots=True)
class Resync:
    """There is a hole that cannot be proved empty. The session goes on from `position`."""

    reason: ResyncReason
    position: bytes
    missed: int | None
    failed_over: bool = False
    """Everybody else is told to resync too: not all at once, please."""


@dataclass(frozen=True, slots=True)
class Synced:
    """Once per feed: catch-up after Opened is complete; `replayed` entries were sent with `replay` set."""

    position: bytes
    replayed: int


Effect = ReadAfter | RetryLater | Opened | Send | Resync | Synced
Effects = Sequence[Effect]
