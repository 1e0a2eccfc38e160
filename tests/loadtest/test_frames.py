"""The load test's pages and `tests/vectors/frames.json`: they understand a gateway, and a gateway them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.machine import reduce
from loadtest.places import parse, parse_part
from loadtest.states import State, initial
from tests.core.vectors import load

VECTORS: dict[str, Any] = load("frames.json")
DIALLED: list[dict[str, Any]] = [{"type": "start"}, {"type": "token", "dial": 1}, {"type": "open", "dial": 1}]
POSITIONS = [
    row for row in VECTORS["client"] if "hello" in row and parse((row["hello"] or {}).get("position")) is not None
]


def fed(state: State, *events: dict[str, Any]) -> tuple[State, list[dict[str, Any]]]:
    """The state after them, and the effects of the last."""
    effects: list[dict[str, Any]] = []
    for event in events:
        state, last = reduce(state, event, 1, 0)
        effects = list(last)
    return state, effects


@pytest.mark.parametrize("row", VECTORS["server"], ids=lambda row: row["name"])
def test_what_a_gateway_sends_is_understood(row: dict[str, Any]) -> None:
    """No frame of the vectors is taken for a fault, and an event is handed over with all it has."""
    frame = json.loads(row["frame"])
    state, _ = fed(initial(), *DIALLED)
    if frame["type"] != "welcome":
        part = parse_part(frame.get("id") or frame.get("position"))
        # As if the session had begun right before this frame.
        before = f"{part.epoch}.{max(0, part.seq - ('id' in frame))}-0" if part else "k3J9xQ2m.0-0"
        welcome = {"type": "welcome", "resumed": False, "position": before, "heartbeat_ms": 1, "timeout_ms": 1}
        state, _ = fed(state, {"type": "frame", "dial": 1, "frame": welcome})
    state, effects = fed(state, {"type": "frame", "dial": 1, "frame": frame})
    assert state.name != "waiting"
    if frame["type"] == "event":
        [handed] = effects
        assert handed["event"] == {
            "id": frame.get("id"),
            "type": frame["event"],
            "data": frame["data"],
            "time": frame["time"],
            "replay": frame.get("replay", False),
            "topic": frame.get("topic"),
        }
    if frame["type"] == "welcome":
        assert state.session is not None
        assert state.session["user"] == frame["user"]


@pytest.mark.parametrize("row", POSITIONS, ids=lambda row: row["name"])
def test_a_position_goes_out_as_it_came_in(row: dict[str, Any]) -> None:
    """The position of each hello that a gateway takes."""
    _, effects = fed(initial(json.loads(row["text"])["position"]), *DIALLED)
    assert effects == [{"type": "hello", "position": row["hello"]["position"]}]


def test_the_vectors_are_there() -> None:
    """Neither of the two tests above is empty."""
    assert len(VECTORS["server"]) > 10
    assert POSITIONS
