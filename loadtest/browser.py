"""The shell of the machine: one greenlet per page, which waits for the socket and for the machine's one timer."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gevent
from gevent.event import Event as Signal

from loadtest.machine import reduce
from loadtest.page import Page, Watcher
from loadtest.states import CONNECT_MS, Effects, initial
from loadtest.wire import ABNORMAL, Closed, Refused, Wire
from tidings.errors import PublishError

FETCH_POLL_MS = 20.0


@dataclass(slots=True)
class _Fetch:
    """The page's fetch of its state, under way. `done_ms`: when to look whether it is done."""

    number: int
    started_ms: float
    done_ms: float
    greenlet: Any


class Browser:
    """A page with its client. `run` is the body of its greenlet.

    `url` and `token` are asked at each dial, `token` with whether the one before was refused. `position`: where the
    user's log stands, asked when the page fetches its state; raises `PublishError`. `refetch_ms`: how long that fetch
    takes beyond the question, give or take half.
    """

    def __init__(
        self,
        page: Page,
        url: Callable[[], str],
        token: Callable[[bool], str],
        position: Callable[[str], str],
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
        self._position = position
        self._watcher = watcher
        self._refetch_ms = refetch_ms
        self._origin = origin
        self._clock_ms = clock_ms
        self._rng = rng
        self._wire: Wire | None = None
        self._fetch: _Fetch | None = None
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
            self._abort()

    @property
    def connected(self) -> bool:
        """Greeted by a gateway, caught up or not."""
        return self.state.name in ("replaying", "live")

    def cut(self) -> bool:
        """The network goes away under it. False when it was not connected."""
        if self._wire is None:
            return False
        self._wire.cut()
        return True

    # Waiting

    def _wait(self) -> None:
        times = [] if self.state.wake_at is None else [self.state.wake_at]
        if self._fetch is not None:
            times.append(self._fetch.done_ms)
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
        if self._fetch is not None and self._fetch.done_ms <= self._clock_ms():
            self._look_at(self._fetch)
        while (at := self.state.wake_at) is not None and at <= self._clock_ms() and not self.stopped:
            self._dispatch({"type": "tick"})

    # The page's own state

    def _start_fetch(self, number: int) -> None:
        now = self._clock_ms()
        done_ms = now + self._rng.uniform(0.5, 1.5) * self._refetch_ms
        # In a greenlet of its own: meanwhile frames come in and are held, as in a page.
        self._fetch = _Fetch(number, now, done_ms, gevent.spawn(self._ask_position))

    def _ask_position(self) -> str | PublishError:
        try:
            return self._position(self.page.user)
        except PublishError as error:
            return error

    def _look_at(self, fetch: _Fetch) -> None:
        if not fetch.greenlet.ready():
            fetch.done_ms = self._clock_ms() + FETCH_POLL_MS
            return
        self._fetch = None
        took_ms = self._clock_ms() - fetch.started_ms
        answer = fetch.greenlet.get()
        if isinstance(answer, PublishError):
            self._watcher.happened("page", "its own fetch", took_ms, type(answer).__name__)
            self._dispatch({"type": "loadFailed", "load": fetch.number, "message": str(answer)})
        else:
            self._watcher.happened("page", "its own fetch", took_ms)
            self.page.fetched(answer, fetch.started_ms)
            self._dispatch({"type": "loaded", "load": fetch.number})

    def _abort(self) -> None:
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            fetch.greenlet.kill(block=False)

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
                    self._send({"type": "hello", "token": self._token(self.state.refusals > 0), **position})
                case "send":
                    self._send(effect["frame"])
                case "drop":
                    self._drop(effect["code"], effect["reason"])
                case "stop":
                    self.stopped = True
                    self._drop(1000, "")
                case "load":
                    self._start_fetch(effect["load"])
                case "abort":
                    self._abort()
                case "deliver":
                    self.page.deliver(effect["event"])
                case "report" if effect["code"] != "load":  # that one is in the statistics
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
