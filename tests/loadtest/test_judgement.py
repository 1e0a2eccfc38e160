"""The load test's witness and its verdict: each thing that may go wrong is seen."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.browser import Browser
from loadtest.herd import Herd
from loadtest.ledger import Entry
from loadtest.report import Report, Storm, judge, percentile


def published(herd: Herd, browser: Browser, at_ms: float = 10.0) -> Entry:
    entry = herd.ledger.attempt(browser.page.user, at_ms)
    entry.position = f"abcdefgh.{entry.key}-1"
    return entry


def handed(herd: Herd, browser: Browser, entry: Entry, **other: Any) -> None:
    data = {"run": herd.ledger.run, "user": entry.user, "key": entry.key, **other}
    browser.page.deliver({"id": entry.position or "abcdefgh.9-9", "data": data, "replay": False})


def verdict(herd: Herd, **more: Any) -> Any:
    return judge(herd, **{"complaints": [], "resyncs_allowed": False, **more})


def test_all_is_well(herd: Herd) -> None:
    """What was acknowledged is here once, and nothing else."""
    handed(herd, herd.browsers[0], published(herd, herd.browsers[0]))
    assert verdict(herd).ok
    assert herd.settled()
    assert str(Report("head", verdict(herd), [])).endswith("\nOK")


def test_a_lost_event_is_seen(herd: Herd) -> None:
    """Acknowledged, and neither handed over nor in a state that was fetched."""
    entry = published(herd, herd.browsers[0])
    assert not herd.settled()
    assert verdict(herd).lost == [f"load-0 lacks {entry.position}"]
    assert not verdict(herd).ok


@pytest.mark.parametrize(
    ("position", "started_ms", "covered"),
    [
        ("abcdefgh.4-1", 1000.0, False),  # sent long before, and yet above: the gateway owes it
        ("abcdefgh.5-1", 0.0, True),
        ("abcdefgh.6-1", 0.0, True),
        ("ABCDEFGH.0-0", 9.0, False),  # another log now, and sent after the fetch
        ("ABCDEFGH.9-1", 10.0, True),  # the application wrote it before it published it
    ],
)
def test_what_a_fetched_state_covers(herd: Herd, position: str, started_ms: float, covered: bool) -> None:
    """What is at or below the position that was asked before it; of a log that is gone, what was sent before it."""
    entry = published(herd, herd.browsers[0], at_ms=10.0)
    entry.position = "abcdefgh.5-1"
    herd.browsers[0].page.fetched(position, started_ms)
    assert (verdict(herd).lost == []) is covered


def test_another_run_s_events_count_for_nothing(herd: Herd) -> None:
    """What an earlier run left behind, or one beside it publishes, is neither ours nor a stranger's."""
    handed(herd, herd.browsers[0], published(herd, herd.browsers[1]), run="another")
    assert not herd.browsers[0].page.seen
    assert verdict(herd).foreign == []


def test_a_repeat_and_a_stranger_s_event_are_seen(herd: Herd) -> None:
    """Once is enough, and only for whom it is."""
    entry = published(herd, herd.browsers[0])
    handed(herd, herd.browsers[0], entry)
    handed(herd, herd.browsers[0], entry)
    assert len(verdict(herd).repeated) == 1
    handed(herd, herd.browsers[1], entry)
    assert verdict(herd).foreign == [f"load-1 got {entry.position} of load-0"]
    assert not verdict(herd).ok


def test_what_was_refused_must_not_arrive(herd: Herd) -> None:
    """Refused for certain: nobody gets it. Of unknown outcome: it may come, and need not."""
    refused, unknown = published(herd, herd.browsers[0]), published(herd, herd.browsers[0])
    refused.position = unknown.position = None
    herd.ledger.fail(refused, "no", unknown=False)
    herd.ledger.fail(unknown, "who knows", unknown=True)
    assert verdict(herd).ok
    handed(herd, herd.browsers[0], unknown)
    assert verdict(herd).ok
    handed(herd, herd.browsers[0], refused)
    assert len(verdict(herd).phantoms) == 1
    assert herd.ledger.counts == {"acknowledged": 0, "failed": 1, "unknown": 1}


def test_who_is_not_back_and_who_was_told_to_refetch_are_seen(herd: Herd) -> None:
    """A page that is not live at the end; a resync, unless the store may have lost something."""
    herd.browsers[0].page.live_since_ms = None
    assert len(verdict(herd).not_back) == 1
    herd.browsers[0].page.live_since_ms = 1.0
    herd.browsers[1].page.resyncs.append("load-1: epoch")
    assert not verdict(herd).ok
    assert verdict(herd, resyncs_allowed=True).ok
    assert not verdict(herd, complaints=["a traceback"], resyncs_allowed=True).ok


def test_a_storm_in_words() -> None:
    """How many left, when the last was back, and how long each was away; or that some never came."""
    assert "2 pages left and were back 1.50 s after" in str(Storm("cut", 2, 1.5, [0.5, 1.5]))
    assert "THE OTHERS NEVER" in str(Storm("cut", 2, None, [0.5]))


def test_percentiles() -> None:
    """The smallest value that at least that share does not exceed."""
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([], 0.5) == 0.0
    assert percentile([3.0], 0.01) == 3.0
