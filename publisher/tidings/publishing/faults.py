"""What an error of Redis means for an event that was to be stored: in words, and whether trying again can help.

A refusal in this table changed nothing and published nothing: `append.lua` is refused at its first write, or not at
all. An error that is not in the table may have come half-way, so its outcome is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """`code` is stable, `words` are for people. `retryable`: the same call may succeed later. `known`: it is known that
    nothing happened."""

    code: str
    words: str
    retryable: bool
    known: bool = True


FAULTS = {
    "OOM": Fault("storage_full", "Redis is full (maxmemory) and stores nothing more", True),
    "READONLY": Fault("read_only", "this Redis is a read-only replica: it was demoted, or is the wrong address", True),
    "NOREPLICAS": Fault("no_replicas", "Redis has fewer replicas than min-replicas-to-write asks for", True),
    "LOADING": Fault("loading", "Redis is still loading its data from disk", True),
    "MASTERDOWN": Fault("read_only", "this Redis is a replica that lost its primary", True),
    "MISCONF": Fault("misconfigured", "Redis refuses writes because it cannot save to disk (MISCONF)", True),
    "BUSY": Fault("busy", "Redis is busy with somebody's slow script", True),
    "CLUSTERDOWN": Fault("unavailable", "the Redis Cluster is down", True),
    "TRYAGAIN": Fault("unavailable", "the Redis Cluster is moving this user's slot", True),
    "NOAUTH": Fault("unauthorized", "Redis wants a password, and TIDINGS_REDIS_URL gives none", False),
    "WRONGPASS": Fault("unauthorized", "Redis refused the user name or password in TIDINGS_REDIS_URL", False),
    "NOPERM": Fault("forbidden", "the Redis user lacks a permission", False, known=False),
    "MOVED": Fault("cluster", "this is a node of a Redis Cluster, whose URL is redis+cluster://…", False),
    "ASK": Fault("cluster", "this is a node of a Redis Cluster, whose URL is redis+cluster://…", False),
    "WRONGTYPE": Fault("foreign_data", "a key of the log holds something else: is the prefix used twice?", False),
}

STALE = frozenset(("READONLY", "MASTERDOWN", "LOADING", "NOAUTH"))
"""After one of these, every open connection may lead to a server that is no longer the primary."""

NOSCRIPT = "NOSCRIPT"
_DOUBTFUL = frozenset(("CLUSTERDOWN", "NOREPLICAS"))
"""A primary that misses its replicas may be the one that was cut off, and one of them the primary by now."""

_UNAUTHENTICATED = "unauthenticated"
"""Before a password was given, Redis takes no command of our size, and calls it a protocol error."""

# Redis 6 wraps what a script's command was refused with: "ERR Error running script …: -OOM command not allowed".
_CODE = re.compile(r"(?:^|[-: ])(" + "|".join((*FAULTS, NOSCRIPT)) + r")\b")
_ACL_IN_SCRIPT = re.compile(r"ACL failure|can't (?:run this command|access|publish)", re.IGNORECASE)
# An append behind ASKING that comes late, when the slot is on its way again: its first look-up, of the idempotency key,
# is refused.
_MOVED_ON = re.compile(r"non local key", re.IGNORECASE)
_SHOWN_CHARS = 160


class ServerError(Exception):
    """Redis answered with an error. `text` is the whole line, with its code in front."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def code(self) -> str:
        """One of the codes above, or the line's first word."""
        if _UNAUTHENTICATED in self.text:
            return "NOAUTH"
        match = _CODE.search(self.text)
        return match[1] if match else self.text.partition(" ")[0]


def fault_of(error: ServerError) -> Fault:
    known = FAULTS.get(error.code)
    if known is None and _ACL_IN_SCRIPT.search(error.text):
        known = FAULTS["NOPERM"]
    if known is None and _MOVED_ON.search(error.text):
        known = FAULTS["TRYAGAIN"]
    if known is None:
        return Fault("store_error", f"Redis answered: {error.text[:_SHOWN_CHARS]}", False, known=False)
    if known.known:
        return known
    return known._replace(words=f"{known.words}: {error.text[:_SHOWN_CHARS]}")


def is_replica(answers: Sequence[Any]) -> bool:
    """Whether one of them is a replica's to ROLE. A server that does not answer it (older ones, or the user may not
    ask) is taken at its word."""
    return any(isinstance(answer, list) and answer[:1] == [b"slave"] for answer in answers)


def is_stale(answers: Sequence[Any]) -> bool:
    """Whether an answer says that this server is not, or no longer, the one to ask."""
    codes = (answer.code for answer in answers if isinstance(answer, ServerError))
    return any(code in STALE for code in codes) or is_replica(answers)


def is_doubtful(answers: Sequence[Any]) -> bool:
    """Whether an answer says that what is known about the servers no longer holds."""
    return is_stale(answers) or any(isinstance(item, ServerError) and item.code in _DOUBTFUL for item in answers)
