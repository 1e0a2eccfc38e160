"""The idle connections of a blocking publisher."""

from __future__ import annotations

from tidings.publishing.pool import Pool


def make(bad: set[str]) -> tuple[Pool[str], list[str]]:
    ended: list[str] = []
    return Pool(2, lambda connection: connection not in bad, ended.append), ended


def test_the_one_used_last_comes_first() -> None:
    """So that those a burst needed can age and be found dead."""
    pool, _ = make(set())
    assert pool.take() is None
    assert pool.give("one")
    assert pool.give("two")
    assert [pool.take(), pool.take(), pool.take()] == ["two", "one", None]


def test_a_dead_connection_is_ended_and_passed_over() -> None:
    """The caller gets a good one or none."""
    pool, ended = make({"two", "three"})
    for name in ("one", "two", "three"):
        pool.give(name)
    assert pool.take() == "one"
    assert ended == ["three", "two"]


def test_draining_ends_them_all() -> None:
    """And a closed pool keeps nothing."""
    pool, ended = make(set())
    pool.give("one")
    pool.closed = True
    assert not pool.give("two")
    pool.drain()
    assert ended == ["one"]
    assert pool.take() is None


def test_connections_to_a_server_are_for_that_server() -> None:
    """And those to a server that is no longer known are ended, not kept."""
    pool, ended = make(set())
    assert pool.take("a", frozenset("ab")) is None
    assert pool.give("to a", "a")
    assert pool.give("to b", "b")
    assert not pool.give("to c", "c")
    assert pool.take("c", frozenset("bc")) is None
    assert ended == ["to a"]
    assert pool.take("b", frozenset("bc")) == "to b"
    pool.give("to b", "b")
    pool.drop("b")
    assert ended == ["to a", "to b"]
