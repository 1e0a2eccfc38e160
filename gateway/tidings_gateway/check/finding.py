"""One thing that was found, as good or bad as it is."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.IntEnum):
    OK = 0
    NOTE = 1
    """Worth knowing; nothing has to be done."""
    WARN = 2
    """To be changed: it works today, and will hurt on a bad day."""
    FAIL = 3
    """To be changed now: it does not work, or loses events."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`words` are a sentence or two; `remedy` is what to type or to write into a file, empty where there is nothing."""

    level: Level
    topic: str
    words: str
    remedy: str = ""


def ok(topic: str, words: str) -> Finding:
    return Finding(Level.OK, topic, words)


def note(topic: str, words: str, remedy: str = "") -> Finding:
    return Finding(Level.NOTE, topic, words, remedy)


def warn(topic: str, words: str, remedy: str) -> Finding:
    return Finding(Level.WARN, topic, words, remedy)


def fail(topic: str, words: str, remedy: str) -> Finding:
    return Finding(Level.FAIL, topic, words, remedy)


def config(name: str, value: str) -> str:
    """How a setting of Redis is changed: now, and for good."""
    told = f'"{value}"' if " " in value or not value else value
    return f"CONFIG SET {name} {told}; and in the conf file: {name} {value or chr(34) * 2}"


def megabytes(size: float) -> str:
    return f"{size / 1_048_576:,.{0 if size >= 10_485_760 else 1}f} MB"
