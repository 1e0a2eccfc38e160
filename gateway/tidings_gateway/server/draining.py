"""How far the end of this process has come, for everybody who has to behave differently then."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Phase(enum.IntEnum):
    SERVING = 0
    GRACE = 1
    """Asked to end. Readiness is off, so that newcomers are sent elsewhere; everything else is as usual."""
    WINDOW = 2
    """Sockets are let go one after the other; new upgrades are refused; parked polls are answered."""
    STOPPING = 3
    """What is left is cut off."""


class Draining:
    """Read by anyone, moved on by the server only."""

    __slots__ = ("_listeners", "phase")

    def __init__(self) -> None:
        self.phase = Phase.SERVING
        self._listeners: set[Callable[[], None]] = set()

    @property
    def started(self) -> bool:
        """The process was asked to end: it is not ready."""
        return self.phase >= Phase.GRACE

    @property
    def refusing(self) -> bool:
        """The window is open, or over: no new upgrades, no more parking."""
        return self.phase >= Phase.WINDOW

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Called once, when the window opens; at once when it is open already. Must not raise."""
        if self.refusing:
            listener()
        else:
            self._listeners.add(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.discard(listener)

    def enter(self, phase: Phase) -> None:
        """For the server. Phases only move on; one may be left out."""
        if phase <= self.phase:
            return
        self.phase = phase
        if self.refusing:
            listeners, self._listeners = self._listeners, set()
            for listener in listeners:
                listener()
