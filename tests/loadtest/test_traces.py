"""The load test's users against `client_traces.json`: the README beside it tells the format."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.machine import reduce
from loadtest.places import write
from loadtest.states import initial
from tests.core.vectors import load

TRACES: list[dict[str, Any]] = load("client_traces.json")
MOMENT_MS = 0.001


class TraceClient:
    """The machine behind the words of the traces."""

    def __init__(self, position: str | None, draw: float) -> None:
        self._state = initial(position)
        self._draw = draw
        self._now = 0.0
        self._token: str | None = None
        self._socket = False
        self._loading = False
        self._out: list[dict[str, Any]] = []

    @property
    def state(self) -> str:
        name = self._state.public_name
        return name if name in ("idle", "live", "waiting", "stopped") else "connecting"

    @property
    def position(self) -> str | None:
        return write(self._state.position)

    def take(self) -> list[dict[str, Any]]:
        """What came out since it was asked last."""
        taken, self._out = self._out, []
        return taken

    def after(self, ms: float) -> None:
        """Time passes; whatever falls due on the way is done."""
        end = self._now + ms
        while (at := self._state.wake_at) is not None and at <= end:
            self._now = max(self._now, at)
            self._step({"type": "tick"})
        self._now = end

    def feed(self, given: dict[str, Any]) -> None:
        ((word, value),) = given.items()
        self._step(self._event(word, value))
        self.after(0)

    def _event(self, word: str, value: Any) -> dict[str, Any]:
        state = self._state
        match word:
            case "start" | "close":
                return {"type": word}
            case "token":
                self._token = value
                return {"type": "token", "dial": state.dial}
            case "token_fails":
                return {"type": "tokenFailed", "dial": state.dial, "message": value}
            case "opened":
                return {"type": "open", "dial": state.dial}
            case "frame":
                return {"type": "frame", "dial": state.dial, "frame": value}
            case "closed":
                self._socket = False
                return {"type": "closed", "dial": state.dial, **value}
            case "loaded":
                self._loading = False
                return {"type": "loaded", "load": state.loads}
            case "load_fails":
                self._loading = False
                return {"type": "loadFailed", "load": state.loads, "message": value}
            case "late" if value == "loaded":
                return {"type": "loaded", "load": state.loads - 1}
            case "late":
                return {"type": value, "dial": state.dial - 1, "code": 1006, "reason": ""}
        raise AssertionError(f"no word of the traces: {word}")

    def _step(self, event: dict[str, Any]) -> None:
        self._state, effects = reduce(self._state, event, self._now, self._draw)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: dict[str, Any]) -> None:
        match effect["type"]:
            case "token":
                self._out.append({"ask_token": True})
            case "dial":
                assert not self._socket, "two sockets at once"
                self._socket = True
                self._out.append({"connect": True})
            case "hello":
                members = {"token": self._token, "position": effect["position"]}
                said = {name: value for name, value in members.items() if value is not None}
                self._out.append({"send": {"type": "hello", **said}})
            case "send":
                self._out.append({"send": effect["frame"]})
            case "load":
                assert not self._loading, "two fetches at once"
                self._loading = True
                self._out.append({"load": {"reason": effect["reason"], "missed": effect["missed"]}})
            case "deliver":
                self._out.append({"deliver": effect["event"]})
            case "report":
                self._out.append({"report": effect["code"]})
            case "drop":
                self._drop()
            case "abort":
                self._abort()
            case "stop":
                self._drop()
                self._abort()

    def _drop(self) -> None:
        if self._socket:
            self._out.append({"drop": True})
        self._socket = False

    def _abort(self) -> None:
        if self._loading:
            self._out.append({"abort_load": True})
        self._loading = False


def reports_last(out: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A report may stand anywhere among the rest."""
    return sorted(out, key=lambda item: "report" in item)


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["name"])
def test_a_trace(trace: dict[str, Any]) -> None:
    """What a page of the load test does is what every client does, whatever its random numbers are."""
    for draw in (0.25, 0.5, 0.999):
        client = TraceClient(trace["position"], draw)
        for index, step in enumerate(trace["steps"]):
            given = step.get("in", {})
            at = f"step {index}, {given or step['after']}, draw {draw}"
            window = given.get("retry_within_ms", given.get("load_within_ms"))
            if window is not None:
                client.after(window * draw - MOMENT_MS)
                assert client.take() == [], f"before its time: {at}"
                client.after(2 * MOMENT_MS)
            else:
                client.after(step["after"])
                if given:
                    client.feed(given)
            assert reports_last(client.take()) == reports_last(step["out"]), at
            if "state" in step:
                assert client.state == step["state"], at
            if "position" in step:
                assert client.position == step["position"], at
