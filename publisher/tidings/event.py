"""An event: checked and encoded once, then carried as bytes to the last socket.

The body is ``{"event": type, "data": any JSON, "time": ms, "key": optional}``, strict JSON (RFC 8259) that every reader
understands the same way. Refused, with the path of the bad value: NaN and infinities (no JSON), lone surrogates (no
UTF-8), integers beyond ±(2^53 - 1) (a browser would round them in silence), keys that are not str, other types, nesting
deeper than 64 (the body itself is level 1), a body above the limit.

A float such as 1e21 is a float, however large: it arrives as the same double. Send big integers and money as strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import Any

import orjson

from tidings.errors import InvalidEvent, shown

MAX_EVENT_BYTES = 65_536
MAX_DEPTH = 64
MAX_KEY_CHARS = 128
MAX_SAFE_INTEGER = 2**53 - 1

_TYPE = re.compile(r"[A-Za-z0-9._:/-]{1,128}", re.ASCII)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_ENCODE = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


@dataclass(frozen=True, slots=True)
class Event:
    """A checked event. `body` is its JSON, exactly as it is stored and sent; `data_json` is that of its data alone.
    `time_ms` is Unix time."""

    type: str
    time_ms: int
    key: str | None
    data_json: bytes
    body: bytes

    @classmethod
    def encode(
        cls,
        type: str,
        data: Any,
        *,
        time_ms: int,
        key: str | None = None,
        max_bytes: int = MAX_EVENT_BYTES,
    ) -> Event:
        """Raises `InvalidEvent`."""
        _check_type(type)
        _check_time(time_ms)
        try:
            _check(data, 2)
        except _BadValue as bad:
            raise InvalidEvent(_path("data", bad.steps), bad.value, bad.why) from None
        try:
            data_json = orjson.dumps(data, default=_plain, option=_ENCODE)
        except orjson.JSONEncodeError as error:
            # Only for what changed since it was looked at, in another thread.
            raise InvalidEvent("data", data, f"cannot be encoded ({error})") from None
        # The grammar of a type holds nothing that JSON would escape.
        body = b'{"event":"%b","data":%b,"time":%d' % (type.encode("ascii"), data_json, time_ms)
        body += b"}" if key is None else b',"key":%b}' % orjson.dumps(_checked_key(key))
        if len(body) > max_bytes:
            raise InvalidEvent("data", len(body), f"makes a body of more than {max_bytes:,} bytes")
        return cls(type, time_ms, key, data_json, body)


def _check_type(type: object) -> None:
    if not isinstance(type, str) or _TYPE.fullmatch(type) is None:
        raise InvalidEvent("event", type, "must be 1 to 128 of A-Z a-z 0-9 . _ : / -")


def _check_time(time_ms: object) -> None:
    if not isinstance(time_ms, int) or not 0 <= time_ms <= MAX_SAFE_INTEGER:
        raise InvalidEvent("time", time_ms, "must be Unix time in milliseconds")


def _checked_key(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_CHARS:
        raise InvalidEvent("key", key, f"must be a str of 1 to {MAX_KEY_CHARS} characters")
    try:
        _check_text(key)
    except _BadValue as bad:
        raise InvalidEvent("key", key, bad.why) from None
    return key


class _BadValue(Exception):
    def __init__(self, value: object, why: str) -> None:
        self.value = value
        self.why = why
        self.steps: list[str | int] = []
        """Keys and indexes that lead to the value, innermost first."""


def _check(value: Any, depth: int) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_text(value)
    elif kind is dict:
        _check_depth(value, depth)
        for key, item in value.items():
            if type(key) is not str:
                raise _BadValue(key, "must have plain str keys")
            try:
                if not key.isascii():
                    _check_text(key)
                _check(item, depth + 1)
            except _BadValue as bad:
                bad.steps.append(key)
                raise
    elif kind is list or kind is tuple:
        _check_depth(value, depth)
        for index, item in enumerate(value):
            try:
                _check(item, depth + 1)
            except _BadValue as bad:
                bad.steps.append(index)
                raise
    elif value is None or kind is bool:
        pass
    elif isinstance(value, int):
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise _BadValue(value, "must be within ±(2^53 - 1), or a string")
    elif isinstance(value, float):
        if not isfinite(value):
            raise _BadValue(value, "must be finite")
    elif isinstance(value, str):  # The subclasses that orjson knows: IntEnum, StrEnum, OrderedDict, …
        _check_text(value)
    elif isinstance(value, dict):
        _check(dict(value), depth)
    elif isinstance(value, list):
        _check(list(value), depth)
    else:
        raise _BadValue(value, "must be dict, list, tuple, str, int, float, bool or None")


def _check_depth(value: object, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _BadValue(type(value), f"must not be nested deeper than {MAX_DEPTH} levels")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _BadValue(text, "must not hold a lone surrogate") from None


def _plain(value: object) -> float:
    # NumPy's float64 is a float, but orjson takes no subclass of it.
    if isinstance(value, float):
        return float(value)
    raise TypeError(type(value).__name__)


def _path(name: str, steps: list[str | int]) -> str:
    parts = [name]
    for step in reversed(steps):
        if isinstance(step, int):
            parts.append(f"[{step}]")
        else:
            parts.append(f".{step}" if _PLAIN_KEY.fullmatch(step) else f"[{shown(step)}]")
    return "".join(parts)
