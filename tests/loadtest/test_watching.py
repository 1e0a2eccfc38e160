"""The course of a storm."""

from __future__ import annotations

from dataclasses import replace

from loadtest.herd import Herd
from loadtest.watching import Watching, pause_s


def test_a_line_tells_how_far_they_are(herd: Herd) -> None:
    """Connected and caught up are two things, and each is counted."""
    said: list[str] = []
    one, other = herd.browsers
    one.state = replace(one.state, name="replaying")
    one.page.live_since_ms = None
    other.page.resyncs.append("load-1: epoch")
    watching = Watching(herd, said.append, began_ms=1000, clock_ms=lambda: 2500)
    assert watching.line() == "    1.5 s  1 of 2 connected, 1 caught up, 1 told to refetch, 0 repeated"
    with watching:
        pass
    assert said[-1] == watching.line()


def test_the_first_moments_are_looked_at_most_closely() -> None:
    """Most pages come back in them; a drain takes a minute, and needs no 240 lines."""
    assert [pause_s(elapsed_s) for elapsed_s in (0, 2, 19.9, 20)] == [0.25, 1.0, 1.0, 5.0]
