"""A position in words: what it says, what the log answers to it, and therefore what a page that has it is told."""

from __future__ import annotations

from tidings.errors import InvalidPosition
from tidings.log.page import Page, ResyncReason
from tidings.log.position import FullPosition, Position

_REASONS = {
    ResyncReason.TRIMMED: "The log keeps only a user's newest events, and some of what followed is gone.",
    ResyncReason.EPOCH: "The log began anew since (it was emptied or expired, or another copy of it took over), or "
    "this is another user's position: its numbers do not mean this log's events.",
    ResyncReason.AHEAD: "That is beyond the newest event of the log, so Redis lost events that it had acknowledged.",
}
_REFETCH = (
    "So a page with this position is told to fetch its state again, and goes on from there, rather than left to "
    "believe that it has everything."
)


def parse(text: str) -> Position | None:
    """The part of a position that belongs to the user's own log; None when the text is no position."""
    try:
        return FullPosition.parse(text).personal
    except InvalidPosition:
        return None


def explain(position: Position | None, page: Page) -> str:
    """`page` is the answer to a read after `position`, with a limit of 0; with None for a text that is no position."""
    top = Position.parse(page.top)
    newest = f"The newest event is number {top.seq:,}." if top.seq else "The log has no event yet."
    if position is None:
        return f"This is not a position. {newest}"
    said = f"Position {position} says: {_has(position)}."
    if page.reason is not None:
        return f"{said} {_REASONS.get(page.reason, 'The log cannot continue it.')} {_REFETCH} {newest}"
    behind = top.seq - position.seq
    if behind == 0:
        return f"{said} Nothing came after it: a page with this position is up to date."
    events = "1 event" if behind == 1 else f"{behind:,} events"
    return f"{said} {events} came after it, up to number {top.seq:,}: a page with this position gets exactly those."


def _has(position: Position) -> str:
    return f"I have everything up to event {position.seq:,}" if position.seq else "I have no event yet"
