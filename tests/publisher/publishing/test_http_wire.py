"""Calls as HTTP requests, and responses as verdicts."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from tidings.event import Event
from tidings.log.receipt import Receipt
from tidings.publishing.http_wire import REQUEST_BYTES, REQUEST_CALLS, HttpAnswer, HttpRequest, HttpWire
from tidings.publishing.message import AskPosition, Call, Publish
from tidings.publishing.plan import Failure, Outcome, Refusal

EVENT = Event.encode("a", {"n": 1.5}, time_ms=0, key="k")
DURABLE = Publish("alice", EVENT, "i")
EPHEMERAL = Publish("alice", EVENT, None)
ASK = AskPosition("alice")
PROBLEM = {"content-type": "application/problem+json"}


def verdicts(calls: list[Call], status: int, content: Any, headers: dict[str, str] | None = None) -> list[Any]:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return HttpWire("key").verdicts(calls, Outcome([HttpAnswer(status, headers or PROBLEM, body)]))


def verdict(call: Call, status: int, content: Any, headers: dict[str, str] | None = None) -> Refusal:
    (found,) = verdicts([call], status, content, headers)
    assert isinstance(found, Refusal)
    return found


def request_of(calls: list[Call]) -> tuple[HttpRequest, int]:
    batch = HttpWire("key").batch(calls, 2.0)
    assert list(batch.covers) == list(range(len(batch.covers)))
    return batch.request, len(batch.covers)


def test_requests_are_bounded() -> None:
    """By count and by bytes, at least one message; a question for a position goes alone."""
    assert request_of([DURABLE] * 500)[1] == REQUEST_CALLS
    large = Publish("alice", Event.encode("a", "x" * 65_000, time_ms=0), "i")
    request, count = request_of([large] * 100)
    assert request.body is not None
    assert 1 < count < 9
    assert len(request.body) < REQUEST_BYTES + 100
    assert request_of([ASK, ASK])[1] == 1
    assert request_of([DURABLE, ASK])[1] == 1


def test_data_is_passed_on_as_it_was_encoded() -> None:
    """One encoding: a float stays that float, and the time is the gateway's own."""
    request, _ = request_of([DURABLE])
    assert request.body is not None
    assert b'"data":{"n":1.5}' in request.body
    assert set(json.loads(request.body)) == {"user", "event", "data", "key", "idempotency_key"}


def test_receipts() -> None:
    """One message: its own answer. Several: one result each. Missing hints are no error."""
    stored = {"id": "EpochOne.1-2", "duplicate": True, "listening": 3}
    assert verdicts([DURABLE], 200, stored) == [Receipt("EpochOne.1-2", True, 3)]
    assert verdicts([EPHEMERAL], 200, {"id": None}) == [Receipt(None)]
    assert verdicts([ASK], 200, {"position": "EpochOne.1-2"}) == ["EpochOne.1-2"]
    assert verdicts([DURABLE, EPHEMERAL], 200, {"results": [stored, {"id": None}]})[1] == Receipt(None)
    assert verdicts([DURABLE], 207, {"results": [stored]}) == [Receipt("EpochOne.1-2", True, 3)]


@pytest.mark.parametrize(
    "content",
    [
        b"<html>",
        b"",
        [],
        7,
        None,
        {},
        {"id": None},
        {"id": 7},
        {"results": []},
        {"results": 7},
        {"id": "x", "listening": "y"},
    ],
)
def test_nonsense_is_not_a_receipt(content: Any) -> None:
    """A 200 that is not a gateway's answer is an error whose outcome is unknown, never a success."""
    found = verdict(DURABLE, 200, content)
    assert (found.code, found.retryable, found.in_doubt) == ("bad_answer", False, True)
    assert verdict(ASK, 200, content if content != {"id": 7} else {}).in_doubt is False


