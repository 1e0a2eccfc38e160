"""The test client's own rules: it must notice what a gateway does wrong, and keep its position as the contract says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.follower import Follower

E = "epochepoch"


def _welcome(position: str, *, resumed: bool = False) -> dict[str, Any]:
    return {"type": "welcome", "resumed": resumed, "position": position}


def _event(seq: int, **members: Any) -> dict[str, Any]:
    return {"type": "event", "id": f"{E}.{seq}-{seq}", "event": "test", "data": seq, **members}


def _synced(seq: int, replayed: int) -> dict[str, Any]:
    return {"type": "synced", "position": f"{E}.{seq}-{seq}", "replayed": replayed}


def _follow(*frames: dict[str, Any], position: str | None = None) -> Follower:
    follower = Follower(position)
    follower.connected()
    for frame in frames:
        if follower.take(frame):
            follower.refetched()
    return follower


def test_a_right_conversation_has_no_violations() -> None:
    """Resume, replay, synced, live, heartbeat."""
    follower = _follow(
        _welcome(f"{E}.1-1", resumed=True),
        _event(2, replay=True),
        _synced(2, 1),
        {"type": "skip", "id": f"{E}.3-3"},
        _event(4),
        {"type": "heartbeat", "position": f"{E}.4-4"},
        position=f"{E}.1-1",
    )
    follower.check()
    assert follower.stored == f"{E}.4-4"
    assert [event.data for event in follower.events] == [2, 4]
    assert len(follower.chain) == 3


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        ([_event(1)], "before the welcome"),
        ([_welcome(f"{E}.1-1"), _welcome(f"{E}.1-1")], "second welcome"),
        ([_welcome(f"{E}.1-1"), _event(3)], "a hole"),
        ([_welcome(f"{E}.1-1"), _event(1)], "again"),
        ([_welcome("otherepoch.1-1"), _event(2)], "another epoch"),
        ([_welcome(f"{E}.1-1"), _synced(1, 0), _event(2, replay=True)], "after synced"),
        ([_welcome(f"{E}.1-1"), _synced(1, 0), _synced(1, 0)], "second synced"),
        ([_welcome(f"{E}.1-1"), _synced(1, 1)], "replayed"),
        ([_welcome(f"{E}.1-1"), _synced(2, 0)], "synced at"),
        ([_welcome(f"{E}.1-1"), {"type": "heartbeat", "position": f"{E}.2-2"}], "heartbeat at"),
    ],
)
def test_a_broken_promise_is_noticed(frames: list[dict[str, Any]], what: str) -> None:
    """Each way a gateway can break the contract leaves a sentence."""
    assert what in "; ".join(_follow(*frames).violations)


def test_an_unproved_position_must_be_answered_by_a_resync() -> None:
    """After `resumed:false` to a client that sent a position, the next frame is a resync to the same position."""
    wrong = _follow(_welcome(f"{E}.5-5"), _synced(5, 0), position=f"{E}.1-1")
    assert "where the resync" in wrong.violations[0]
    elsewhere = {"type": "resync", "reason": "trimmed", "position": f"{E}.6-6"}
    assert "resync to" in _follow(_welcome(f"{E}.5-5"), elsewhere, position=f"{E}.1-1").violations[0]


def test_the_position_is_held_back_until_the_page_has_its_state() -> None:
    """A reconnect before the refetch has succeeded sends the older position, or none."""
    follower = Follower(f"{E}.1-1")
    follower.connected()
    assert not follower.take(_welcome(f"{E}.5-5")), "waits for the resync, so that there is one refetch"
    assert follower.take({"type": "resync", "reason": "trimmed", "position": f"{E}.5-5"})
    follower.take(_event(6))
    assert follower.stored == f"{E}.1-1"
    follower.lost()
    assert (follower.stored, follower.position) == (f"{E}.1-1", f"{E}.1-1")

    fresh = Follower()
    fresh.connected()
    assert fresh.take(_welcome(f"{E}.5-5"))
    fresh.take(_event(6))
    fresh.lost()
    assert fresh.stored is None
