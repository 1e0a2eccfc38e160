"""The table of close codes: complete, consistent, and the same for every client."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.core.vectors import DIRECTORY, load
from tests.support.sources import ROOT
from tidings_gateway.core.closing import CLOSES, ClientAction, Close, action_for, as_javascript, as_json
from tidings_gateway.core.frames import MAX_REASON_BYTES

CONTRACT = {
    1000: ClientAction.STAY_CLOSED,
    1001: ClientAction.BACKOFF,
    1002: ClientAction.BACKOFF,
    1003: ClientAction.BACKOFF,
    1005: ClientAction.BACKOFF,
    1006: ClientAction.BACKOFF,
    1007: ClientAction.BACKOFF,
    1008: ClientAction.BACKOFF,
    1009: ClientAction.BACKOFF,
    1011: ClientAction.BACKOFF,
    1012: ClientAction.JITTER,
    1013: ClientAction.BACKOFF_FROM_RETRY,
    4400: ClientAction.STOP,
    4401: ClientAction.NEW_TOKEN,
    4403: ClientAction.STOP,
    4408: ClientAction.RECONNECT,
    4409: ClientAction.STOP,
    4429: ClientAction.BACKOFF_FROM_RETRY,
}
REPORTED = {1002, 1003, 1007, 4400, 4409}


def test_every_code_of_the_contract_has_its_action() -> None:
    """The contract's table, copied by hand: a change of the code's table must be meant."""
    assert {row.code: row.client for row in CLOSES} == CONTRACT
    assert {row.code for row in CLOSES if row.report} == REPORTED
    assert {row.code for row in CLOSES if not row.resend} == {1009, 4400}


@pytest.mark.parametrize("row", CLOSES, ids=lambda row: f"{row.code} {row.reason}")
def test_a_row_can_be_sent(row: Close) -> None:
    """A reason fits the Close frame; a code that must not go on the wire (RFC 6455, section 7.4.1) is not sent."""
    assert len(row.reason.encode()) <= MAX_REASON_BYTES
    assert row.reason.isascii()
    if row.code in (1005, 1006, 1015):
        assert not row.sent
    else:
        assert row.reason


@pytest.mark.parametrize("row", CLOSES, ids=lambda row: f"{row.code} {row.reason}")
def test_a_wait_is_announced_where_one_is_needed(row: Close) -> None:
    """A client told to wait is told from what window; one told to stop does not come back."""
    waits = row.client in (ClientAction.JITTER, ClientAction.BACKOFF_FROM_RETRY)
    assert (row.retry_ms is not None) == waits
    assert row.retryable != (row.client in (ClientAction.STOP, ClientAction.STAY_CLOSED))


def test_rows_of_one_code_differ_in_their_reason_only() -> None:
    """A client sees the code alone: what it does must not depend on the text."""
    for row in CLOSES:
        for other in CLOSES:
            if row.code == other.code:
                assert (row.client, row.report, row.resend) == (other.client, other.report, other.resend)


@pytest.mark.parametrize("code", [1004, 1010, 1014, 1015, 3000, 4000, 4402, 4999])
def test_any_other_code_means_backoff(code: int) -> None:
    """Also one that a proxy or a later server invents: better to come back in vain than to stop for good."""
    assert action_for(code) is ClientAction.BACKOFF


def test_the_vectors_are_the_table() -> None:
    """``python -m tidings_gateway.core.closing > tests/vectors/close_codes.json`` after a change."""
    assert (DIRECTORY / "close_codes.json").read_text(encoding="utf-8") == as_json()
    assert {row["code"] for row in load("close_codes.json")["closes"]} == set(CONTRACT)


def test_the_browser_client_has_the_table() -> None:
    """``python -m tidings_gateway.core.closing js > web/closing.js`` after a change."""
    assert (ROOT / "web" / "closing.js").read_text(encoding="utf-8") == as_javascript()


@pytest.mark.parametrize(("arguments", "expected"), [([], as_json()), (["js"], as_javascript())], ids=["json", "js"])
def test_the_module_prints_its_table(arguments: list[str], expected: str) -> None:
    """On standard output: as JSON for clients in other languages, or as the browser client's module."""
    command = [sys.executable, "-m", "tidings_gateway.core.closing", *arguments]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == expected
