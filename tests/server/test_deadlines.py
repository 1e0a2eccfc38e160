"""One timer for many equal deadlines, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

from tidings_gateway.server.deadlines import Deadlines


class Handle:
    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Only time and timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None], /) -> Handle:
        handle = Handle(when, callback)
        self.handles.append(handle)
        return handle

    @property
    def armed(self) -> int:
        return sum(not handle.cancelled for handle in self.handles)

    def advance(self, to: float) -> None:
        self.now = to
        while due := [handle for handle in self.handles if handle.due <= to]:
            for handle in due:
                self.handles.remove(handle)
                if not handle.cancelled:
                    handle.callback()


def test_expires_in_order_and_once() -> None:
    """Each item expires its timeout after its own start, once."""
    loop, late = Loop(), list[str]()
    deadlines = Deadlines[str](loop, 5, late.append)
    deadlines.start("a")
    loop.advance(2)
    deadlines.start("b")
    loop.advance(4.9)
    assert late == []
    loop.advance(5)
    assert late == ["a"]
    loop.advance(6.9)
    assert late == ["a"]
    loop.advance(100)
    assert late == ["a", "b"]
    assert len(deadlines) == 0
    assert loop.armed == 0


def test_stopped_and_restarted() -> None:
    """A stopped item does not expire; one started again has its whole time again."""
    loop, late = Loop(), list[str]()
    deadlines = Deadlines[str](loop, 5, late.append)
    deadlines.start("stopped")
    deadlines.start("restarted")
    loop.advance(3)
    deadlines.stop("stopped")
    deadlines.stop("never started")
    deadlines.start("restarted")
    loop.advance(7.9)
    assert late == []
    loop.advance(8)
    assert late == ["restarted"]


def test_one_timer_for_all() -> None:
    """Ten thousand waiting connections cost one timer handle."""
    loop, late = Loop(), list[int]()
    deadlines = Deadlines[int](loop, 5, late.append)
    for item in range(10_000):
        deadlines.start(item)
    assert loop.armed == 1
    loop.advance(5)
    assert len(late) == 10_000


def test_expiry_may_stop_others() -> None:
    """What one expiry stops does not expire in the same sweep, and what it starts is not lost."""
    loop, late = Loop(), list[str]()

    def expire(item: str) -> None:
        late.append(item)
        deadlines.stop("b")
        if item == "a":
            deadlines.start("c")

    deadlines = Deadlines[str](loop, 5, expire)
    deadlines.start("a")
    deadlines.start("b")
    loop.advance(5)
    assert late == ["a"]
    loop.advance(10)
    assert late == ["a", "c"]


def test_close() -> None:
    """After close nothing expires and no timer is left."""
    loop, late = Loop(), list[str]()
    deadlines = Deadlines[str](loop, 5, late.append)
    deadlines.start("a")
    deadlines.close()
    assert loop.armed == 0
    loop.advance(10)
    assert late == []
