"""The event log of a user: append, read after a position, top.

The functions are sans-I/O: `append_command` and `read_command` make a call of a script, `parse_append` and
`parse_page` understand its reply. The gateway sends them over its own link, the publisher over redis-py, and `EventLog`
over whatever it is given.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from tidings.errors import InvalidSetting
from tidings.log.names import Names
from tidings.log.page import Page, ResyncReason
from tidings.log.position import Position
from tidings.log.receipt import Receipt
from tidings.log.record import DurableRecord
from tidings.log.script import APPEND, READ, SCRIPTS, Command, Script

__all__ = [
    "APPEND",
    "DEFAULT_LIMITS",
    "GENERATED_KEY",
    "PAGE_BYTES",
    "PAGE_EVENTS",
    "READ",
    "SCRIPTS",
    "Command",
    "EventLog",
    "Failover",
    "LogLimits",
    "Receipt",
    "Script",
    "append_command",
    "new_epoch",
    "new_tag",
    "parse_append",
    "parse_page",
    "parse_record_of",
    "read_command",
]

Failover = Literal["trust", "resync"]

PAGE_EVENTS = 128
PAGE_BYTES = 131072

GENERATED_KEY = "~auto~"
"""How an idempotency key begins that a publisher made up for its own retries."""
GENERATED_KEY_TTL_S = 900
"""Such a key is remembered only so long: no retry comes later, and every publish makes one. A day of them would take
more memory than the events."""

_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_EPOCH_CHARS = 8
_EPOCHS = 62**_EPOCH_CHARS
_TAGS = 9_999_999_999


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much a log keeps, and for how long: entries by count and by time since the last append (seconds)."""

    max_events: int = 1000
    log_ttl_s: int = 604_800
    meta_ttl_s: int = 7_776_000
    idempotency_ttl_s: int = 86_400

    def __post_init__(self) -> None:
        for name in ("max_events", "log_ttl_s", "meta_ttl_s", "idempotency_ttl_s"):
            if getattr(self, name) < 1:
                raise InvalidSetting(name, getattr(self, name), "must be at least 1")
        if self.meta_ttl_s < self.log_ttl_s:
            raise InvalidSetting(
                "meta_ttl_s", self.meta_ttl_s, "must not be below log_ttl_s: meta outlives the entries"
            )


DEFAULT_LIMITS = LogLimits()


def new_epoch(rng: random.Random) -> str:
    """The name of a log's new beginning. `rng` must be a `random.SystemRandom` outside of tests: an epoch that comes
    twice would make an old position look valid."""
    number = rng.randrange(_EPOCHS)
    chars = []
    for _ in range(_EPOCH_CHARS):
        number, digit = divmod(number, 62)
        chars.append(_BASE62[digit])
    return "".join(chars)


def new_tag(rng: random.Random) -> int:
    """An entry's tag: tells two entries with the same number apart. Never 0, which means "no entry"."""
    return rng.randrange(_TAGS) + 1


def append_command(
    names: Names,
    user: str,
    body: bytes,
    *,
    epoch: str,
    tag: int,
    idempotency_key: str | None = None,
    limits: LogLimits = DEFAULT_LIMITS,
    sharded: bool = False,
    asked: bool = False,
) -> Command:
    """Store `body` (an event already checked and encoded) as the next entry. `epoch` is used only if the log must begin
    anew. `sharded`: listeners are told by SPUBLISH, as in a Cluster. `asked`: the command goes behind ASKING, to the
    node an ASK named, and only with an idempotency key; `parse_record_of` then has what must be repeated to the node
    that said ASK.

    Raises `InvalidUser`, and `InvalidEvent` for a bad idempotency key."""
    keys = [names.meta(user), names.log(user)]
    remember_s = limits.idempotency_ttl_s
    if idempotency_key is not None:
        keys.append(names.idem(user, idempotency_key))
        if idempotency_key.startswith(GENERATED_KEY):
            remember_s = min(remember_s, GENERATED_KEY_TTL_S)
    args = (
        names.channel(user),
        body,
        epoch.encode("ascii"),
        b"%d" % tag,
        b"%d" % limits.max_events,
        b"%d" % limits.log_ttl_s,
        b"%d" % limits.meta_ttl_s,
        b"%d" % remember_s,
        b"SPUBLISH" if sharded else b"PUBLISH",
    )
    if asked:
        # A node that has the slot no more, or gives it away in its turn, refuses the look-up of the key, which is the
        # script's first command: then nothing has happened.
        assert idempotency_key is not None
        return Command(APPEND, (keys[0],), (*args, *keys[1:]))
    return Command(APPEND, tuple(keys), args)


