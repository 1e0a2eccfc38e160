"""What was published, and what became of it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Entry:
    key: int
    user: str
    sent_ms: float
    position: str | None = None
    """Where it is stored; None until that is acknowledged."""
    unknown: bool = False
    """Neither acknowledged nor refused: the answer did not come."""
    failed: bool = False


class Ledger:
    """Every event of one run, in memory until its end: publish at a rate, and for a time, that fit."""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        """Every event says of which run it is: those of an earlier one, or of another now, are not ours."""
        self._entries: dict[int, Entry] = {}
        self._by_user: dict[str, list[Entry]] = {}
        self.errors: list[str] = []
        """What publishers were told, in words, each kind once."""

    def attempt(self, user: str, now_ms: float) -> Entry:
        entry = Entry(len(self._entries) + 1, user, now_ms)
        self._entries[entry.key] = entry
        self._by_user.setdefault(user, []).append(entry)
        return entry

    def fail(self, entry: Entry, why: str, *, unknown: bool) -> None:
        entry.unknown, entry.failed = unknown, not unknown
        if why not in self.errors and len(self.errors) < 10:
            self.errors.append(why)

    def sent_ms(self, key: object) -> float | None:
        entry = self._entries.get(key) if isinstance(key, int) else None
        return entry.sent_ms if entry is not None else None

    def acknowledged_of(self, user: str) -> Iterable[Entry]:
        return (entry for entry in self._by_user.get(user, ()) if entry.position is not None)

    def failed(self, key: int) -> bool:
        """Whether this was refused for certain: then nobody may ever receive it."""
        return self._entries[key].failed

    @property
    def counts(self) -> dict[str, int]:
        entries = self._entries.values()
        acknowledged = sum(entry.position is not None for entry in entries)
        unknown = sum(entry.unknown for entry in entries)
        return {"acknowledged": acknowledged, "failed": sum(entry.failed for entry in entries), "unknown": unknown}
