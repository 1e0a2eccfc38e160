"""Positions: "I have everything of this log up to and including this entry".

A part is ``<epoch>.<seq>-<tag>``. A full position is one part for the user's own log, then zero or more
``~<topic>.<part>``. Positions are opaque to everybody but Tidings; clients store and return them as they came.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidings.errors import InvalidPosition

MAX_TOPICS = 16
MAX_POSITION_BYTES = 2048

_PART = re.compile(r"([0-9A-Za-z]{8,16})\.(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,9})", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)


class Position(NamedTuple):
    """A place in one log. `seq` 0 with `tag` 0 means: nothing of this epoch yet."""

    epoch: str
    seq: int
    tag: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.seq}-{self.tag}"

    def encode(self) -> bytes:
        return str(self).encode("ascii")

    @classmethod
    def parse(cls, text: str | bytes) -> Position:
        """Parse one part. Raises `InvalidPosition` for anything that is not exactly one part."""
        if isinstance(text, bytes):
            text = text.decode("latin-1")
        match = _PART.fullmatch(text)
        if match is None:
            raise InvalidPosition(text)
        return cls(match[1], int(match[2]), int(match[3]))


class FullPosition(NamedTuple):
    """What a client stores: its place in its own log and in the log of every topic it follows."""

    personal: Position
    topics: tuple[tuple[str, Position], ...] = ()

    def __str__(self) -> str:
        return "".join([str(self.personal), *(f"~{topic}.{part}" for topic, part in self.topics)])

    @classmethod
    def parse(cls, text: str) -> FullPosition:
        """Parse a full position (at most 2 KiB, at most 16 topics, in any order, none twice).

        Raises `InvalidPosition`.
        """
        if len(text) > MAX_POSITION_BYTES:
            raise InvalidPosition(text)
        head, *tail = text.split("~")
        if len(tail) > MAX_TOPICS:
            raise InvalidPosition(text)
        topics: dict[str, Position] = {}
        for item in tail:
            # The topic grammar allows dots, so the part is taken from the right: it holds exactly one.
            topic, _, rest = item.rpartition(".")
            topic, _, epoch = topic.rpartition(".")
            if not _TOPIC.fullmatch(topic) or topic in topics:
                raise InvalidPosition(text)
            topics[topic] = Position.parse(f"{epoch}.{rest}")
        return cls(Position.parse(head), tuple(topics.items()))
