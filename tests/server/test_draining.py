"""What the rest of the process sees of the drain."""

from __future__ import annotations

from tidings_gateway.server.draining import Draining, Phase


def test_phases() -> None:
    """Ready until the grace begins; refusing from the window on; never back."""
    draining = Draining()
    assert (draining.started, draining.refusing) == (False, False)
    draining.enter(Phase.GRACE)
    assert (draining.started, draining.refusing) == (True, False)
    draining.enter(Phase.WINDOW)
    assert (draining.started, draining.refusing) == (True, True)
    draining.enter(Phase.GRACE)
    assert draining.phase is Phase.WINDOW


def test_listeners_hear_the_window_once() -> None:
    """Who waits for the window is told once, when it opens; who left is not; who comes later is told at once."""
    draining, heard = Draining(), list[str]()

    def stays() -> None:
        heard.append("stays")

    def leaves() -> None:
        heard.append("leaves")

    draining.add_listener(stays)
    draining.add_listener(leaves)
    draining.remove_listener(leaves)
    draining.enter(Phase.GRACE)
    assert heard == []
    draining.enter(Phase.WINDOW)
    draining.enter(Phase.STOPPING)
    assert heard == ["stays"]
    draining.add_listener(lambda: heard.append("late"))
    assert heard == ["stays", "late"]


def test_listeners_may_come_and_go_meanwhile() -> None:
    """A listener may remove itself or add another while it is being told."""
    draining, heard = Draining(), list[str]()

    def first() -> None:
        draining.remove_listener(first)
        draining.add_listener(lambda: heard.append("second"))
        heard.append("first")

    draining.add_listener(first)
    draining.enter(Phase.WINDOW)
    assert sorted(heard) == ["first", "second"]


def test_stopping_without_a_window() -> None:
    """A forced end tells the waiting too."""
    draining, heard = Draining(), list[str]()
    draining.add_listener(lambda: heard.append("x"))
    draining.enter(Phase.STOPPING)
    assert heard == ["x"]
