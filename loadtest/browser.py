"""The shell of the machine: one greenlet per page, which waits for the socket and for the machine's one timer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from gevent.event import Event as Signal

from loadtest.machine import reduce
from loadtest.page import Page, Watcher
from loadtest.states import CONNECT_MS, Effects, initial
from loadtest.wire import ABNORMAL, Closed, Refused, Wire


class Browser:
    """A page with its client. `run` is the body of its greenlet.

    `url` and `token` are asked at each dial. `refetch_ms`: how long the page's own fetch of its state takes.
    """

    def __init__(
        self,
        page: Page,
        url: Callable[[], str],
        token: Callable[[], str],
        watcher: Watcher,
        *,
        refetch_ms: float,
        origin: str | None,
        clock_ms: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.page = page
        self.state = initial()
        self.stopped = False
        self._url = url
        self._token = token
        self._watcher = watcher
        self._refetch_ms = refetch_ms
        self._origin = origin
        self._clock_ms = clock_ms
        self._rng = rng
        self._wire: Wire | None = None
        self._load: tuple[int, float, float] | None = None
        """The number of the fetch under way, when it began, and when it will be done."""
        self._dialled_ms = 0.0
        self._away_ms: float | None = None
        self._nudge = Signal()

    def run(self) -> None:
        """Until `close`, or until the client stops by itself."""
        try:
            self._dispatch({"type": "start"})
            while not self.stopped:
                self._wait()
                self._due()
        finally:
            # Also when the greenlet is killed: a page that is closed says goodbye.
            self._dispatch({"type": "close"})

    def close(self) -> None:
        self.stopped = True
        self._nudge.set()

    def cut(self) -> bool:
        """The network goes away under it. False when it was not connected."""
        if self._wire is None:
            return False
        self._wire.cut()
        return True

    # Waiting

    def _wait(self) -> None:
        times = [at for at in (self.state.wake_at, self._load and self._load[2]) if at is not None]
        left_s = max(0.0, min(times) - self._clock_ms()) / 1000 if times else None
        wire = self._wire
        if wire is None:
            self._nudge.wait(left_s)
            return
        dial = self.state.dial
        try:
            frames = wire.receive(left_s)
        except Closed as closed:
            self._wire = None
            self._dispatch({"type": "closed", "dial": dial, "code": closed.code, "reason": closed.reason})
            return
        for frame in frames:
            self._dispatch({"type": "frame", "dial": dial, "frame": frame})

    def _due(self) -> None:
        now = self._clock_ms()
        if self._load is not None and self._load[2] <= now:
            (number, started_ms, _), self._load = self._load, None
            # Only what the machine still waits for counts; else `abort` had come first.
            self.page.fetched(started_ms)
            self._dispatch({"type": "loaded", "load": number})
        while (at := self.state.wake_at) is not None and at <= self._clock_ms() and not self.stopped:
            self._dispatch({"type": "tick"})

    # Events in, effects out

    def _dispatch(self, event: Mapping[str, Any]) -> None:
        queue = [event]
        while queue:
            event = queue.pop(0)
            self.state, effects = reduce(self.state, event, self._clock_ms(), self._rng.random())
            queue += self._carry_out(effects)
            self._note_liveness(event)

    def _note_liveness(self, event: Mapping[str, Any]) -> None:
        now, live = self._clock_ms(), self.state.public_name == "live"
        if live and not self.page.live:
            self.page.live_since_ms = now
            if self._away_ms is None:
                self._watcher.happened("page", "live for the first time", now - self._dialled_ms)
            else:
                away_ms = now - self._away_ms
                self.page.longest_away_ms = max(self.page.longest_away_ms, away_ms)
                self._watcher.happened("page", "live again", away_ms)
        elif not live and self.page.live:
            self.page.live_since_ms, self._away_ms = None, now
            self.page.left += 1
        if event["type"] == "frame" and isinstance(event["frame"], dict) and event["frame"].get("type") == "resync":
            self.page.resyncs.append(f"{self.page.user}: {event['frame'].get('reason')}")

    def _carry_out(self, effects: Effects) -> list[Mapping[str, Any]]:
        following: list[Mapping[str, Any]] = []
        for effect in effects:
            match effect["type"]:
                case "token":
                    following.append({"type": "token", "dial": effect["dial"]})
                case "dial":
                    following.append(self._dial(effect["dial"]))
                case "hello":
                    position = {} if effect["position"] is None else {"position": effect["position"]}
                    self._send({"type": "hello", "token": self._token(), **position})
                case "send":
                    self._send(effect["frame"])
                case "drop":
                    self._drop(effect["code"], effect["reason"])
                case "stop":
                    self.stopped = True
                    self._drop(1000, "")
                case "load":
                    now = self._clock_ms()
                    self._load = (effect["load"], now, now + self._rng.uniform(0.5, 1.5) * self._refetch_ms)
                case "abort":
                    self._load = None
                case "deliver":
                    self.page.deliver(effect["event"])
                case "report":
                    self.page.reports.append(f"{effect['code']}: {effect['message']}")
        return following

    def _dial(self, dial: int) -> Mapping[str, Any]:
        self._dialled_ms = self._clock_ms()
        try:
            self._wire = Wire.open(self._url(), CONNECT_MS / 1000, origin=self._origin)
        except Refused as refused:
            status = "no connection" if refused.status is None else f"refused with {refused.status}"
            self._watcher.happened("dial", "upgrade", self._clock_ms() - self._dialled_ms, status)
            return {"type": "closed", "dial": dial, "code": ABNORMAL, "reason": ""}
        self._watcher.happened("dial", "upgrade", self._clock_ms() - self._dialled_ms)
        return {"type": "open", "dial": dial}

    def _send(self, frame: Mapping[str, Any]) -> None:
        if self._wire is not None:
            self._wire.send(frame)

    def _drop(self, code: int, reason: str) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close(code, reason)
