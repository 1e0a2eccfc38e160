"""How soon clients are back after a strike is measured as it says."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.plan import Strike
from tests.chaos.strikes import Struck, percentile, return_times_s
from tests.support.ledger import Entry, Ledger, Outcome

STRUCK = Struck(Strike("kill", 2, 6), began=100, ended=102)


def ledger(**acknowledged: float) -> Ledger:
    made = Ledger()
    for key, at in acknowledged.items():
        made.entries[key] = Entry("anna", key, Outcome.ACKNOWLEDGED, "epoch123.1-1", at)
    return made


def client(**received: float) -> Any:
    return SimpleNamespace(events=[SimpleNamespace(data={"key": key}, at=at) for key, at in received.items()])


def test_only_events_acknowledged_after_the_strike_count() -> None:
    """An event that was caught up with is no sign that live ones arrive."""
    book = ledger(before=101.0, first=102.5, second=103.0)
    assert return_times_s(STRUCK, 108, book, {"anna": [client(before=102.1, first=102.7, second=103.1)]}) == [
        pytest.approx(0.7)
    ]


def test_a_client_without_live_events_is_infinitely_late() -> None:
    """Only events in the first half of the time count against it: later ones may still be on their way."""
    assert return_times_s(STRUCK, 108, ledger(first=102.5), {"anna": [client()]}) == [math.inf]
    assert return_times_s(STRUCK, 108, ledger(first=107.9), {"anna": [client()]}) == []
    assert return_times_s(STRUCK, 108, ledger(first=102.5), {"bert": [client()]}) == []


def test_percentiles() -> None:
    """The smallest value that at least the share does not exceed."""
    assert percentile([], 0.99) == 0
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([float(n) for n in range(1, 101)], 0.99) == 99
    assert percentile([1.0] * 98 + [math.inf] * 2, 0.99) == math.inf
