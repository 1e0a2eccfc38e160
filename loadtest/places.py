"""Positions as the browser client handles them: the part of each log by the log's name (`web/position.js`)."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.errors import InvalidPosition
from tidings.log.position import FullPosition, Position

Places = dict[str, str]
"""The part of each log. The name of the user's own log is `""`, a topic's `"~topic"`."""

OWN = ""


def parse_part(text: object) -> Position | None:
    if not isinstance(text, str):
        return None
    try:
        return Position.parse(text)
    except InvalidPosition:
        return None


def parse(text: object) -> Places | None:
    """None: not a position."""
    if not isinstance(text, str):
        return None
    try:
        full = FullPosition.parse(text)
    except InvalidPosition:
        return None
    return {OWN: str(full.personal), **{f"~{topic}": str(part) for topic, part in full.topics}}


def write(places: Mapping[str, str] | None) -> str | None:
    if places is None:
        return None
    return "".join(part if log == OWN else f"{log}.{part}" for log, part in places.items())


def log_of(topic: object) -> str | None:
    """The log of a frame's `topic`; None when that is no topic."""
    if topic is None:
        return OWN
    return f"~{topic}" if isinstance(topic, str) and parse(f"AAAAAAAA.0-0~{topic}.AAAAAAAA.0-0") else None
