"""The browser client's machine in Python: `reduce(state, event, now, random) -> (state, effects)`.

A load test tells the truth only as far as its users are the users: they keep their position by the same rules, wait by
the same rules, and give up by the same rules. So this is `web/machine.js` state by state, and both run the same traces
(`tests/vectors/sessions.json`). That file has the tables of states and the reasons; here stands only the Python.

Pure: no clock, random number, timer or socket. `now` is in milliseconds, `random` one number in [0, 1). Events and
effects are dictionaries of the shape the traces have; frames are as they came from JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from loadtest.load import give_load_up, load_due, load_failed, loaded
from loadtest.pacing import backoff, is_number, milliseconds
from loadtest.places import Places, log_of, parse, parse_part, write
from loadtest.states import (
    BASE_MS,
    CLOSE_RESTART,
    CLOSE_SILENT,
    CONNECT_MS,
    HEALTHY_MS,
    HELD_MAX,
    LOAD_MS,
    PROBE_AFTER_MS,
    PROBE_MS,
    SILENCE_MS,
    TOKEN_MS,
    Effect,
    Effects,
    Ending,
    Event,
    Handler,
    Held,
    Load,
    Name,
    State,
    Step,
)
from tidings_gateway.core.closing import ANY_OTHER, CLOSES, MAX_TOKEN_REFUSALS, ClientAction

_NOTHING: Final[Effects] = ()
_CLOSES: Final = {row.code: row for row in CLOSES}


def reduce(state: State, event: Event, now: float, random: float) -> Step:
    if event.get("dial", state.dial) != state.dial:
        return state, _NOTHING
    if "load" in event and not (state.loading and state.load is not None and state.load.id == event["load"]):
        return state, _NOTHING
    handler = _TABLE[state.name].get(event["type"])
    return handler(state, event, now, random) if handler is not None else (state, _NOTHING)


# The connection


def _start(state: State, _event: Event, now: float, _random: float) -> Step:
    return _authorize(replace(state, attempt=0, refusals=0), now)


def _authorize(state: State, now: float) -> Step:
    dial = state.dial + 1
    next_state = replace(state, name="authorizing", dial=dial, deadline=now + TOKEN_MS)
    return next_state, [{"type": "token", "dial": dial}]


def _dial(state: State, _event: Event, now: float, _random: float) -> Step:
    return replace(state, name="connecting", deadline=now + CONNECT_MS), [{"type": "dial", "dial": state.dial}]


def _greet(state: State, _event: Event, now: float, _random: float) -> Step:
    sent = state.position is not None
    greeting = replace(state, name="greeting", silence_ms=SILENCE_MS, deadline=now + SILENCE_MS, sent=sent)
    return greeting, [{"type": "hello", "position": write(state.position)}]


def _close(state: State, _event: Event, _now: float, _random: float) -> Step:
    return _stop(state, Ending(1000, "closed by the page"), _NOTHING)


def _aside(state: State, _event: Event, _now: float, _random: float) -> Step:
    drop: Effect = {"type": "drop", "code": 1000, "reason": "aside"}
    return _disconnect(state, Ending(1000, "the page was put aside"), None, [drop])


def _hurry(state: State, _event: Event, now: float, random: float) -> Step:
    if state.deadline is None:
        return _authorize(state, now)
    row = _CLOSES.get(state.last.code) if state.last is not None else None
    if row is not None and row.retry_ms is not None:
        return state, _NOTHING
    return replace(state, deadline=min(state.deadline, now + random * BASE_MS)), _NOTHING


def _probe(state: State, event: Event, now: float, _random: float) -> Step:
    deadline = float("inf") if state.deadline is None else state.deadline
    silent_ms = now - (deadline - state.silence_ms)
    if not event.get("token") or deadline <= now + PROBE_MS or silent_ms < PROBE_AFTER_MS:
        return state, _NOTHING
    return replace(state, deadline=now + PROBE_MS), [{"type": "probe"}]


def _token_failed(state: State, event: Event, now: float, random: float) -> Step:
    report = {"type": "report", "code": "token", "message": event["message"]}
    return _lose(state, Ending(CLOSE_RESTART, "no token"), now, random, [report])


def _closed(state: State, event: Event, now: float, random: float) -> Step:
    code = event["code"]
    if state.goodbye is not None and code in (1005, 1006):
        code = state.goodbye[0]
    first = state.name == "connecting" and not state.known and state.attempt == 0
    diagnosed: Effects = [{"type": "diagnose"}] if first else _NOTHING
    return _lose(state, Ending(code, event.get("reason") or ""), now, random, diagnosed)


def _restart(state: State, code: str, message: str, now: float, random: float) -> Step:
    effects: Effects = [
        {"type": "drop", "code": CLOSE_RESTART, "reason": code},
        {"type": "report", "code": code, "message": message},
    ]
    return _lose(state, Ending(CLOSE_RESTART, code), now, random, effects)


def _lose(state: State, last: Ending, now: float, random: float, effects: Effects) -> Step:
    row = _CLOSES.get(last.code)
    action = row.client if row is not None else ANY_OTHER
    refusals = state.refusals + (action is ClientAction.NEW_TOKEN)
    told = row.report if row is not None else ""
    if not told and refusals >= MAX_TOKEN_REFUSALS:
        told = "fresh tokens were refused too"
    if told:
        report: Effect = {"type": "report", "code": "close", "message": told, "close": last._asdict()}
        effects = [*effects, report]
    if action in (ClientAction.STOP, ClientAction.STAY_CLOSED) or refusals >= MAX_TOKEN_REFUSALS:
        return _stop(state, last, effects)

    healthy = state.welcomed_at is not None and now - state.welcomed_at >= HEALTHY_MS
    attempt = 0 if healthy else state.attempt
    asked = state.goodbye[1] if state.goodbye is not None and state.goodbye[0] == last.code else None
    listed = row.retry_ms if row is not None else None
    base = max(BASE_MS, asked if asked is not None else listed or 0)
    paused = action is ClientAction.JITTER
    window = base if paused else backoff(base, attempt)
    counted = replace(state, attempt=attempt if paused else attempt + 1, refusals=refusals)
    return _disconnect(counted, last, now + random * window, effects)


def _disconnect(state: State, last: Ending, deadline: float | None, effects: Effects) -> Step:
    owed = state.load is not None and state.load.phase == "resync"
    waiting = replace(
        state,
        name="waiting",
        deadline=deadline,
        last=last,
        load=None if owed else state.load,
        reached=None if owed else state.reached,
    )
    return _disconnected(waiting), effects


def _stop(state: State, last: Ending, effects: Effects) -> Step:
    stopped = replace(state, name="stopped", deadline=None, last=last, load=None, reached=None, held=())
    return _disconnected(stopped), [{"type": "stop"}, *effects]


def _disconnected(state: State) -> State:
    return replace(state, welcomed_at=None, session=None, goodbye=None, cursor=None)


def _tick(state: State, _event: Event, now: float, random: float) -> Step:
    load = state.load
    if state.held and not state.loading:
        (log, id, event), *held = state.held
        return _place(replace(state, held=tuple(held)), {log: id}), _deliver(event)
    if state.deadline is not None and state.deadline <= now:
        return _expire(state, now, random)
    if load is None or load.phase == "resync" or load.at > now:
        return state, _NOTHING
    if load.phase == "running":
        return give_load_up(state, f"load() took longer than {LOAD_MS} ms", now, random)
    number = state.loads + 1
    running = Load("running", now + LOAD_MS, load.reason, load.missed, number)
    effect = {"type": "load", "load": number, "reason": load.reason, "missed": load.missed}
    return replace(state, loads=number, load=running), [effect]


def _expire(state: State, now: float, random: float) -> Step:
    if state.name == "waiting":
        return _authorize(state, now)
    if state.name == "authorizing":
        return _token_failed(state, {"message": f"token() took longer than {TOKEN_MS} ms"}, now, random)
    reason = "no connection" if state.name == "connecting" else f"nothing heard for {state.silence_ms} ms"
    drop = {"type": "drop", "code": CLOSE_SILENT, "reason": reason}
    return _lose(state, Ending(CLOSE_SILENT, reason), now, random, [drop])


# Frames


def _frame(state: State, event: Event, now: float, random: float) -> Step:
    frame = event.get("frame")
    kind = frame.get("type") if isinstance(frame, Mapping) else None
    if not isinstance(frame, Mapping) or not isinstance(kind, str):
        return _restart(state, "malformed", "a frame is no JSON object with a type", now, random)
    heard = replace(state, deadline=now + state.silence_ms)
    handler = _FRAMES.get(kind)
    if handler is None:
        return heard, _NOTHING
    if kind not in ("goodbye", "error") and (kind == "welcome") != (state.name == "greeting"):
        return _restart(state, "malformed", f"{kind} came while {state.name}", now, random)
    return handler(heard, frame, now, random)


def _welcome(state: State, frame: Event, now: float, random: float) -> Step:
    start = parse(frame.get("position"))
    if start is None:
        return _restart(state, "malformed", "a welcome without a position", now, random)
    silence_ms = milliseconds(frame.get("heartbeat_ms"), 20_000) + milliseconds(frame.get("timeout_ms"), 10_000)
    welcomed = replace(
        state,
        name="replaying",
        silence_ms=silence_ms,
        deadline=now + silence_ms,
        welcomed_at=now,
        known=True,
        refusals=0,
        session={"id": str(frame.get("session") or ""), "user": str(frame.get("user") or "")},
    )
    if frame.get("resumed") is True and state.sent:
        cursor = {**start, **(state.position or {})}
        return _rebase(replace(welcomed, position=cursor), cursor, None)
    load = Load("resync") if state.sent else load_due(state, "start", None, 0, now, random)
    return _rebase(welcomed, start, load)


def _resync(state: State, frame: Event, now: float, random: float) -> Step:
    cursor = parse(frame.get("position"))
    if cursor is None:
        return _restart(state, "malformed", "a resync without a position", now, random)
    missed = frame.get("missed") if is_number(frame.get("missed")) else None
    within_ms = milliseconds(frame.get("refetch_ms"), 0)
    return _rebase(state, cursor, load_due(state, str(frame.get("reason")), missed, within_ms, now, random))


def _rebase(state: State, cursor: Places, load: Load | None) -> Step:
    effects: list[Effect] = [{"type": "abort"}] if state.loading else []
    for item in state.held:
        effects += _deliver(item.event)
    return replace(state, cursor=cursor, load=load, reached=cursor if load else None, held=()), effects


def _event_or_skip(state: State, frame: Event, now: float, random: float) -> Step:
    kind, id, topic = frame["type"], frame.get("id"), frame.get("topic")
    event: Effect | None = None
    if kind == "event":
        event = {
            "id": id,
            "type": str(frame.get("event")),
            "data": frame.get("data"),
            "time": frame.get("time"),
            "replay": frame.get("replay") is True,
            "topic": topic,
        }
        if id is None:
            return state, _deliver(event)
    at, log = parse_part(id), log_of(topic)
    if at is None or log is None or not isinstance(id, str):
        return _restart(state, "malformed", f"the id or topic of a {kind} frame is none", now, random)
    before = (state.cursor or {}).get(log)
    last = parse_part(before)
    if last is not None and (last.epoch != at.epoch or at.seq != last.seq + 1):
        if last.epoch == at.epoch and (at.seq < last.seq or id == before):
            return state, _NOTHING
        return _restart(state, "gap", f"{id} came after {before}", now, random)
    heard = replace(state, cursor={**(state.cursor or {}), log: id})
    if not state.loading and not state.held:
        return _place(heard, {log: id}), _deliver(event)
    holding = replace(heard, held=(*state.held, Held(log, id, event)))
    if len(holding.held) <= HELD_MAX or not state.loading:
        return holding, _NOTHING
    return give_load_up(holding, f"more than {HELD_MAX} events came during one load()", now, random)


def _place(state: State, parts: Places) -> State:
    if state.load is None:
        return replace(state, position={**(state.position or {}), **parts})
    return replace(state, reached={**(state.reached or {}), **parts})


def _deliver(event: Effect | None) -> Effects:
    return _NOTHING if event is None else [{"type": "deliver", "event": event}]


def _synced(state: State, frame: Event, now: float, random: float) -> Step:
    load = state.load
    if load is not None and load.phase == "resync":
        load = load_due(state, "start", None, 0, now, random)
    return _compare(replace(state, name="live", load=load), frame, now, random, _NOTHING)


def _heartbeat(state: State, frame: Event, now: float, random: float) -> Step:
    answer = {"type": "send", "frame": {"type": "heartbeat", "position": write(state.cursor)}}
    return _compare(state, frame, now, random, [answer])


def _compare(state: State, frame: Event, now: float, random: float, effects: Effects) -> Step:
    ours = state.cursor or {}
    fresh: Places = {}
    for log, part in (parse(frame.get("position")) or {}).items():
        mine, theirs = parse_part(ours.get(log)), parse_part(part)
        if mine is None or theirs is None:
            fresh[log] = part
        elif mine.epoch != theirs.epoch or mine.seq < theirs.seq:
            return _restart(state, "gap", f"the gateway is at {part}, we are at {ours[log]}", now, random)
    if not fresh:
        return state, effects
    return _place(replace(state, cursor={**ours, **fresh}), fresh), effects


def _goodbye(state: State, frame: Event, _now: float, _random: float) -> Step:
    asked = frame.get("retry_ms")
    retry_ms = milliseconds(asked, 0) if is_number(asked) else None
    return replace(state, goodbye=(frame.get("code", 0), retry_ms)), _NOTHING


def _error(state: State, frame: Event, _now: float, _random: float) -> Step:
    message = f"{frame.get('code')}: {frame.get('message')}"
    return state, [{"type": "report", "code": "server", "message": message}]


_LOADS: Final[dict[str, Handler]] = {"tick": _tick, "loaded": loaded, "loadFailed": load_failed}
_ALWAYS: Final[dict[str, Handler]] = {**_LOADS, "aside": _aside, "close": _close}
_CONNECTED: Final[dict[str, Handler]] = {**_ALWAYS, "frame": _frame, "closed": _closed}
_TABLE: Final[dict[Name, dict[str, Handler]]] = {
    "idle": {"start": _start, "close": _close},
    "authorizing": {**_ALWAYS, "token": _dial, "tokenFailed": _token_failed},
    "connecting": {**_ALWAYS, "open": _greet, "closed": _closed},
    "greeting": _CONNECTED,
    "replaying": {**_CONNECTED, "wake": _probe},
    "live": {**_CONNECTED, "wake": _probe},
    "waiting": {**_ALWAYS, "start": _start, "wake": _hurry},
    "stopped": {"start": _start},
}
_FRAMES: Final[dict[str, Handler]] = {
    "welcome": _welcome,
    "resync": _resync,
    "event": _event_or_skip,
    "skip": _event_or_skip,
    "synced": _synced,
    "heartbeat": _heartbeat,
    "goodbye": _goodbye,
    "error": _error,
}
