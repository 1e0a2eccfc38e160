"""The load test's users against the traces that the browser client's machine runs: they are the same client."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.machine import reduce
from loadtest.places import parse, write
from loadtest.states import HELD_MAX, State, initial
from tests.core.vectors import load

SESSIONS: list[dict[str, Any]] = load("sessions.json")


def view(state: State) -> dict[str, Any]:
    """What a trace may say of a state, in its words."""
    wake = state.wake_at
    return {
        "name": state.name,
        "attempt": state.attempt,
        "refusals": state.refusals,
        "silence_ms": state.silence_ms,
        "known": state.known,
        "session": state.session,
        "goodbye": None if state.goodbye is None else dict(zip(("code", "retry_ms"), state.goodbye, strict=True)),
        "last": None if state.last is None else state.last._asdict(),
        "dial": state.dial,
        "deadline": state.deadline,
        "loads": state.loads,
        "load_failures": state.load_failures,
        "reached": state.reached,
        "cursor": state.cursor,
        "held": [item._asdict() for item in state.held],
        "position": write(state.position),
        "load": state.load.phase if state.load else None,
        "public": state.public_name,
        "wake": "now" if wake == float("-inf") else wake,
    }


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session["name"])
def test_a_trace(session: dict[str, Any]) -> None:
    """Every step of every trace has the effects and the state that the browser client's machine has."""
    state = initial(session["position"])
    for index, step in enumerate(session["steps"]):
        state, effects = reduce(state, step["event"], step["now"], step["random"])
        at = f"step {index}, {step['event']}"
        assert list(effects) == step["effects"], at
        seen = view(state)
        assert {name: seen[name] for name in step["state"]} == step["state"], at


def test_what_is_held_is_bounded() -> None:
    """One event more than the bound during a load: it is given up, and its events are handed over."""
    state = initial()

    def step(event: dict[str, Any]) -> list[str]:
        nonlocal state
        state, effects = reduce(state, event, 0, 0.5)
        return [effect["type"] for effect in effects]

    for event in ({"type": "start"}, {"type": "token", "dial": 1}, {"type": "open", "dial": 1}):
        step(event)
    step({"type": "frame", "frame": {"type": "welcome", "resumed": False, "position": "abcdefgh.0-0"}})
    assert step({"type": "tick"}) == ["load"]
    for seq in range(1, HELD_MAX + 1):
        assert step({"type": "frame", "frame": {"type": "event", "id": f"abcdefgh.{seq}-1", "event": "x"}}) == []
    over = {"type": "event", "id": f"abcdefgh.{HELD_MAX + 1}-1", "event": "x"}
    assert step({"type": "frame", "frame": over}) == ["abort", "report"]
    delivered = 0
    while state.wake_at == float("-inf"):
        delivered += step({"type": "tick"}) == ["deliver"]
    assert delivered == HELD_MAX + 1
    assert state.position is None


FRAMES = [
    {"type": "welcome", "resumed": True, "position": "abcdefgh.1-1", "session": "s", "user": "u"},
    {"type": "welcome", "resumed": False, "position": "abcdefgh.3-1", "heartbeat_ms": 20_000, "timeout_ms": 10_000},
    {"type": "welcome"},
    {"type": "resync", "reason": "trimmed", "position": "abcdefgh.5-1", "missed": 3, "refetch_ms": 100},
    *({"type": "event", "id": f"abcdefgh.{seq}-1", "event": "x", "data": seq, "time": 0} for seq in range(1, 8)),
    {"type": "event", "event": "x", "data": "ephemeral", "time": 0},
    {"type": "skip", "id": "abcdefgh.2-1"},
    {"type": "synced", "position": "abcdefgh.3-1", "replayed": 0},
    {"type": "heartbeat", "position": "abcdefgh.3-1"},
    {"type": "goodbye", "code": 1012, "retry_ms": 5000},
    {"type": "error", "code": "x", "message": "y"},
    {"type": "unheard of"},
    None,
]
EVENTS = st.one_of(
    st.sampled_from(["start", "tick", "tick", "loaded", "close"]).map(lambda name: {"type": name}),
    st.sampled_from(["token", "open"]).map(lambda name: {"type": name}),
    st.sampled_from(["tokenFailed", "loadFailed"]).map(lambda name: {"type": name, "message": "m"}),
    st.sampled_from(FRAMES).map(lambda frame: {"type": "frame", "frame": frame}),
    st.sampled_from([1000, 1006, 1012, 1013, 4401, 4403, 4999]).map(
        lambda code: {"type": "closed", "code": code, "reason": ""}
    ),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0, 40_000), st.floats(0, 1, exclude_max=True)), max_size=60))
def test_the_position_is_never_ahead_of_the_page(walk: list[tuple[dict[str, Any], float, float]]) -> None:
    """In whatever order things happen: no error; a state that is neither idle nor stopped has a deadline; and the
    position moves only to what was handed over, was skipped, was proved by a welcome, or was fetched by a load."""
    state, now = initial("abcdefgh.1-1"), 0.0
    for event, after_ms, random in walk:
        now += after_ms
        before = state
        state, effects = reduce(state, event, now, random)
        assert (state.deadline is None) == (state.name in ("idle", "stopped")), event
        assert all(effect["type"] != "load" or state.loading for effect in effects)
        if state.position == before.position:
            continue
        delivered = [effect["event"]["id"] for effect in effects if effect["type"] == "deliver"]
        frame = event.get("frame") or {}
        allowed = [*delivered, frame.get("id"), frame.get("position") if frame.get("resumed") else None]
        allowed += [write(before.reached)] if event["type"] == "loaded" else []
        allowed += [item.id for item in before.held]
        allowed += [write(before.position)]
        assert parse(write(state.position)) == state.position
        assert (state.position or {}).get("") in allowed, event
