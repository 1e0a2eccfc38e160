"""What a page of a load test does at each close code, against the gateway's own table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtest.machine import reduce
from loadtest.places import write
from loadtest.states import BASE_MS, CAP_MS, State, initial
from tests.core.vectors import load

TABLE: dict[str, Any] = load("close_codes.json")
POSITION = "abcdefgh.7-7"
RANDOM = 0.5


def ended(
    code: int, *, attempt: int = 0, goodbye: dict[str, Any] | None = None
) -> tuple[State, list[str], float | None]:
    """A live connection, `attempt` failures after the last healthy one, ends by `code`: the state, what the developer
    is told, and the wait in milliseconds."""
    state = initial(POSITION)
    events: list[dict[str, Any]] = [{"type": "start"}, {"type": "token"}, {"type": "open"}]
    frames: list[dict[str, Any]] = [
        {"type": "welcome", "resumed": True, "position": POSITION},
        {"type": "synced", "position": POSITION, "replayed": 0},
    ]
    frames += [goodbye] if goodbye else []
    for event in [*events, *({"type": "frame", "frame": frame} for frame in frames)]:
        state, _ = reduce(state, event, 0, RANDOM)
    state, effects = reduce(replace(state, attempt=attempt), {"type": "closed", "code": code}, 1, RANDOM)
    told = [effect["message"] for effect in effects if effect["type"] == "report"]
    return state, told, None if state.deadline is None else state.deadline - 1


@pytest.mark.parametrize("row", TABLE["closes"], ids=lambda row: f"{row['code']} {row['reason']}")
def test_a_row(row: dict[str, Any]) -> None:
    """The action, the window and the words of the table; and the position is kept, whatever the code."""
    state, told, wait_ms = ended(row["code"])
    assert write(state.position) == POSITION
    assert told == [row["report"]] * bool(row["report"])
    if not row["retryable"]:
        assert (state.name, wait_ms) == ("stopped", None)
        return
    window, paused = row["retry_ms"] or BASE_MS, row["client"] == "jitter"
    assert (state.name, wait_ms, state.attempt) == ("waiting", RANDOM * window, 0 if paused else 1)
    assert ended(row["code"], attempt=3)[2] == RANDOM * (window if paused else min(CAP_MS, window * 8))


@pytest.mark.parametrize("code", [1005, 1006, 1012])
def test_a_goodbye_tells_the_code_where_the_close_frame_was_lost(code: int) -> None:
    """Its code and its window count, also when a proxy or a dying process swallowed the close frame."""
    state, _, wait_ms = ended(code, goodbye={"type": "goodbye", "code": 1012, "retry_ms": 60_000})
    assert (state.last and state.last.code, wait_ms, state.attempt) == (1012, RANDOM * 60_000, 0)


def test_a_goodbye_for_another_code_counts_for_nothing() -> None:
    """A window is obeyed for the close it was meant for, or the table's own holds."""
    assert ended(1013, goodbye={"type": "goodbye", "code": 1012, "retry_ms": 60_000})[2] == RANDOM * 5000
    assert ended(1013, goodbye={"type": "goodbye", "code": 1013, "retry_ms": 60_000})[2] == RANDOM * 60_000


def test_any_other_code_is_backoff() -> None:
    """In no table: it comes back."""
    assert ended(4999)[2] == RANDOM * BASE_MS