@pytest.mark.parametrize(
    ("status", "content", "code", "retryable", "in_doubt"),
    [
        (400, {"code": "invalid", "detail": "data: x"}, "invalid", False, False),
        (401, {"code": "unauthorized"}, "unauthorized", False, False),
        (403, b"", "forbidden", False, False),
        (404, b"not here", "not_found", False, False),
        (413, {"code": "too_large"}, "too_large", False, False),
        (418, b"", "http_error", False, False),
        (301, b"", "redirected", False, False),
        (429, b"", "too_fast", True, False),
        (500, b"", "internal", True, True),
        (502, b"", "bad_gateway", True, True),
        (504, b"", "gateway_timeout", True, True),
        (503, b"<html>nginx</html>", "unavailable", True, True),
        (503, {"code": "storage_full", "outcome_unknown": False}, "storage_full", True, False),
        (503, {"code": "unavailable"}, "unavailable", True, False),
        (503, {"code": "unreplicated", "outcome_unknown": True}, "unreplicated", True, True),
        (500, {"code": "forbidden", "retryable": False, "outcome_unknown": False}, "forbidden", False, False),
        (503, {"code": 7, "detail": 9, "retryable": "x", "outcome_unknown": None}, "7", True, False),
    ],
)
def test_what_a_status_means(status: int, content: Any, code: str, retryable: bool, in_doubt: bool) -> None:
    """Whether to try again, and whether it may be stored: what the gateway says counts, then what the status implies;
    a 503 that explains nothing comes from something in between, which cannot know."""
    headers = PROBLEM if isinstance(content, dict) else {"content-type": "text/html"}
    found = verdict(DURABLE, status, content, headers)
    assert (found.code, found.retryable, found.in_doubt) == (code, retryable, in_doubt)
    assert found.again == retryable
    assert verdict(EPHEMERAL, status, content, headers).again == (retryable and not in_doubt)
    assert verdict(ASK, status, content, headers).in_doubt is False


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "99999999999"}, 3600.0),
        (
            {"retry-after": "Sun, 29 Nov 2026 20:00:30 GMT", "date": "Sun, 29 Nov 2026 20:00:00 GMT"},
            30.0,
        ),
        (
            {"retry-after": "Sun, 29 Nov 2026 19:00:30 GMT", "date": "Sun, 29 Nov 2026 20:00:00 GMT"},
            0.0,
        ),
        ({"retry-after": "Sun, 29 Nov 2026 20:00:30 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "٣"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], wait: float | None) -> None:
    """Seconds, or a date by the gateway's own clock (RFC 9110 section 10.2.3); anything else does not count."""
    assert verdict(DURABLE, 503, {"code": "x"}, {**PROBLEM, **headers}).retry_after_s == wait


def test_results_with_errors() -> None:
    """Each result says for itself whether to try again."""
    results = [
        {"id": "EpochOne.1-2"},
        {"error": {"code": "invalid", "status": 400, "detail": "bad", "retryable": False}},
        {"error": {"code": "full", "status": 503, "retryable": True, "outcome_unknown": True, "retry_after_s": 4}},
    ]
    stored, invalid, full = verdicts([DURABLE] * 3, 207, {"results": results})
    assert stored == Receipt("EpochOne.1-2")
    assert (invalid.code, invalid.again, invalid.why.endswith("bad")) == ("invalid", False, True)
    assert (full.again, full.in_doubt, full.retry_after_s) == (True, True, 4)


def test_words_of_others_are_cut() -> None:
    """A long explanation does not become a long line in a log."""
    assert len(verdict(DURABLE, 400, {"detail": "x" * 5000}).why) < 300


def test_a_broken_exchange() -> None:
    """It means the same for every message in it."""
    failure = Failure("broke", sent=True)
    found = HttpWire("key").verdicts([DURABLE, EPHEMERAL], Outcome(failure=failure))
    assert [verdict.again for verdict in found if isinstance(verdict, Refusal)] == [True, False]


def test_replicas_are_asked_for_by_name() -> None:
    """And by nothing when none are: a gateway of an older version would refuse the member."""
    request, _ = request_of([Publish("alice", EVENT, "k", 2)])
    assert orjson.loads(request.body or b"")["min_replicas"] == 2
    request, _ = request_of([DURABLE])
    assert "min_replicas" not in orjson.loads(request.body or b"")
