"""A position in words: what it says, what the log says to it, and therefore what a reader would be told."""

from __future__ import annotations

from tidings.errors import InvalidPosition
from tidings.log.page import Page, ResyncReason
from tidings.log.position import FullPosition, Position

_REASONS = {
    ResyncReason.TRIMMED: "The log no longer holds what followed it: a page with this position is told to refetch.",
    ResyncReason.EPOCH: "The log began anew since, or another copy of it took over: a page with this position is told "
    "to refetch.",
    ResyncReason.AHEAD: "It lies beyond the newest event, so Redis lost events it had acknowledged: a page with this "
    "position is told to refetch.",
}


def parse(text: str) -> Position | None:
    """The part of a position that belongs to the user's own log; None when the text is no position."""
    try:
        return FullPosition.parse(text).personal
    except InvalidPosition:
        return None


def explain(position: Position | None, page: Page) -> str:
    """`page` is the answer to a read after `position`, with a limit of 0; with None for a text that is no position."""
    top = Position.parse(page.top)
    if position is None:
        return f"This is not a position. The newest event of the log is {_event(top)}."
    said = f"It says: epoch {position.epoch}, everything up to and including {_event(position)}."
    if page.reason is not None:
        return f"{said} {_REASONS.get(page.reason, 'It cannot be continued.')} The newest event is {_event(top)}."
    behind = top.seq - position.seq
    if behind == 0:
        return f"{said} Nothing came after it: a page with this position is up to date."
    events = "1 event" if behind == 1 else f"{behind} events"
    return f"{said} {events} came after it, up to {_event(top)}: a page with this position gets exactly those."


def _event(position: Position) -> str:
    return f"event {position.seq}" if position.seq else "nothing yet (event 0)"
