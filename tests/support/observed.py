"""What a test client has seen, as data: the ledger judges it, tests look into it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_PART = re.compile(r"([0-9A-Za-z]{8,16})\.(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class Received:
    """One durable event or skip, as the application would see it."""

    id: str
    event: str | None
    """None for a skip."""
    data: Any
    replay: bool
    connection: int
    at: float
    """`time.monotonic()`"""


@dataclass(frozen=True, slots=True)
class Resync:
    reason: str
    position: str
    missed: int | None
    connection: int
    after: int
    """How many events had been received before it."""


@dataclass(frozen=True, slots=True)
class Closed:
    code: int
    reason: str
    connection: int
    at: float
    goodbye: dict[str, Any] | None
    """The goodbye frame before it, if one came."""


def part(position: str) -> tuple[str, int, str]:
    """Epoch, seq and tag of a position of one log. Raises `ValueError`."""
    match = _PART.fullmatch(position.partition("~")[0])
    if match is None:
        raise ValueError(f"not a position: {position!r}")
    return match[1], int(match[2]), match[3]
