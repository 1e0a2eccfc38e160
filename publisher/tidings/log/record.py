"""Records: what travels on a user's channel.

``e<position before> <position>\\n<body>`` is a durable event, ``x\\n<body>`` an ephemeral one, ``c\\n<json>`` a control
message. The position before is named in every durable record, so that a reader can prove with one comparison of bytes
that it missed nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from tidings.errors import BadRecord


class DurableRecord(NamedTuple):
    """One log entry: its position, the position of the entry before it (both as wire bytes), and the event's body."""

    before: bytes
    position: bytes
    body: bytes


class EphemeralRecord(NamedTuple):
    body: bytes


class ControlRecord(NamedTuple):
    body: bytes


Record = DurableRecord | EphemeralRecord | ControlRecord


def parse_record(payload: bytes) -> Record:
    """Raises `BadRecord` when the payload has none of the three shapes. Positions are not validated here: the feed
    compares them as bytes and parses them only when they differ."""
    head, newline, body = payload.partition(b"\n")
    if newline:
        if head[:1] == b"e":
            before, space, position = head[1:].partition(b" ")
            if space and before and position:
                return DurableRecord(before, position, body)
        elif head == b"x":
            return EphemeralRecord(body)
        elif head == b"c":
            return ControlRecord(body)
    raise BadRecord(payload[:64])


def encode_durable(before: bytes, position: bytes, body: bytes) -> bytes:
    """The shape `append.lua` publishes; here for tests and tools."""
    return b"e%b %b\n%b" % (before, position, body)


def encode_ephemeral(body: bytes) -> bytes:
    return b"x\n" + body


def encode_control(body: bytes) -> bytes:
    return b"c\n" + body
