"""The course of a storm, in lines, while it lasts."""

from __future__ import annotations

from collections.abc import Callable

import gevent

from loadtest.herd import Herd


class Watching:
    """A context manager; `say` is told how many pages are connected, how many caught up, and what is on its way."""

    def __init__(self, herd: Herd, say: Callable[[str], None], began_ms: float, clock_ms: Callable[[], float]) -> None:
        self._herd = herd
        self._say = say
        self._began_ms = began_ms
        self._clock_ms = clock_ms
        self._greenlet: gevent.Greenlet | None = None

    def __enter__(self) -> Watching:
        self._greenlet = gevent.spawn(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._greenlet is not None
        self._greenlet.kill()
        self._say(self.line())

    def line(self) -> str:
        herd = self._herd
        pages = [browser.page for browser in herd.browsers]
        return (
            f"  {(self._clock_ms() - self._began_ms) / 1000:5.1f} s  {herd.connected} of {len(pages)} connected, "
            f"{herd.live} caught up, {sum(len(page.resyncs) for page in pages)} told to refetch, "
            f"{sum(len(page.repeated) for page in pages)} repeated"
        )

    def _run(self) -> None:
        while True:
            self._say(self.line())
            gevent.sleep(pause_s((self._clock_ms() - self._began_ms) / 1000))


def pause_s(elapsed_s: float) -> float:
    """Most of a storm is in its first moments."""
    if elapsed_s < 2:
        return 0.25
    return 1.0 if elapsed_s < 20 else 5.0
