"""The ledger: what publishers were told, what clients got, and whether the two agree.

The publisher's side writes down every message before it is sent and what became of it; after the run the ledger is laid
beside what each client's application saw. Seven promises are judged:

I1  acknowledged ⊆ received ∪ covered by a resync      → `missing`
I2  nothing twice at the application                   → `repeated`
I3  ids rise by exactly one between repositionings      → `out_of_order`
I4  each payload names its user, and reached only them  → `foreign`
I5  what was taken is given back                        → `leaks`
I6  nothing was received that was reported failed       → `phantoms`
I7  recovery within its bound                           → `late`

and how many resyncs there were, which a run without lost data must not need.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from tests.support.observed import Received, Resync, part

_SHOWN = 5


class Outcome(StrEnum):
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The answer was lost: neither promised nor denied."""


class Observed(Protocol):
    """What the ledger needs of a client; `tests.support.client.Client` has it."""

    @property
    def name(self) -> str: ...
    @property
    def events(self) -> Sequence[Received]: ...
    @property
    def chain(self) -> Sequence[Received]: ...
    @property
    def resyncs(self) -> Sequence[Resync]: ...
    @property
    def welcomes(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def violations(self) -> Sequence[str]: ...
    @property
    def longest_away_s(self) -> float: ...


@dataclass(slots=True)
class Entry:
    user: str
    key: str
    outcome: Outcome = Outcome.UNKNOWN
    position: str | None = None
    at: float | None = None
    """When it was acknowledged (`time.monotonic()`)."""


@dataclass
class Verdict:
    """Lists of sentences; an empty list is a promise kept."""

    counts: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    resyncs: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """What the clients themselves found wrong with a frame."""

    def ok(self, *, resyncs_allowed: bool = False) -> bool:
        rows = [self.missing, self.repeated, self.out_of_order, self.foreign, self.leaks, self.phantoms, self.late]
        return not any([*rows, self.violations, [] if resyncs_allowed else self.resyncs])

    def table(self) -> str:
        """The counts, each promise with its number of breaches, and the first few of each."""
        rows = [
            ("I1 missing", self.missing),
            ("I2 repeated at the application", self.repeated),
            ("I3 ids out of order or with a hole", self.out_of_order),
            ("I4 foreign", self.foreign),
            ("I5 not given back", self.leaks),
            ("I6 received though reported failed", self.phantoms),
            ("I7 recovered late", self.late),
            ("   resyncs", self.resyncs),
            ("   other breaches of the contract", self.violations),
        ]
        lines = [f"{name:<36}{count:>10}" for name, count in self.counts.items()]
        lines.append("-" * 46)
        for name, found in rows:
            lines.append(f"{name:<36}{len(found):>10}")
            lines += [f"      {text}" for text in found[:_SHOWN]]
            if len(found) > _SHOWN:
                lines.append(f"      … and {len(found) - _SHOWN} more")
        return "\n".join(lines)


class Ledger:
    """Messages by key. A message's `data` must be an object that carries its own `user` and `key`."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.leaks: list[str] = []

    def attempted(self, user: str, key: str) -> dict[str, str]:
        """Write down a message that is about to be published; returns the `data` to publish."""
        assert key not in self.entries, f"key {key} used twice"
        self.entries[key] = Entry(user, key)
        return {"user": user, "key": key}

    def acknowledged(self, key: str, position: str) -> None:
        entry = self.entries[key]
        entry.outcome, entry.position, entry.at = Outcome.ACKNOWLEDGED, position, time.monotonic()

    def failed(self, key: str) -> None:
        self.entries[key].outcome = Outcome.FAILED

    def unknown(self, key: str) -> None:
        self.entries[key].outcome = Outcome.UNKNOWN

    def count(self, outcome: Outcome) -> int:
        return sum(entry.outcome is outcome for entry in self.entries.values())

    def given_back(self, what: str, before: int, after: int, *, allowed: int = 0) -> None:
        """I5: a resource (descriptors, subscriptions, tasks, bytes) that should be back to where it was."""
        if after > before + allowed:
            self.leaks.append(f"{what}: {before} before, {after} after (allowed {allowed} more)")

    def positions(self, user: str) -> set[str]:
        """Where the acknowledged messages of a user are."""
        entries = self.entries.values()
        return {entry.position for entry in entries if entry.user == user and entry.position is not None}

    def settled(self, clients: Mapping[str, Iterable[Observed]]) -> bool:
        """Every acknowledged message has reached every client of its user (resyncs aside): quiet has come."""
        wanted: dict[str, set[str]] = {}
        for entry in self.entries.values():
            if entry.outcome is Outcome.ACKNOWLEDGED:
                wanted.setdefault(entry.user, set()).add(entry.key)
        return all(
            keys <= {_key(event.data) for event in client.events}
            for user, keys in wanted.items()
            for client in clients.get(user, ())
        )

    def verdict(self, clients: Mapping[str, Iterable[Observed]], *, recovery_s: float | None = None) -> Verdict:
        """`clients`: by user. `recovery_s`: the bound of I7 on the time between two synced states."""
        verdict = Verdict(leaks=list(self.leaks))
        for outcome in Outcome:
            verdict.counts[outcome.value] = self.count(outcome)
        by_user: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            by_user.setdefault(entry.user, []).append(entry)
        for user, observed in clients.items():
            for client in observed:
                verdict.counts["clients"] += 1
                verdict.counts["received"] += len(client.events)
                self._judge(verdict, user, client, by_user.get(user, []))
                away = client.longest_away_s
                if recovery_s is not None and away > recovery_s:
                    verdict.late.append(f"{client.name}: {away:.2f} s until synced again, allowed {recovery_s:g} s")
        return verdict

    def _judge(self, verdict: Verdict, user: str, client: Observed, entries: list[Entry]) -> None:
        keys: Counter[str] = Counter()
        ids: Counter[str] = Counter()
        for event in client.events:
            key = _key(event.data)
            keys[key] += 1
            ids[event.id] += 1
            owner = event.data.get("user") if isinstance(event.data, dict) else None
            entry = self.entries.get(key)
            if owner != user or (entry is not None and entry.user != user):
                verdict.foreign.append(f"{client.name} ({user}) got {event.id} of {owner}")
            if entry is None:
                verdict.phantoms.append(f"{client.name} got {event.id} {key!r}, which nobody published")
            elif entry.outcome is Outcome.FAILED:
                verdict.phantoms.append(f"{client.name} got {event.id} {key!r}, reported failed")
        for what, counter in (("message", keys), ("id", ids)):
            verdict.repeated += [f"{client.name} got {what} {key} {n} times" for key, n in counter.items() if n > 1]
        start = client.welcomes[0]["position"] if client.welcomes else None
        for entry in entries:
            if entry.outcome is not Outcome.ACKNOWLEDGED or entry.position is None or keys[entry.key]:
                continue
            if _covered(entry.position, start, client.resyncs):
                verdict.counts["covered by a resync or the start"] += 1
            else:
                verdict.missing.append(f"{client.name} lacks {entry.position} {entry.key!r}")
        verdict.out_of_order += [f"{client.name}: {text}" for text in _disorder(client)]
        verdict.resyncs += [f"{client.name}: {resync.reason} to {resync.position}" for resync in client.resyncs]
        verdict.violations += [f"{client.name}: {text}" for text in client.violations]


def _key(data: object) -> str:
    return str(data.get("key")) if isinstance(data, dict) else repr(data)


def _covered(position: str, start: str | None, resyncs: Sequence[Resync]) -> bool:
    """Is it before where the client began, or did a resync tell the client to fetch the state that contains it?"""
    epoch, seq, _ = part(position)
    if start is not None:
        start_epoch, start_seq, _ = part(start)
        if epoch == start_epoch and seq <= start_seq:
            return True
    if not resyncs:
        return False
    # A resync covers its own epoch up to its position, and every epoch that was given up before it.
    last_epoch = part(resyncs[-1].position)[0]
    for resync in resyncs:
        resync_epoch, resync_seq, _ = part(resync.position)
        if epoch == resync_epoch and seq <= resync_seq:
            return True
    given_up = {part(resync.position)[0] for resync in resyncs} | ({part(start)[0]} if start else set())
    return epoch in given_up - {last_epoch}


def _disorder(client: Observed) -> list[str]:
    """Where an id does not follow the one before, other than where the client was told a new place to start from."""
    told = [resync.position for resync in client.resyncs]
    told += [welcome["position"] for welcome in client.welcomes if not welcome["resumed"]]
    starts = {part(position)[:2] for position in told}
    found = []
    before: Received | None = None
    for item in client.chain:
        epoch, seq, _ = part(item.id)
        if before is not None:
            last_epoch, last_seq, _ = part(before.id)
            if (epoch, seq) != (last_epoch, last_seq + 1) and (epoch, seq - 1) not in starts:
                found.append(f"{item.id} after {before.id}")
        before = item
    return found
