"""Whose turn it is to read the log."""

from __future__ import annotations

from tidings_gateway.core.healing import Healing


def queue(at_once: int, *items: str) -> Healing[str]:
    healing: Healing[str] = Healing(at_once)
    for item in items:
        healing.add(item)
    return healing


def test_in_order_and_only_so_many_at_once() -> None:
    """The next one's turn comes when one is done."""
    healing = queue(2, "a", "b", "c", "d")
    assert [healing.take() for _ in range(3)] == ["a", "b", None]
    assert healing.done("b")
    assert [healing.take() for _ in range(2)] == ["c", None]
    assert healing.under_way == 2
    assert list(healing.waiting) == ["d"]


def test_one_that_is_hurried_is_next() -> None:
    """One that does not wait is not touched."""
    healing = queue(1, "a", "b", "c")
    assert healing.take() == "a"
    healing.hurry("c")
    healing.hurry("a")
    healing.hurry("nobody")
    healing.done("a")
    assert healing.take() == "c"
    assert list(healing.waiting) == ["b"]


def test_added_twice_waits_once() -> None:
    """And keeps its place."""
    healing = queue(1, "a", "b", "a")
    assert list(healing.waiting) == ["a", "b"]


def test_whoever_goes_makes_room() -> None:
    """Whether it waited or was under way; what is not in here changes nothing."""
    healing = queue(1, "a", "b", "c")
    assert healing.take() == "a"
    assert not healing.discard("b")
    assert not healing.done("c")
    assert healing.discard("a")
    assert not healing.discard("a")
    assert healing.take() == "c"


def test_a_lost_link_ends_all_of_it() -> None:
    """Nobody waits, and nobody holds a place."""
    healing = queue(1, "a", "b")
    healing.take()
    healing.clear()
    assert healing.take() is None
    assert healing.under_way == 0
    healing.add("c")
    assert healing.take() == "c"
