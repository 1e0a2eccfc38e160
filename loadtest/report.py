"""What a run came to: figures for people, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtest.herd import Herd

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Storm:
    """One strike and the return. Times in seconds; `back_s` is None when somebody never came."""

    words: str
    left: int
    back_s: float | None
    away_s: Sequence[float]

    def __str__(self) -> str:
        if self.back_s is None:
            return f"{self.words}; {self.left} pages left, {len(self.away_s)} came back, THE OTHERS NEVER"
        away = ", ".join(
            f"{percentile(self.away_s, share):.2f} s ({name})" for share, name in ((0.5, "p50"), (0.99, "p99"))
        )
        return (
            f"{self.words}; {self.left} pages left and were back {self.back_s:.2f} s after it began; each away {away}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Lists of sentences; all empty is good."""

    lost: list[str]
    repeated: list[str]
    foreign: list[str]
    phantoms: list[str]
    resyncs: list[str]
    not_back: list[str]
    complaints: list[str]
    resyncs_allowed: bool = False

    @property
    def ok(self) -> bool:
        rows = [self.lost, self.repeated, self.foreign, self.phantoms, self.not_back, self.complaints]
        return not any(rows) and (self.resyncs_allowed or not self.resyncs)

    def lines(self) -> list[str]:
        rows = {
            "lost": self.lost,
            "repeated": self.repeated,
            "of another user": self.foreign,
            "received though refused": self.phantoms,
            "told to refetch": self.resyncs,
            "not back": self.not_back,
            "complaints": self.complaints,
        }
        lines = [", ".join(f"{name} {len(found)}" for name, found in rows.items())]
        for name, found in rows.items():
            lines += [f"    {name}: {text}" for text in found[:_SHOWN]]
        return lines


def judge(herd: Herd, *, complaints: Sequence[str], resyncs_allowed: bool) -> Verdict:
    pages = [browser.page for browser in herd.browsers]
    ledger = herd.ledger
    return Verdict(
        lost=[text for page in pages for text in page.missing()],
        repeated=[text for page in pages for text in page.repeated],
        foreign=[text for page in pages for text in page.foreign],
        phantoms=[f"{page.user} got {key}" for page in pages for key in page.seen if ledger.failed(key)],
        resyncs=[text for page in pages for text in page.resyncs],
        not_back=[f"{b.page.user}: {b.state.name}" for b in herd.browsers if not b.page.live],
        complaints=[*complaints, *(text for page in pages for text in page.reports)],
        resyncs_allowed=resyncs_allowed,
    )


@dataclass
class Report:
    head: str
    verdict: Verdict
    figures: list[str]
    storms: Sequence[Storm] = ()
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        storms = [f"storm {number}: {storm}" for number, storm in enumerate(self.storms, 1)]
        last = "OK" if self.verdict.ok else "NOT OK"
        return "\n".join([self.head, "", *self.figures, "", *storms, *self.notes, *self.verdict.lines(), last])


def figures(stats: Any) -> list[str]:
    """A table of locust's statistics: how often, and how long in milliseconds."""
    lines = [f"{'':<34}{'count':>9}{'failed':>8}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'max ms':>9}"]
    for (name, what), entry in sorted(stats.entries.items(), key=lambda item: (item[0][1], item[0][0])):
        times = [entry.get_response_time_percentile(share) for share in (0.5, 0.95, 0.99)]
        row = "".join(f"{value or 0:>9.0f}" for value in [*times, entry.max_response_time])
        lines.append(f"{f'{what}, {name}':<34}{entry.num_requests:>9}{entry.num_failures:>8}{row}")
    return lines


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that at least `share` of them do not exceed; 0 for none."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)] if ordered else 0.0
