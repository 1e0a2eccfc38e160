"""The rules for clients as a pure machine: frames in, position and records out, broken promises noticed.

No I/O: `Client` puts a connection around it, and unit tests feed it frames.
"""

from __future__ import annotations

import time
from typing import Any

from tests.support.observed import Received, Resync, part

Frame = dict[str, Any]


class Follower:
    """One page over all its connections. `position`: what an earlier page stored.

    The owner calls `connected`, then `take` for every frame, then `lost`; and `refetched` when the page has its state.
    """

    def __init__(self, position: str | None = None) -> None:
        self.stored = position
        """What survives a reconnect: the position of the next hello."""
        self.position: str | None = position
        """Where this connection is; not stored while a refetch is pending."""

        self.events: list[Received] = []
        """Durable events in the order the application saw them."""
        self.chain: list[Received] = []
        """The same and skips."""
        self.ephemerals: list[Frame] = []
        self.resyncs: list[Resync] = []
        self.welcomes: list[Frame] = []
        self.synceds: list[Frame] = []
        self.errors: list[Frame] = []
        self.violations: list[str] = []
        self.heartbeats = 0
        self.connections = 0
        self.synced = False
        self.held_back = False
        """The page has to fetch its state before the position may be stored."""
        self.goodbye: Frame | None = None
        self.longest_away_s = 0.0
        """The longest time between two synced states."""

        self._welcomed = False
        self._expects_resync = False
        self._replayed = 0
        self._away_since: float | None = None

    def connected(self) -> None:
        self.connections += 1
        self.goodbye, self._welcomed, self._expects_resync, self._replayed = None, False, False, 0

    def lost(self) -> None:
        """The connection is over."""
        if self.synced:
            self._away_since = time.monotonic()
        self.synced = False
        self.held_back = False
        self.position = self.stored

    def refetched(self) -> None:
        """The page has fetched its state: what came since may be stored."""
        self.held_back, self.stored = False, self.position

    def check(self) -> None:
        """Nothing that came broke the contract."""
        assert not self.violations, self.violations[:10]

    def take(self, frame: Frame) -> bool:
        """Returns whether the page must fetch its state now."""
        kind = frame.get("type", "")
        if not self._welcomed and kind not in ("welcome", "goodbye"):
            self.violation(f"{kind!r} before the welcome")
        if self._expects_resync and kind not in ("resync", "goodbye") and not (kind == "event" and "id" not in frame):
            self.violation(f"{kind} where the resync of an unproved position should be")
        match kind:
            case "welcome":
                self._welcome(frame)
            case "event" if "id" not in frame:
                self.ephemerals.append(frame)
            case "event" | "skip":
                self._durable(kind, frame)
            case "resync":
                self._resync(frame)
            case "synced":
                self._synced(frame)
            case "heartbeat":
                self.heartbeats += 1
                if self.position is not None and frame["position"] != self.position:
                    self.violation(f"heartbeat at {frame['position']}, but the last id is {self.position}")
            case "goodbye":
                self.goodbye = frame
            case "error":
                self.errors.append(frame)
        return self._asks_refetch(kind, frame)

    def _asks_refetch(self, kind: str, frame: Frame) -> bool:
        # A client that sent a position and was not resumed waits for the resync, so that there is one refetch.
        return kind == "resync" or (kind == "welcome" and not frame["resumed"] and not self._expects_resync)

    def _welcome(self, frame: Frame) -> None:
        self.welcomes.append(frame)
        if self._welcomed:
            self.violation("a second welcome")
        self._welcomed = True
        if frame["resumed"]:
            if frame["position"] != self.stored:
                self.violation(f"resumed at {frame['position']}, asked for {self.stored}")
            self.position = frame["position"]
            return
        self._expects_resync = self.stored is not None
        self.position = frame["position"]
        self.held_back = True

    def _resync(self, frame: Frame) -> None:
        if self._expects_resync and frame["position"] != self.position:
            self.violation(f"resync to {frame['position']} after a welcome at {self.position}")
        self._expects_resync = False
        self.resyncs.append(
            Resync(frame["reason"], frame["position"], frame.get("missed"), self.connections, len(self.events))
        )
        self.position = frame["position"]
        self.held_back = True

    def _durable(self, kind: str, frame: Frame) -> None:
        identity = frame["id"]
        epoch, seq, _ = part(identity)
        if self.position is None:
            self.violation(f"{kind} {identity} before a position is known")
        else:
            at_epoch, at_seq, _ = part(self.position)
            if epoch != at_epoch:
                self.violation(f"{kind} {identity} of another epoch than {self.position}, without a resync")
            elif seq <= at_seq:
                self.violation(f"{kind} {identity} again: already at {self.position}")
                return
            elif seq != at_seq + 1:
                self.violation(f"a hole before {kind} {identity}: was at {self.position}")
        replay = frame.get("replay", False)
        if replay and self.synced:
            self.violation(f"replay:true on {identity} after synced")
        # Skips carry no flag, but they are entries that were caught up with, and `replayed` counts those.
        self._replayed += bool(replay) or (kind == "skip" and not self.synced)
        event = frame["event"] if kind == "event" else None
        received = Received(identity, event, frame.get("data"), replay, self.connections, time.monotonic())
        self.chain.append(received)
        if event is not None:
            self.events.append(received)
        self._move(identity)

    def _synced(self, frame: Frame) -> None:
        if self.synced:
            self.violation("a second synced")
        if frame["position"] != self.position:
            self.violation(f"synced at {frame['position']}, but the last id is {self.position}")
        if frame["replayed"] != self._replayed:
            self.violation(f"synced says {frame['replayed']} replayed, {self._replayed} came")
        self.synceds.append(frame)
        self.synced = True
        if self._away_since is not None:
            self.longest_away_s = max(self.longest_away_s, time.monotonic() - self._away_since)
            self._away_since = None

    def _move(self, position: str) -> None:
        self.position = position
        if not self.held_back:
            self.stored = position

    def violation(self, what: str) -> None:
        self.violations.append(f"[connection {self.connections}] {what}")
