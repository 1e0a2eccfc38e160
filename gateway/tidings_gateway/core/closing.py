"""Why a connection ends, and what the client does then.

One table: the gateway closes with its rows, the documentation prints it, the browser client's `web/closing.js` is made
from it (``python -m tidings_gateway.core.closing js``), and the tests of every client run against its JSON (the same
without ``js``). A code that is not in it is treated like `ANY_OTHER`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final


class ClientAction(StrEnum):
    """What the client does next. Every wait has full jitter."""

    STAY_CLOSED = "stay_closed"
    """The page asked for it."""
    BACKOFF = "backoff"
    """Reconnect after the usual backoff and resume."""
    BACKOFF_FROM_RETRY = "backoff_from_retry"
    """As `backoff`, but starting from `retry_ms`."""
    JITTER = "jitter"
    """Reconnect at a random moment within `retry_ms`; the backoff is not raised, since nothing is wrong."""
    RECONNECT = "reconnect"
    """Reconnect and resume; the path was dead, not the server."""
    NEW_TOKEN = "new_token"  # noqa: S105 - the name of an action
    """Get a fresh token, then reconnect; stop after `MAX_TOKEN_REFUSALS` refusals in a row."""
    STOP = "stop"
    """Do not reconnect."""


MAX_TOKEN_REFUSALS: Final = 3
DEFAULT_RETRY_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Close:
    """One way for a connection to end.

    `reason` is the text of the Close frame. `report`: what the client tells its developer, because somebody's code is
    to blame; empty where nothing has to be mended.
    `resend`: the client may send again what it had sent last. `sent`: the gateway sends this code itself.
    `retry_ms` is set where a `goodbye` frame announces the close: the window that the client's wait is drawn from.
    """

    code: int
    reason: str
    client: ClientAction
    report: str = ""
    resend: bool = True
    retry_ms: int | None = None
    sent: bool = True

    @property
    def retryable(self) -> bool:
        """Whether the client comes back by itself."""
        return self.client not in (ClientAction.STAY_CLOSED, ClientAction.STOP)


NORMAL: Final = Close(1000, "goodbye", ClientAction.STAY_CLOSED)
GOING_AWAY: Final = Close(1001, "going away", ClientAction.BACKOFF, sent=False)
PROTOCOL_ERROR: Final = Close(
    1002, "protocol error", ClientAction.BACKOFF, report="the connection broke the WebSocket protocol"
)
UNSUPPORTED: Final = Close(1003, "text frames only", ClientAction.BACKOFF, report="a frame was not text")
NO_STATUS: Final = Close(1005, "", ClientAction.BACKOFF, sent=False)
ABNORMAL: Final = Close(1006, "", ClientAction.BACKOFF, sent=False)
NOT_UTF8: Final = Close(1007, "text is not UTF-8", ClientAction.BACKOFF, report="a frame was not valid UTF-8")
INBOUND_RATE: Final = Close(1008, "too many frames", ClientAction.BACKOFF)
TOO_LARGE: Final = Close(1009, "frame too large", ClientAction.BACKOFF, resend=False)
SERVER_FAULT: Final = Close(1011, "server fault", ClientAction.BACKOFF)
DRAINING: Final = Close(1012, "draining", ClientAction.JITTER, retry_ms=DEFAULT_RETRY_MS)
TOO_SLOW: Final = Close(1013, "too slow", ClientAction.BACKOFF_FROM_RETRY, retry_ms=DEFAULT_RETRY_MS)
OVERLOADED: Final = Close(1013, "overloaded", ClientAction.BACKOFF_FROM_RETRY, retry_ms=DEFAULT_RETRY_MS)
STORE_AWAY: Final = Close(1013, "store away", ClientAction.BACKOFF_FROM_RETRY, retry_ms=DEFAULT_RETRY_MS)
MALFORMED: Final = Close(
    4400, "malformed frame", ClientAction.STOP, report="the gateway could not make sense of a frame", resend=False
)
UNAUTHENTICATED: Final = Close(4401, "no valid credential", ClientAction.NEW_TOKEN)
EXPIRED: Final = Close(4401, "token expired", ClientAction.NEW_TOKEN)
FORBIDDEN: Final = Close(4403, "forbidden", ClientAction.STOP)
HEARTBEAT_LATE: Final = Close(4408, "heartbeat late", ClientAction.RECONNECT)
HELLO_LATE: Final = Close(4408, "no hello", ClientAction.RECONNECT)
REPLACED: Final = Close(
    4409, "replaced", ClientAction.STOP, report="a newer connection of this user has taken the place of this one"
)
TOO_MANY: Final = Close(4429, "too many connections", ClientAction.BACKOFF_FROM_RETRY, retry_ms=DEFAULT_RETRY_MS)

CLOSES: Final[tuple[Close, ...]] = (
    NORMAL,
    GOING_AWAY,
    PROTOCOL_ERROR,
    UNSUPPORTED,
    NO_STATUS,
    ABNORMAL,
    NOT_UTF8,
    INBOUND_RATE,
    TOO_LARGE,
    SERVER_FAULT,
    DRAINING,
    TOO_SLOW,
    OVERLOADED,
    STORE_AWAY,
    MALFORMED,
    UNAUTHENTICATED,
    EXPIRED,
    FORBIDDEN,
    HEARTBEAT_LATE,
    HELLO_LATE,
    REPLACED,
    TOO_MANY,
)
"""All rows. Rows of one code differ in their reason only: a client acts on the code."""

ANY_OTHER: Final = ClientAction.BACKOFF


def action_for(code: int) -> ClientAction:
    """What a client does after `code`, listed or not."""
    for row in CLOSES:
        if row.code == code:
            return row.client
    return ANY_OTHER


def as_javascript() -> str:
    """The module `web/closing.js`: what a client in JavaScript does at each code."""
    meanings = "\n".join(f" *   {action.value:<18}  {_MEANINGS[action]}" for action in ClientAction)
    names = "|".join(f'"{action.value}"' for action in ClientAction)
    rows = {row.code: f"  {row.code}: {_javascript(row)}," for row in CLOSES}
    return _JAVASCRIPT.format(
        meanings=meanings,
        names=names,
        rows="\n".join(rows.values()),
        other=ANY_OTHER.value,
        refusals=MAX_TOKEN_REFUSALS,
    )


_MEANINGS: Final = {
    ClientAction.STAY_CLOSED: "no reconnect: the page asked for it",
    ClientAction.BACKOFF: "full jitter in base * 2^attempt",
    ClientAction.BACKOFF_FROM_RETRY: "the same, base being the goodbye's retry_ms, else the one here",
    ClientAction.JITTER: "full jitter in retry_ms, the attempt not counted: nothing is wrong",
    ClientAction.RECONNECT: "as backoff: the path was dead, not the server",
    ClientAction.NEW_TOKEN: "as backoff, with a fresh token; stopped when MAX_TOKEN_REFUSALS in a row were refused",
    ClientAction.STOP: "no reconnect",
}

_JAVASCRIPT: Final = """\
/**
 * Why a connection ends, and what this client does then. Made from the gateway's own table; do not edit:
 * `python -m tidings_gateway.core.closing js > web/closing.js`.
 *
{meanings}
 *
 * `report` is what the developer is told, where something has to be mended.
 *
 * @typedef {{{names}}} ClientAction
 * @typedef {{{{client: ClientAction, report?: string, retry_ms?: number}}}} Close
 */

/** @type {{Readonly<Record<number, Close>>}} */
export const CLOSE_CODES = Object.freeze({{
{rows}
}});

/** @type {{Close}} */
export const ANY_OTHER_CODE = Object.freeze({{ client: "{other}" }});

export const MAX_TOKEN_REFUSALS = {refusals};
"""


def _javascript(row: Close) -> str:
    members = [f'client: "{row.client.value}"']
    if row.report:
        members.append(f"report: {json.dumps(row.report)}")
    if row.retry_ms is not None:
        members.append(f"retry_ms: {row.retry_ms}")
    return "{ " + ", ".join(members) + " }"


def as_json() -> str:
    """The table for tests and documentation in other languages."""
    rows = [{**asdict(row), "retryable": row.retryable} for row in CLOSES]
    table = {"any_other": ANY_OTHER, "max_token_refusals": MAX_TOKEN_REFUSALS, "closes": rows}
    return json.dumps(table, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_javascript() if sys.argv[1:] == ["js"] else as_json())
