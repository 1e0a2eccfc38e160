"""Every move of the table at the top of feed.py, and which records a gateway lets near a feed at all."""

from __future__ import annotations

import pytest

from tests.core.feeds import live_feed, new_feed, new_log
from tidings.log.record import DurableRecord
from tidings_gateway.core.feed import (
    Feed,
    State,
    is_sound,
)

MOVES = """
              link_lost  link_back  has_room  retry     read_failed
    DEAF      DEAF       DUE        DEAF      DEAF      DEAF
    DUE       DEAF       DUE        READING   DUE       DUE
    READING   ADRIFT     OUTDATED   READING   READING   PAUSED
    OUTDATED  ADRIFT     OUTDATED   OUTDATED  OUTDATED  DUE
    ADRIFT    ADRIFT     OUTDATED   ADRIFT    ADRIFT    DEAF
    PAUSED    DEAF       DUE        PAUSED    DUE       PAUSED
    LIVE      DEAF       DUE        LIVE      LIVE      LIVE
"""


def in_state(state: State) -> Feed:
    log = new_log(1)
    if state is State.LIVE:
        return live_feed(log)
    feed = new_feed()
    if state is State.DEAF:
        return feed
    feed.link_back(1, room=state is not State.DUE)
    if state is State.OUTDATED:
        feed.link_back(1, room=True)
    elif state is State.ADRIFT:
        feed.link_lost()
    elif state is State.PAUSED:
        feed.read_failed(1)
    assert feed.state is state
    return feed


def moves() -> list[tuple[str, str, str]]:
    head, *rows = (line.split() for line in MOVES.strip().splitlines())
    return [(row[0], name, after) for row in rows for name, after in zip(head, row[1:], strict=True)]


@pytest.mark.parametrize(("before", "move", "after"), moves())
def test_every_move_of_the_table(before: str, move: str, after: str) -> None:
    """Every input is answered in every state, as the table at the top of feed.py says."""
    feed = in_state(State[before])
    match move:
        case "link_lost":
            feed.link_lost()
        case "link_back":
            feed.link_back(2, room=False)
        case "has_room":
            feed.has_room()
        case "retry":
            feed.retry(False)
        case "read_failed":
            feed.read_failed(1)
    assert feed.state is State[after]


@pytest.mark.parametrize(
    ("before", "position", "sound"),
    [
        (b"Abcdefgh.0-0", b"Abcdefgh.1-5", True),
        (b"Abcdefgh.41-7", b"Abcdefgh.42-0", True),
        (b"Abcdefgh.41-7", b"Abcdefgh.43-5", False),
        (b"Abcdefgh.41-7", b"Abcdefgh.41-5", False),
        (b"Abcdefgh.41-7", b"Zyxwvuts.42-5", False),
        (b"Abcdefgh.41-7", b'Abcdefgh.42-5","x":"', False),
        (b"Abcdefgh.41-7\n", b"Abcdefgh.42-5", False),
        (b"Abcdefgh.41-7 Abcdefgh.42-5", b"", False),
        (b"Abcdefgh.41-07", b"Abcdefgh.42-5", False),
        (b"Abcdefgh.9999999999999999-7", b"Abcdefgh.10000000000000000-5", False),
        (b"", b"", False),
    ],
)
def test_sound_records(before: bytes, position: bytes, sound: bool) -> None:
    """What the gateway asks of a record once, since `accept` follows whatever names the right position before it."""
    assert is_sound(DurableRecord(before, position, b"{}")) is sound