def parse_append(reply: Any) -> Receipt:
    position, duplicate, listening = reply[:3]
    return Receipt(position.decode("ascii"), bool(duplicate), listening)


def parse_record_of(reply: Any) -> bytes | None:
    """What listeners of the node that said ASK have not heard; None when there is nothing to tell them any more."""
    record: bytes = reply[3]
    return record or None


def read_command(
    names: Names,
    user: str,
    position: bytes | str | None,
    *,
    new_epoch: str,
    last: int = 0,
    limit: int = PAGE_EVENTS,
    max_bytes: int = PAGE_BYTES,
    meta_ttl_s: int = DEFAULT_LIMITS.meta_ttl_s,
    failover: Failover = "trust",
    lone_key: bool = False,
    asked: bool = False,
) -> Command:
    """What follows `position` (one part): at most `limit` entries and `max_bytes` bytes on the wire, but at least one
    entry. `position` None: the top, after the last `last` entries. `limit` 0: no entries, only the verdict.

    `new_epoch` is used only if the log must begin anew. `failover` "resync": no position outlives a change of primary.
    `lone_key`: for a Cluster, whose slots move. `asked`: the same, behind ASKING, to the node an ASK named.
    Raises `InvalidUser` and `InvalidPosition`.
    """
    if position is None:
        epoch, seq, tag = b"", b"0", b"0"
    else:
        part = Position.parse(position)
        epoch, seq, tag = part.epoch.encode("ascii"), b"%d" % part.seq, b"%d" % part.tag
        last = 0
    args = (
        epoch,
        seq,
        tag,
        b"%d" % last,
        b"%d" % limit,
        b"%d" % max_bytes,
        new_epoch.encode("ascii"),
        b"%d" % meta_ttl_s,
        failover.encode("ascii"),
    )
    if lone_key or asked:
        return Command(READ, (names.meta(user),), (*args, names.log(user), b"asked" if asked else b""))
    return Command(READ, (names.meta(user), names.log(user)), args)


def parse_page(reply: Any) -> Page:
    start, top, reason, missed, flat = reply
    if reason == b"era":
        return Page(start, top, (), ResyncReason.EPOCH, failed_over=True)
    if reason:
        return Page(start, top, (), ResyncReason(reason.decode("ascii")), missed if missed >= 0 else None)
    before = start
    prefix = start[: start.index(b".") + 1]
    entries = []
    for index in range(0, len(flat), 2):
        position = prefix + flat[index]
        entries.append(DurableRecord(before, position, flat[index + 1]))
        before = position
    return Page(start, top, tuple(entries))


class EventLog:
    """The log of every user, over `run`, which sends a command to a primary and returns its reply.

    What `run` raises comes through as it is.
    """

    def __init__(
        self,
        run: Callable[[Command], Awaitable[Any]],
        names: Names,
        limits: LogLimits = DEFAULT_LIMITS,
        rng: random.Random | None = None,
        failover: Failover = "trust",
    ) -> None:
        self._run = run
        self._names = names
        self._limits = limits
        self._rng = rng or random.SystemRandom()
        self._failover: Failover = failover

    async def append(self, user: str, body: bytes, *, idempotency_key: str | None = None) -> Receipt:
        command = append_command(
            self._names,
            user,
            body,
            epoch=new_epoch(self._rng),
            tag=new_tag(self._rng),
            idempotency_key=idempotency_key,
            limits=self._limits,
        )
        return parse_append(await self._run(command))

    async def read_after(
        self,
        user: str,
        position: bytes | str | None,
        *,
        last: int = 0,
        limit: int = PAGE_EVENTS,
        max_bytes: int = PAGE_BYTES,
    ) -> Page:
        command = read_command(
            self._names,
            user,
            position,
            new_epoch=new_epoch(self._rng),
            last=last,
            limit=limit,
            max_bytes=max_bytes,
            meta_ttl_s=self._limits.meta_ttl_s,
            failover=self._failover,
        )
        return parse_page(await self._run(command))

    async def top(self, user: str) -> bytes:
        """The position of the newest entry, also for a user who has none yet."""
        return (await self.read_after(user, None, limit=0)).top
