"""Every frame of the WebSocket contract: what the server sends is built here, what a client sends is parsed here.

A durable or ephemeral event is stored as the very JSON object that goes on the wire, less its first members. So a
server frame is a fixed prefix, the position, and the stored body without its opening brace: nothing is decoded or
encoded again, for no session. `check_body` is what makes that safe. It runs once per record and lets nothing through
that could reach into the frame around it: a second ``id``, a member named twice, a line break.

A frame is built once per record and shared by every session it goes to, with its WebSocket header, made on first use.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

import orjson

from tidings.errors import TidingsError
from tidings.log.page import ResyncReason
from tidings.log.record import DurableRecord

MAX_CLIENT_FRAME_BYTES: Final = 8192
MAX_REASON_BYTES: Final = 123
"""What fits into a Close frame beside the code (RFC 6455, section 5.5)."""

EVENT_OVERHEAD_BYTES: Final = 112
"""More than a frame ever adds to the body it carries, WebSocket header included."""

_EVENT_TYPE = re.compile(r"[A-Za-z0-9._:/-]{1,128}", re.ASCII)
_BODY_MEMBERS: Final = frozenset(("event", "data", "time", "key"))
_MAX_SAFE_INTEGER: Final = 2**53 - 1

_EVENT: Final = b'{"type":"event","id":"'
_LIVE: Final = b'",'
_REPLAY: Final = b'","replay":true,'
_EPHEMERAL: Final = b'{"type":"event",'


class Frame:
    """One encoded server frame. Never changed once built: sessions share it.

    `position` is set for an event or a skip of the log, and only for those: sending it moves the session there.
    `coalesce` is set for ephemerals, and only for those: a newer frame with the same value may replace this one while
    it waits. A frame with neither is a control frame. `size` is the payload's, in bytes.
    """

    __slots__ = ("_websocket", "coalesce", "payload", "position", "size")

    def __init__(self, payload: bytes, position: bytes | None = None, coalesce: bytes | None = None) -> None:
        self.payload = payload
        self.position = position
        self.coalesce = coalesce
        self.size = len(payload)
        self._websocket: bytes | None = None

    def websocket(self) -> bytes:
        """The frame as one unmasked, final text frame (RFC 6455, section 5.2), built on the first call."""
        wire = self._websocket
        if wire is None:
            size = self.size
            if size < 126:
                header = bytes((0x81, size))
            elif size < 65536:
                header = b"\x81\x7e" + size.to_bytes(2, "big")
            else:
                header = b"\x81\x7f" + size.to_bytes(8, "big")
            wire = self._websocket = header + self.payload
        return wire

    def __repr__(self) -> str:
        return f"Frame({self.payload!r})"


# What is stored, on its way out.


class CheckedBody(NamedTuple):
    """What the gateway needs to know of a body; the body itself goes out as it is."""

    event: str
    key: str | None
    time: int
    """The publisher's wall clock, in ms."""


def check_body(body: bytes, max_bytes: int) -> CheckedBody | None:
    """None when the body must not be sent: too large, not strict JSON, not exactly the members ``event``, ``data``,
    ``time`` and perhaps ``key``, one of them twice or of a wrong type, or a raw CR or LF between its tokens (an SSE
    ``data:`` line could not carry it)."""
    if len(body) > max_bytes or body[:1] != b"{":
        return None
    try:
        value = orjson.loads(body)
        # orjson keeps the last of two equal names without a word. Where its own encoding gives the same bytes back,
        # which is how Tidings publishes, there were no two; anything else is looked at pair by pair.
        canonical = orjson.dumps(value) == body
    except (ValueError, TypeError):
        return None
    if not canonical and not _is_plain_object(body):
        return None
    size = len(value)
    if size == 3:
        key = None
    elif size == 4 and type(value.get("key")) is str:
        key = value["key"]
    else:
        return None
    event, time = value.get("event"), value.get("time")
    if type(event) is not str or _EVENT_TYPE.fullmatch(event) is None or "data" not in value:
        return None
    if type(time) is not int or not 0 <= time <= _MAX_SAFE_INTEGER:
        return None
    return CheckedBody(event, key, time)


