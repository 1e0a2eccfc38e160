"""What a page has: the events it was handed, and the state it fetched. The load test's witness."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from loadtest.ledger import Entry, Ledger
from tidings.log.position import Position


class Watcher(Protocol):
    """Is told what happens to a page, for statistics."""

    def happened(self, what: str, name: str, ms: float, why: str | None = None) -> None: ...


class Page:
    """One page of `user`. What it was handed is kept as keys of the ledger: as many as were published to its user."""

    def __init__(self, user: str, ledger: Ledger, watcher: Watcher, clock_ms: Callable[[], float]) -> None:
        self.user = user
        self.seen: set[int] = set()
        self.repeated: list[str] = []
        self.foreign: list[str] = []
        self.resyncs: list[str] = []
        self.reports: list[str] = []
        self._fetched: tuple[Position, float] | None = None
        """Where the log stood when it fetched its state last, and when that began."""
        self.live_since_ms: float | None = None
        """None while something may be missing."""
        self.left = 0
        """How often it ceased to be live since `begin_watch`."""
        self.longest_away_ms = 0.0
        """The longest time between two live states since `begin_watch`."""
        self._ledger = ledger
        self._watcher = watcher
        self._clock_ms = clock_ms

    @property
    def live(self) -> bool:
        return self.live_since_ms is not None

    def begin_watch(self) -> None:
        self.left, self.longest_away_ms = 0, 0.0

    def deliver(self, event: Mapping[str, Any]) -> None:
        data = event["data"]
        if event["id"] is None or not isinstance(data, dict) or data.get("run") != self._ledger.run:
            return
        key: int = data["key"]
        if data.get("user") != self.user:
            self.foreign.append(f"{self.user} got {event['id']} of {data.get('user')}")
        elif key in self.seen:
            self.repeated.append(f"{self.user} got {event['id']} again")
        self.seen.add(key)
        sent_ms = self._ledger.sent_ms(key)
        if sent_ms is not None:
            name = "replayed" if event["replay"] else "as it happened"
            self._watcher.happened("event", name, self._clock_ms() - sent_ms)

    def fetched(self, position: str, started_ms: float) -> None:
        """A fetch of its state has succeeded; `position` was asked right before, as an application does that renders
        a page on its server (PROTOCOL.md, section 6)."""
        self._fetched = Position.parse(position), started_ms

    def missing(self) -> list[str]:
        """What was acknowledged, and is neither handed over nor in the state that was fetched."""
        return [
            f"{self.user} lacks {entry.position}"
            for entry in self._ledger.acknowledged_of(self.user)
            if entry.key not in self.seen and not self._covered(entry)
        ]

    def _covered(self, entry: Entry) -> bool:
        """Whether the state it fetched holds this."""
        if self._fetched is None or entry.position is None:
            return False
        fetched, started_ms = self._fetched
        stored = Position.parse(entry.position)
        if stored.epoch == fetched.epoch:
            # By the log's own count, not by the clock: what came above the position is owed by the gateway, even when
            # it was sent before the fetch.
            return stored.seq <= fetched.seq
        # Of a log that is gone. The application wrote it before it published it, so its state has it all the same.
        return entry.sent_ms <= started_ms
