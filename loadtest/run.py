"""A run: everybody connects, events flow, the strikes come, all has to arrive. The same for `make storm` and locust."""

from __future__ import annotations

import random
from collections.abc import Callable

import gevent

from loadtest.herd import Herd, clock_ms
from loadtest.options import Options
from loadtest.page import Watcher
from loadtest.publishing import Workers
from loadtest.pulse import Pulse
from loadtest.report import Storm
from loadtest.strike import Strike
from loadtest.waiting import until
from loadtest.watching import Watching
from tidings import Publisher

NOTICED_S = 10.0


class Run:
    """`say` is told the course of it, a line at a time."""

    def __init__(
        self,
        options: Options,
        herd: Herd,
        publisher: Publisher,
        watcher: Watcher,
        strike: Strike,
        say: Callable[[str], None],
    ) -> None:
        self.storms: list[Storm] = []
        self.pulse = Pulse(clock_ms)
        self._options = options
        self._herd = herd
        self._publisher = publisher
        self._watcher = watcher
        self._strike = strike
        self._say = say

    def run(self, expected: int) -> None:
        """`expected` pages are on their way, each in a greenlet of its own. Returns when everything has arrived, or has
        had its time."""
        options, herd = self._options, self._herd
        pulse = gevent.spawn(self.pulse.run)
        workers: Workers | None = None
        working = None
        try:
            if not until(lambda: herd.live >= expected, expected / options.connect_per_s + options.back_s):
                self._say(f"{herd.live} of {expected} pages are live: going on without the others")
            else:
                self._say(f"{expected} pages are live")
            workers = Workers(
                self._publisher,
                herd.users,
                options.rate,
                herd.ledger,
                self._watcher,
                clock_ms=clock_ms,
                rng=random.Random(f"workers {options.seed}"),
            )
            working = gevent.spawn(workers.run)
            for _ in range(options.strikes):
                gevent.sleep(options.steady_s)
                if options.strike != "none":
                    self._storm()
            gevent.sleep(options.steady_s)
            workers.stop()
            working.get()
            until(herd.settled, options.quiet_s)
        finally:
            if workers is not None:
                workers.stop()
            gevent.killall([greenlet for greenlet in (pulse, working) if greenlet is not None])

    def _storm(self) -> None:
        herd, options = self._herd, self._options
        for browser in herd.browsers:
            browser.page.begin_watch()
        began_ms = clock_ms()
        with Watching(herd, self._say, began_ms, clock_ms):
            struck = self._strike()
            # A page learns of its end only when its own greenlet runs.
            until(lambda: self._left >= struck.cut, NOTICED_S)
            everybody = until(lambda: herd.live == len(herd.browsers), options.back_s)
        aways = [browser.page.longest_away_ms / 1000 for browser in herd.browsers if browser.page.longest_away_ms > 0]
        back_ms = max((browser.page.live_since_ms or 0 for browser in herd.browsers), default=0)
        storm = Storm(struck.words, self._left, max(0.0, back_ms - began_ms) / 1000 if everybody else None, aways)
        self.storms.append(storm)

    @property
    def _left(self) -> int:
        return sum(browser.page.left > 0 for browser in self._herd.browsers)