def _is_plain_object(body: bytes) -> bool:
    """Whether the outermost object, known to be valid JSON, names each member once and stays on one line."""
    if b"\n" in body or b"\r" in body:
        return False
    try:
        pairs = json.loads(body, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    names = [name for name, _ in pairs]
    return len(names) == len(set(names))


def event_frame(record: DurableRecord, *, replay: bool = False) -> Frame:
    """The frame of a log entry whose body passed `check_body`. `replay` marks catch-up after `welcome`."""
    position = record.position
    return Frame(b"".join((_EVENT, position, _REPLAY if replay else _LIVE, record.body[1:])), position)


def ephemeral_frame(body: bytes, checked: CheckedBody | None = None) -> Frame:
    """The frame of an event that is not stored. `checked` is the body's `check_body`, if the caller has it at hand;
    otherwise the body must be one that passes. Raises ValueError for one that does not."""
    if checked is None:
        checked = check_body(body, len(body))
        if checked is None:
            raise ValueError("the body did not pass check_body")
    # The type's grammar has no NUL, so that no type with a key looks like another type.
    identity = checked.event if checked.key is None else f"{checked.event}\0{checked.key}"
    return Frame(_EPHEMERAL + body[1:], coalesce=identity.encode())


def skip_frame(position: bytes) -> Frame:
    """Stands in for an entry that cannot be delivered, so that the ids still rise by one."""
    return Frame(b'{"type":"skip","id":"%b"}' % position, position)


# What the gateway itself has to say.


def welcome(
    *,
    session: str,
    user: str,
    resumed: bool,
    position: bytes,
    heartbeat_ms: int,
    timeout_ms: int,
    server_time_ms: int,
    expires_in_ms: int | None,
) -> Frame:
    return _control(
        {
            "type": "welcome",
            "session": session,
            "user": user,
            "resumed": resumed,
            "position": position.decode("ascii"),
            "heartbeat_ms": heartbeat_ms,
            "timeout_ms": timeout_ms,
            "server_time": server_time_ms,
            "expires_in_ms": expires_in_ms,
        }
    )


def resync(reason: ResyncReason, position: bytes, missed: int | None, *, refetch_ms: int = 0) -> Frame:
    return _control(
        {
            "type": "resync",
            "reason": reason,
            "position": position.decode("ascii"),
            "missed": missed,
            "refetch_ms": refetch_ms,
        }
    )


def synced(position: bytes, replayed: int) -> Frame:
    return _control({"type": "synced", "position": position.decode("ascii"), "replayed": replayed})


def heartbeat(position: bytes) -> Frame:
    return Frame(b'{"type":"heartbeat","position":"%b"}' % position)


def goodbye(code: int, retry_ms: int) -> Frame:
    return _control({"type": "goodbye", "code": code, "retry_ms": retry_ms})


def auth(expires_in_ms: int | None) -> Frame:
    return _control({"type": "auth", "expires_in_ms": expires_in_ms})


def error(code: str, message: str) -> Frame:
    return _control({"type": "error", "code": code, "message": message})


def _control(members: dict[str, object]) -> Frame:
    return Frame(orjson.dumps(members))


# What a client has to say.


class Hello(NamedTuple):
    """`position` as it came: whether it is one is for the session to judge, since a bad one means resync, not 4400.
    `replay` is not yet clamped to the retention."""

    token: str | None = None
    position: str | None = None
    replay: int = 0


class Heartbeat(NamedTuple):
    position: str | None = None
    """For the curious; nothing is decided by it."""


class Auth(NamedTuple):
    token: str


class Read(NamedTuple):
    id: str


ClientFrame = Hello | Heartbeat | Auth | Read


class Malformed(TidingsError):
    """Not a frame of the contract: close 4400. `reason` fits a Close frame and repeats nothing the client sent."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_client(text: str | bytes) -> ClientFrame:
    """Parse one text message of a client. Raises `Malformed`, and nothing else, whatever the message.

    Unknown members are ignored; a member that is null is treated as absent.
    """
    size = len(text)
    if isinstance(text, str) and size * 4 > MAX_CLIENT_FRAME_BYTES:
        size = len(text.encode("utf-8", "replace"))
    if size > MAX_CLIENT_FRAME_BYTES:
        raise Malformed("frame: larger than 8192 bytes")
    try:
        members = orjson.loads(text)
    except ValueError:
        raise Malformed("frame: not JSON") from None
    if type(members) is not dict:
        raise Malformed("frame: not an object")
    match members.get("type"):
        case "heartbeat":
            return Heartbeat(_string(members, "position"))
        case "hello":
            return Hello(_string(members, "token"), _string(members, "position"), _count(members, "replay"))
        case "auth":
            return Auth(_required(members, "token"))
        case "read":
            return Read(_required(members, "id"))
        case str():
            raise Malformed("type: unknown")
        case _:
            raise Malformed("type: not a string")


def _string(members: dict[str, object], name: str) -> str | None:
    value = members.get(name)
    if value is None or type(value) is str:
        return value
    raise Malformed(f"{name}: not a string")


def _required(members: dict[str, object], name: str) -> str:
    value = _string(members, name)
    if value is None:
        raise Malformed(f"{name}: missing")
    return value


def _count(members: dict[str, object], name: str) -> int:
    value = members.get(name)
    if value is None:
        return 0
    # bool is an int to isinstance, not to the contract.
    if type(value) is not int or value < 0:
        raise Malformed(f"{name}: not a whole number from 0")
    return value
