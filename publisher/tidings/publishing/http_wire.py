"""Calls as HTTP requests to a gateway, and responses as verdicts. Sans-I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote

import orjson

from tidings.log.receipt import Receipt
from tidings.publishing.message import AskPosition, Call, Publish
from tidings.publishing.plan import Batch, Outcome, Refusal, Verdict, attempt_s, refusal_of

SHARE = 0.8
"""Of the time left, for one attempt. More than over Redis: the gateway repeats things itself, and its refusal says more
than our giving up on it."""
REQUEST_CALLS = 100
REQUEST_BYTES = 524_288
MAX_WAIT_S = 3600.0
"""A longer Retry-After is taken for this."""

_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`path` goes behind the URL's own."""

    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """`headers` in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpWire:
    """A call for a position goes alone; messages go together, as many as a request holds."""

    def __init__(self, api_key: str) -> None:
        self._headers = {"authorization": f"Bearer {api_key}", "accept": "application/json"}

    def batch(self, calls: Sequence[Call], left_s: float) -> Batch:
        request, count = self._request(calls)
        return Batch(request, range(count), attempt_s(left_s, SHARE, calls[:count]))

    def learn(self, outcome: Outcome) -> Refusal | None:  # noqa: ARG002 - every batch covers a call
        raise AssertionError("HTTP asks nothing of its own")

    def lane(self, call: Call) -> object:  # noqa: ARG002 - there is one
        return None

    def _request(self, calls: Sequence[Call]) -> tuple[HttpRequest, int]:
        if isinstance(calls[0], AskPosition):
            path = f"/v1/position?user={quote(calls[0].user, safe='')}"
            return HttpRequest("GET", path, None, self._headers), 1
        items: list[bytes] = []
        size = 0
        for call in calls[:REQUEST_CALLS]:
            if not isinstance(call, Publish):
                break
            item = _item(call)
            size += len(item)
            if items and size > REQUEST_BYTES:
                break
            items.append(item)
        body = items[0] if len(items) == 1 else b'{"messages":[%b]}' % b",".join(items)
        headers = {**self._headers, "content-type": "application/json"}
        return HttpRequest("POST", "/v1/publish", body, headers), len(items)

    def verdicts(self, calls: Sequence[Call], outcome: Outcome) -> list[Verdict]:
        if outcome.failure is not None:
            return [refusal_of(outcome.failure, call) for call in calls]
        answer = outcome.answers[0]
        if answer.status not in (200, 207):
            problem = _problem(answer)
            wait = _retry_after_s(answer.headers)
            return [_refusal(call, answer.status, problem, wait) for call in calls]
        try:
            content = orjson.loads(answer.body)
            if len(calls) == 1 and (answer.status == 200 or "results" not in content):
                return [_result(calls[0], content)]
            return [_result(call, item) for call, item in zip(calls, content["results"], strict=True)]
        except (ValueError, KeyError, TypeError, AttributeError):
            return [_nonsense(call) for call in calls]


def _item(call: Publish) -> bytes:
    members: dict[str, Any] = {
        "user": call.user,
        "event": call.event.type,
        "data": orjson.Fragment(call.event.data_json),
    }
    if call.event.key is not None:
        members["key"] = call.event.key
    if call.ephemeral:
        members["ephemeral"] = True
    else:
        members["idempotency_key"] = call.idempotency_key
    if call.min_replicas:
        members["min_replicas"] = call.min_replicas
    return orjson.dumps(members)


def _result(call: Call, content: Any) -> Verdict:
    if isinstance(call, AskPosition):
        return _text(content["position"])
    if "error" in content:
        error = content["error"]
        status = error.get("status", 503 if error.get("retryable") else 400)
        return _refusal(call, status, error, error.get("retry_after_s"))
    position = content["id"]
    if position is None and not call.ephemeral:
        raise KeyError("id")
    return Receipt(
        position if position is None else _text(position),
        bool(content.get("duplicate", False)),
        int(content.get("listening", 0)),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


_WORDS = {
    401: ("unauthorized", "the gateway refused the API key"),
    403: ("forbidden", "the gateway does not allow this with this API key"),
    404: ("not_found", "there is no gateway at this URL (or its base path is missing)"),
    413: ("too_large", "the gateway takes no body of this size"),
    429: ("too_fast", "the gateway asks to publish more slowly"),
    500: ("internal", "the gateway met a fault of its own"),
    502: ("bad_gateway", "a proxy did not get an answer from the gateway"),
    503: ("unavailable", "the gateway, or its Redis, is not available"),
    504: ("gateway_timeout", "a proxy did not get an answer from the gateway in time"),
}
_RETRYABLE = frozenset((408, 425, 429, 500, 502, 503, 504))
_PERHAPS_DONE = frozenset((500, 502, 504))


def _refusal(call: Call, status: int, problem: Mapping[str, Any], wait: float | None) -> Refusal:
    code, words = _WORDS.get(status, ("http_error", f"the gateway answered with status {status}"))
    if 300 <= status < 400:
        # Following it would show the API key to whoever is named there.
        code, words = "redirected", f"the gateway answered with a redirect (status {status}), which is not followed"
    detail = problem.get("detail")
    retryable = _flag(problem, "retryable", status in _RETRYABLE)
    # A 503 that the gateway itself explains was refused before anything was stored, unless it says otherwise; one
    # without an explanation comes from something in between, which cannot know.
    in_doubt = _flag(problem, "outcome_unknown", status in _PERHAPS_DONE or (status == 503 and not problem))
    in_doubt = in_doubt and isinstance(call, Publish)
    return Refusal(
        f"{words}: {detail[:_SHOWN_CHARS]}" if isinstance(detail, str) else words,
        str(problem.get("code", code)),
        again=retryable and (call.repeatable or not in_doubt),
        retryable=retryable,
        in_doubt=in_doubt,
        retry_after_s=wait,
    )


def _flag(problem: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    value = problem.get(name)
    return value if isinstance(value, bool) else otherwise


def _problem(answer: HttpAnswer) -> Mapping[str, Any]:
    """The members of a problem (RFC 9457); empty when the body is none."""
    if "json" not in answer.headers.get("content-type", ""):
        return {}
    try:
        content = orjson.loads(answer.body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _nonsense(call: Call) -> Refusal:
    why = "what answered is not a Tidings gateway: is the URL right?"
    return Refusal(why, "bad_answer", in_doubt=isinstance(call, Publish))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """RFC 9110 section 10.2.3: seconds, or a date, which is compared with the server's own clock."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_WAIT_S)
    try:
        wait = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return None
    return min(max(wait.total_seconds(), 0.0), MAX_WAIT_S)
