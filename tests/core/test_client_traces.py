"""The gateway's side of `client_traces.json`: a client is tested with nothing that no gateway would say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.core.vectors import load
from tidings.log.page import ResyncReason
from tidings.log.record import DurableRecord
from tidings_gateway.core import frames
from tidings_gateway.core.closing import CLOSES, MAX_TOKEN_REFUSALS, ClientAction, action_for
from tidings_gateway.core.frames import Frame, Heartbeat, Hello, check_body, ephemeral_frame, event_frame, parse_client

TRACES: list[dict[str, Any]] = load("client_traces.json")
LIMIT = 65_536

BASE_MS = 500
CAP_MS = 30_000
HEALTHY_MS = 10_000
LONGEST_MS = 3_600_000

INPUTS = {"start", "close", "token", "token_fails", "opened", "closed", "frame", "loaded", "load_fails", "late"}
WINDOWS = {"retry_within_ms", "load_within_ms"}
OUTPUTS = {"ask_token", "connect", "drop", "send", "load", "abort_load", "deliver", "report"}

every_trace = pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["name"])


def frames_of_ours(trace: dict[str, Any]) -> Iterator[Any]:
    for step in trace["steps"]:
        if "frame" in step.get("in", {}) and not step.get("foreign", False):
            yield step["in"]["frame"]


def build(frame: dict[str, Any]) -> Frame:
    """What the gateway would send, made from the members of a frame."""
    kind, members = frame["type"], {name: value for name, value in frame.items() if name != "type"}
    if "position" in members:
        members["position"] = members["position"].encode()
    match kind:
        case "event":
            kept = {name: value for name, value in members.items() if name not in ("id", "replay")}
            body = json.dumps(kept, separators=(",", ":")).encode()
            assert check_body(body, LIMIT) is not None
            if "id" not in members:
                return ephemeral_frame(body)
            return event_frame(DurableRecord(b"", members["id"].encode(), body), replay=members.get("replay", False))
        case "skip":
            return frames.skip_frame(members["id"].encode())
        case "welcome":
            return frames.welcome(server_time_ms=members.pop("server_time"), **members)
        case "resync":
            return frames.resync(ResyncReason(members.pop("reason")), members.pop("position"), **members)
        case "synced" | "heartbeat" | "goodbye" | "error":
            made: Frame = getattr(frames, kind)(**members)
            return made
    raise AssertionError(f"no builder for {kind}")


@every_trace
def test_the_format_is_kept(trace: dict[str, Any]) -> None:
    """Only the words that the README lists, and the times where they belong."""
    assert set(trace) == {"name", "why", "position", "steps"}
    for step in trace["steps"]:
        assert set(step) <= {"after", "in", "foreign", "out", "state", "position"}
        (word,) = step.get("in") or {None}
        assert word is None or word in INPUTS | WINDOWS
        assert ("after" in step) != (word in WINDOWS)
        assert all(len(item) == 1 and set(item) <= OUTPUTS for item in step["out"])
        assert step.get("state", "live") in ("idle", "connecting", "live", "waiting", "stopped")


@every_trace
def test_each_server_frame_is_one_that_this_gateway_builds(trace: dict[str, Any]) -> None:
    """Member by member; what is marked as foreign is not."""
    for frame in frames_of_ours(trace):
        assert orjson.loads(build(frame).payload) == frame


@every_trace
def test_each_client_frame_is_one_that_this_gateway_takes(trace: dict[str, Any]) -> None:
    """A hello with the token and the position, or a heartbeat; nothing is read differently from how it was meant."""
    for item in (item for step in trace["steps"] for item in step["out"] if "send" in item):
        frame = item["send"]
        match parse_client(json.dumps(frame)):
            case Hello(token, position, replay):
                assert (token, position, replay) == (frame.get("token"), frame.get("position"), 0)
            case Heartbeat(position):
                assert position == frame["position"]
            case other:
                raise AssertionError(f"{other} is nothing a client says by itself")


@every_trace
def test_what_follows_a_close_is_what_the_table_says(trace: dict[str, Any]) -> None:
    """Stopped, or a retry in the window that the action, the goodbye and the failures so far add up to."""
    now = welcomed_at = attempt = refusals = 0
    welcomed = False
    goodbye: dict[str, Any] | None = None
    window: float | None = None
    for step in trace["steps"]:
        now += step.get("after", 0)
        given = step.get("in", {})
        if "retry_within_ms" in given and window is not None:
            assert given["retry_within_ms"] == window
        window = None
        if "start" in given:
            attempt = refusals = 0 if {"ask_token": True} in step["out"] else attempt
        if given.get("frame") and isinstance(given["frame"], dict):
            match given["frame"].get("type"):
                case "welcome":
                    welcomed, welcomed_at, refusals = True, now, 0
                case "goodbye":
                    goodbye = given["frame"]
        lost = given.get("closed")
        if lost is None and {"drop": True} not in step["out"] and {"report": "token"} not in step["out"]:
            continue
        code = lost["code"] if lost else 4408  # what a client finds out by itself is treated as a dead path
        if goodbye is not None and code in (1005, 1006):
            code = goodbye["code"]
        action = action_for(code)
        row = next((row for row in CLOSES if row.code == code), None)
        refusals += action is ClientAction.NEW_TOKEN
        if (
            action in (ClientAction.STOP, ClientAction.STAY_CLOSED)
            or refusals == MAX_TOKEN_REFUSALS
            or "close" in given
        ):
            assert step["state"] == "stopped"
        else:
            assert step.get("state", "waiting") == "waiting"
            if welcomed and now - welcomed_at >= HEALTHY_MS:
                attempt = 0
            asked = goodbye["retry_ms"] if goodbye is not None and goodbye["code"] == code else None
            base = max(BASE_MS, min(LONGEST_MS, asked if asked is not None else (row and row.retry_ms) or 0))
            if action is ClientAction.JITTER:
                window = base
            else:
                window = min(max(base, CAP_MS), base * 2**attempt)
                attempt += 1
        if row is not None and lost is not None and row.report:
            assert {"report": "close"} in step["out"]
        welcomed, goodbye = False, None


def test_every_close_code_has_a_trace() -> None:
    """A new row in the table without a trace would be a rule that no client is held to."""
    traced = {
        step["in"]["closed"]["code"] for trace in TRACES for step in trace["steps"] if "closed" in step.get("in", {})
    }
    assert {row.code for row in CLOSES} <= traced
    assert len(TRACES) == len({trace["name"] for trace in TRACES})
