"""Every verdict of the ledger can turn red, and a faultless run is green."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.follower import Follower
from tests.support.ledger import Ledger, Verdict


class Seen(Follower):
    """A client that was fed by hand."""

    def __init__(self, name: str, start: str = "epochepoch.0-0") -> None:
        super().__init__()
        self.name = name
        self.connected()
        self.take({"type": "welcome", "resumed": False, "position": start})
        self.refetched()

    def event(self, identity: str, data: object) -> None:
        self.take({"type": "event", "id": identity, "event": "test", "data": data})


def _run() -> tuple[Ledger, Seen]:
    """Three acknowledged messages of ann, all received."""
    ledger, ann = Ledger(), Seen("ann's tab")
    for n in (1, 2, 3):
        data = ledger.attempted("ann", f"k{n}")
        ledger.acknowledged(f"k{n}", f"epochepoch.{n}-{n}")
        ann.event(f"epochepoch.{n}-{n}", data)
    return ledger, ann


def _missing(ledger: Ledger, ann: Seen) -> None:
    ledger.attempted("ann", "k4")
    ledger.acknowledged("k4", "epochepoch.4-4")


def _repeated_key(ledger: Ledger, ann: Seen) -> None:
    ann.event("epochepoch.4-4", {"user": "ann", "key": "k3"})


def _repeated_id(ledger: Ledger, ann: Seen) -> None:
    ann.events.append(ann.events[-1])


def _hole(ledger: Ledger, ann: Seen) -> None:
    ann.event("epochepoch.5-5", ledger.attempted("ann", "k5"))


def _foreign(ledger: Ledger, ann: Seen) -> None:
    ann.event("epochepoch.4-4", ledger.attempted("bob", "k4"))


def _leak(ledger: Ledger, ann: Seen) -> None:
    ledger.given_back("descriptors", before=20, after=31, allowed=10)


def _phantom(ledger: Ledger, ann: Seen) -> None:
    ann.event("epochepoch.4-4", ledger.attempted("ann", "k4"))
    ledger.failed("k4")


def _unpublished(ledger: Ledger, ann: Seen) -> None:
    ann.event("epochepoch.4-4", {"user": "ann", "key": "k9"})


def _late(ledger: Ledger, ann: Seen) -> None:
    ann.longest_away_s = 11


def _resync(ledger: Ledger, ann: Seen) -> None:
    ann.take({"type": "resync", "reason": "trimmed", "position": "epochepoch.9-9", "missed": 6})


def _wire_repeat(ledger: Ledger, ann: Seen) -> None:
    ann.event("epochepoch.3-3", {"user": "ann", "key": "k3"})


def _judge(ledger: Ledger, ann: Seen) -> Verdict:
    return ledger.verdict({"ann": [ann]}, recovery_s=10)


def test_a_faultless_run_is_green() -> None:
    """Everything acknowledged and received once, in order."""
    ledger, ann = _run()
    verdict = _judge(ledger, ann)
    assert verdict.ok(), verdict.table()
    assert ledger.settled({"ann": [ann]})
    assert verdict.counts["acknowledged"] == verdict.counts["received"] == 3


@pytest.mark.parametrize(
    ("fault", "row"),
    [
        (_missing, "missing"),
        (_repeated_key, "repeated"),
        (_repeated_id, "repeated"),
        (_hole, "out_of_order"),
        (_foreign, "foreign"),
        (_leak, "leaks"),
        (_phantom, "phantoms"),
        (_unpublished, "phantoms"),
        (_late, "late"),
        (_resync, "resyncs"),
        (_wire_repeat, "violations"),
    ],
)
def test_each_verdict_can_turn_red(fault: Callable[[Ledger, Seen], None], row: str) -> None:
    """One fault put into a faultless run shows in its row, and the run is not ok."""
    ledger, ann = _run()
    fault(ledger, ann)
    verdict = _judge(ledger, ann)
    assert getattr(verdict, row), verdict.table()
    assert not verdict.ok()


def test_unknown_outcomes_are_neither_missing_nor_phantoms() -> None:
    """A publish whose answer was lost may have arrived or not."""
    ledger, ann = _run()
    ann.event("epochepoch.4-4", ledger.attempted("ann", "k4"))
    ledger.unknown("k4")
    ledger.attempted("ann", "k5")
    assert _judge(ledger, ann).ok()


def test_a_resync_covers_what_lies_before_its_position() -> None:
    """Up to its position in its epoch, and all of an epoch that was given up; what comes after is missing."""
    ledger, ann = _run()
    for n, position in (("k8", "epochepoch.8-8"), ("k9", "otherepoch.1-1")):
        ledger.attempted("ann", n)
        ledger.acknowledged(n, position)
    ann.take({"type": "resync", "reason": "epoch", "position": "otherepoch.2-2", "missed": None})
    assert _judge(ledger, ann).ok(resyncs_allowed=True)
    ledger.attempted("ann", "k10")
    ledger.acknowledged("k10", "otherepoch.3-3")
    assert _judge(ledger, ann).missing == ["ann's tab lacks otherepoch.3-3 'k10'"]


def test_what_was_before_the_start_is_not_expected() -> None:
    """A client that began at the top is not missing older messages."""
    ledger, _ = _run()
    assert _judge(ledger, Seen("late tab", "epochepoch.3-3")).ok()
    assert len(_judge(ledger, Seen("tab", "epochepoch.1-1")).missing) == 2


def test_the_table_names_the_breaches() -> None:
    """The printed table has the counts and the first breaches in words."""
    ledger, ann = _run()
    _missing(ledger, ann)
    table = _judge(ledger, ann).table()
    assert "acknowledged" in table
    assert "lacks epochepoch.4-4" in table
