"""The page's own fetch of its state: when it is due, and what becomes of it (`web/load.js`)."""

from __future__ import annotations

from dataclasses import replace

from loadtest.pacing import backoff
from loadtest.states import BASE_MS, Event, Load, State, Step


def load_due(state: State, reason: str, missed: float | None, within_ms: float, now: float, random: float) -> Load:
    failures = state.load_failures
    window = max(within_ms, 0 if failures == 0 else backoff(BASE_MS, failures - 1))
    return Load("due", now + random * window, reason, missed)


def loaded(state: State, _event: Event, _now: float, _random: float) -> Step:
    return replace(state, position=state.reached, reached=None, load=None, load_failures=0), ()


def load_failed(state: State, event: Event, now: float, random: float) -> Step:
    load = state.load
    if load is None or load.phase != "running":
        return state, ()
    failed = replace(state, load_failures=state.load_failures + 1)
    again = load_due(failed, load.reason, load.missed, 0, now, random)
    return replace(failed, load=again), [{"type": "report", "code": "load", "message": event["message"]}]


def give_load_up(state: State, message: str, now: float, random: float) -> Step:
    given_up, effects = load_failed(state, {"message": message}, now, random)
    return given_up, [{"type": "abort"}, *effects]
