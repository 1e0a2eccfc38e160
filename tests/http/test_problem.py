"""Errors that no route made: unknown addresses and methods, as problems like all others."""

from __future__ import annotations

import pytest

from tests.http.conftest import Door


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/metrics", "/v1", "/v1/publish/", "/.env", "/%00"])
async def test_an_unknown_address_is_a_problem(door: Door, path: str) -> None:
    """404 in the form of every other error; no pages of documentation, no redirects to near addresses."""
    answer = await door.client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "code": "not_found",
        "detail": "There is nothing at this address.",
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/publish", "POST"), ("POST", "/livez", "GET"), ("DELETE", "/v1/position", "GET")],
)
async def test_another_method_names_those_that_are_allowed(door: Door, method: str, path: str, allowed: str) -> None:
    """405 with Allow (RFC 9110 section 15.5.6)."""
    answer = await door.client.request(method, path)
    assert answer.status_code == 405
    assert allowed in answer.headers["allow"]
    assert answer.json()["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/", "/livez", "/v1/publish", "/v1/ws", "/tidings.js"])
async def test_trace_is_never_answered(door: Door, path: str) -> None:
    """It would send back what a page's script must not see: cookies and keys."""
    answer = await door.client.request("TRACE", path, headers={"cookie": "sid=canary"})
    assert answer.status_code == 405
    assert "canary" not in answer.text
